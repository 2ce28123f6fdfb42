"""The public surface: ``python -m tests.surface.surface [--write]``.

`recorded.txt` in this directory has every name that tests, programs, scripts and dashboards of users refer to, one in a
line. A refactoring does not change it. A change of it is a change for users, and needs a line in CHANGELOG.md. Without
``--write`` the program prints the differing lines.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

import click

from broker.config import definitions
from broker.config.group_configs import group_configs
from broker.config.metrics_configs import METRICS_CONFIGS
from broker.injection.points import POINTS
from lab.control.openapi import ROLE, document
from lab.control.operations import discover
from lab.faults import rules, text
from lab.faults.fields import known_at
from odradek._server.__main__ import PROGRAMS
from odradek.cli import _LATE, main
from protocol.errors import ErrorCode
from proxy.options import command as proxy
from server.options import command as serve
from storage.config import TOPIC_CONFIGS
from tests.surface import python_names
from tools.__main__ import COMMANDS

Lines = dict[str, list[str]]
"""Public names, by the section of ``recorded.txt`` that lists them."""

ROOT = python_names.ROOT
RECORDED = ROOT / "tests" / "surface" / "recorded.txt"
METRIC_ROW = re.compile(r"^\| `([a-z]\w+)` \|([^|]*)\|", re.MULTILINE)
VARIABLE = re.compile(r"\"((?:ODRADEK|KAFKA(?!_CFG))_[A-Z0-9_]*[A-Z0-9])\"")
ARGPARSE_OPTION = re.compile(r"add_argument\(\"(--[\w-]+)\"")
EVENT = re.compile(r"\.(?:debug|info|warning|error|exception|critical)\(\s*\"([^\"]+)\"")
PROGRAM = re.compile(r"python3? -m ((?:odradek|broker|tools)[\w.]*)")
SPARK_ROW = re.compile(r"^\| `([\w.]+)`", re.MULTILINE)


@cache
def surface() -> Lines:
    """The lines of each section, read from the sources."""
    return {title: sorted(set(found())) for title, found in SECTIONS.items()}


def http() -> Iterator[str]:
    found = document(discover(), version="", with_token=True)
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            yield from _call(f"{method.upper()} {path}", operation)
    for name, schema in found["components"]["schemas"].items():
        required = schema.get("required", ())
        for field, type_ in schema.get("properties", {}).items():
            yield f"{name}.{field}: {_type(type_)}{' (required)' if field in required else ''}"
        if "properties" not in schema:
            yield f"{name}: {_type(schema)}"


def _call(name: str, operation: dict[str, Any]) -> Iterator[str]:
    answer = operation["responses"]["200"]["content"]
    for content_type, content in answer.items():
        yield f"{name} answers {content_type} {_type(content['schema'])}, role {operation.get(ROLE, 'none')}"
    for each in operation.get("parameters", ()):
        required = " (required)" if each["required"] else ""
        yield f"{name} {each['in']} {each['name']}: {_type(each['schema'])}{required}"
    if "requestBody" in operation:
        yield f"{name} body {_type(operation['requestBody']['content']['application/json']['schema'])}"


def _type(schema: dict[str, Any]) -> str:
    """A short form of a JSON schema."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(json.dumps(each) for each in schema["enum"])
    if schema.get("type") == "array":
        items = schema.get("prefixItems") or [schema.get("items") or {}]
        return f"[{', '.join(map(_type, items))}]"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"{{{_type(schema['additionalProperties'])}}}"
    return str(schema.get("type", "any"))


def faults() -> Iterator[str]:
    for name, kind in rules.ACTIONS.items():
        places = ", ".join(sorted(place.value for place in kind.places))
        parameters = " ".join(each + "!" * (each in kind.required) for each in kind.parameters)
        yield f"action {name} at {places}: {parameters}".rstrip(": ")
    for name in rules.API_KEYS:
        yield f"API {name}"
    for name in POINTS:
        yield f"point {name}: {' '.join(sorted(known_at(name)))}".rstrip(": ")
    yield from (f"matcher {name}=" for name in text.MATCHERS)
    yield from (f"condition {name}=" for name in text.CONDITIONS)
    yield from (f"parameter {name}=" for name in text.PARAMETERS)
    yield from (f"flag {name}" for name in text.FLAGS)


def commands() -> Iterator[str]:
    """Commands with their arguments and options, as users type them."""
    found: dict[str, click.Command] = {name: each for name, each in main.commands.items() if name != "demo"}
    found |= {name: getattr(import_module(module), name) for name, (module, _) in _LATE.items()}
    found |= {name: getattr(import_module(each), name.replace("-", "_")) for name, each in COMMANDS.items()}
    found |= {"serve": serve(lambda _: None), "proxy": proxy(lambda _: None)}
    found |= {"export": _server_command("export"), "import": _server_command("import_")}
    for name, command in found.items():
        yield from _below(f"odradek {name}", command)
    demo = (ROOT / "odradek" / "demo" / "run.py").read_text("utf-8")  # importing it needs an extra
    yield from (f"odradek demo {option}" for option in ARGPARSE_OPTION.findall(demo))
    yield from (f"odradek {option}" for each in main.params for option in each.opts)


def _server_command(name: str) -> click.Command:
    module, _ = PROGRAMS[name.rstrip("_")]
    return next(each for each in vars(import_module(module)).values() if isinstance(each, click.Command))


def _below(path: str, command: click.Command) -> Iterator[str]:
    yield path
    for parameter in command.params:
        yield f"{path} {_parameter(parameter)}"
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _below(f"{path} {name}", each)


def _parameter(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return f"{parameter.make_metavar(click.Context(click.Command('')))} (argument)"
    assert isinstance(parameter, click.Option)
    words = [" ".join(["/".join((*parameter.opts, *parameter.secondary_opts))])]
    if isinstance(parameter.type, click.Choice):
        words.append("|".join(map(str, parameter.type.choices)))
    elif not parameter.is_flag:
        words.append(
            parameter.type.name.upper() if parameter.nargs == 1 else f"{parameter.type.name.upper()}…"
        )
    if parameter.envvar:
        words.append(f"({parameter.envvar})")
    return " ".join(words + ["(required)"] * parameter.required + ["(repeated)"] * parameter.multiple)


def metrics() -> Iterator[str]:
    """The metrics in docs/metrics.md. A test compares this page with the metrics of a broker."""
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    for name, labels in METRIC_ROW.findall(page):
        yield f"{name}{{{labels.strip()}}}" if labels.strip() else name


def settings() -> Iterator[str]:
    for name in (*definitions.OWN_CONFIGS, *definitions.kafka_configs(), *definitions.AUTHORIZER_CONFIGS):
        yield f"broker {name}"
    yield from (f"broker, at run time {name}" for name in definitions.RUN_TIME_CONFIGS)
    yield from (f"topic {name}" for name in TOPIC_CONFIGS)
    yield from (f"group {name}" for name in group_configs())
    yield from (f"client metrics {name}" for name in METRICS_CONFIGS)


def spark() -> Iterator[str]:
    """Options, columns, findings and errors from the tables in docs/spark."""
    for page in sorted((ROOT / "docs" / "spark").glob("*.md")):
        yield from (f"{page.stem} {name}" for name in SPARK_ROW.findall(page.read_text("utf-8")))


@cache
def _product() -> str:
    """All sources of the product as one text."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    roots = project["tool"]["importlinter"]["root_packages"]
    paths = (path for root in roots for path in sorted((ROOT / root).rglob("*.py")))
    return "\n".join(path.read_text("utf-8") for path in paths if "messages" not in path.parts)


def variables() -> Iterator[str]:
    """Environment variables in the sources."""
    return (name for name in VARIABLE.findall(_product()) if name.lower() not in ErrorCode.__members__)


def events() -> Iterator[str]:
    """Log events that a page of the documentation mentions."""
    pages = "\n".join(python_names.texts())
    events = set(EVENT.findall(_product()))
    return (event for event in events if f"`{event}`" in pages or f'"{event}"' in pages)


def programs() -> Iterator[str]:
    """Programs, entry points and extras of the installation, and modules that pages run with ``python -m``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    yield from (f"script {name}" for name in project["scripts"])
    for group, names in project["entry-points"].items():
        yield from (f"entry point {group} {name} = {target}" for name, target in names.items())
    yield from (f"extra {name}" for name in project["optional-dependencies"])
    for page in python_names.texts():
        yield from (f"python -m {name}" for name in PROGRAM.findall(page))


SECTIONS: dict[str, Callable[[], Iterator[str]]] = {
    "Python": python_names.lines,
    "HTTP": http,
    "fault rules": faults,
    "commands": commands,
    "metrics": metrics,
    "settings": settings,
    "Spark": spark,
    "environment variables": variables,
    "log events": events,
    "programs": programs,
}


def recorded() -> Lines:
    found: Lines = {}
    for line in RECORDED.read_text("utf-8").splitlines():
        if line.startswith("# "):
            found[line[2:]] = []
        elif line:
            found[list(found)[-1]].append(line)
    return found


def difference(before: Lines, now: Lines) -> list[str]:
    """Recorded lines that are gone, and new lines that are not recorded."""
    found = []
    for title in {**before, **now}:
        old, new = set(before.get(title, ())), set(now.get(title, ()))
        found += [f"{title}: gone: {line}" for line in sorted(old - new)]
        found += [f"{title}: new: {line}" for line in sorted(new - old)]
    return found


def write() -> None:
    parts = (f"# {title}\n\n" + "".join(f"{line}\n" for line in lines) for title, lines in surface().items())
    RECORDED.write_text("\n".join(parts), "utf-8")


def run() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="record the surface as it is now")
    if parser.parse_args().write:
        write()
        return 0
    found = difference(recorded(), surface())
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(run())
