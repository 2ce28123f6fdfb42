"""The lock file of all environments: every package that one of them needs, pinned with its hashes for all platforms.

``python requirements/locked.py demo FILE`` writes the packages of one environment, in the format of pip and uv. ``python
requirements/locked.py --resolve .venv/bin/uv`` resolves the packages of all environments again (``make lock``).

Environments have most packages in common, so ``lock.txt`` has each package once, with its environments in the line after its
hashes. The program needs only Python, because the build of the image runs it before pip installs the packages.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

LOCK: Final = Path(__file__).with_name("lock.txt")
TAKEN_BY: Final = "    # for: "

# The extras and dependency groups of pyproject.toml in each environment, besides the package's own dependencies.
DEV: Final = "demo audit postgres http security telemetry otel test check"
EXTRAS: Final = {
    "dev": DEV,
    "runtime": "",
    "image": "security telemetry otel",
    "demo": "demo",
    "spark": "spark",
    "audit": "audit",
    "testcontainers": "testcontainers",
    "release": "release",
    "java": "java",
}
WITHOUT_BUILD: Final = ("image", "testcontainers", "java")
"""Environments without the dependency group ``build``, so they cannot build Odradek. All others in `EXTRAS` can."""
GROUPS: Final = ("build", "install", "site")
"""Environments with the packages of the dependency group of the same name, and without Odradek's own dependencies."""
APART: Final = ("dev", "install", "site")
"""Environments for which the versions of packages are resolved alone. All others have each package in the version that
the environment ``dev`` has."""


def requirements_of(environment: str, lock: str) -> str:
    """The requirements of an environment in ``lock``, the text of the lock file.

    Raises ``LookupError`` if there is no such environment.
    """
    found = [text for text, takers in _entries(lock) if environment in takers]
    if not found:
        raise LookupError(f"no environment has the name {environment}")
    return "".join(found)


def _entries(lock: str) -> list[tuple[str, list[str]]]:
    """(requirement with its hashes, its environments) of each package in the lock file."""
    found = []
    for entry in re.split(r"^(?=\w)", lock, flags=re.MULTILINE)[1:]:
        text, _, takers = entry.partition(TAKEN_BY)
        found.append((text, takers.split()))
    return found


def merged(resolved: dict[str, str]) -> str:
    """Text of the lock file, given the resolved requirements of each environment."""
    takers: dict[str, list[str]] = {}
    for environment, requirements in sorted(resolved.items()):
        for text in re.split(r"^(?=\w)", requirements, flags=re.MULTILINE)[1:]:
            takers.setdefault(text, []).append(environment)
    return "".join(f"{text}{TAKEN_BY}{' '.join(takers[text])}\n" for text in sorted(takers, key=_name_of))


def _name_of(text: str) -> tuple[str, str]:
    return text.partition("==")[0], text


def resolve(uv: str) -> dict[str, str]:
    """The requirements of each environment, by its name, in the newest versions that pyproject.toml allows."""
    # --universal: for every platform. The index is left to each machine's own configuration.
    command = [
        *(uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"),
        *("--no-emit-index-url", "--no-header", "--no-annotate", "--upgrade"),
    ]
    resolved = {}
    with TemporaryDirectory() as directory:
        versions = Path(directory, "dev.txt")
        for environment in (*EXTRAS, *GROUPS):
            constraints = [] if environment in APART else ["-c", str(versions)]
            resolved[environment] = subprocess.run(
                [*command, *_of_pyproject(environment), *constraints],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            if environment == "dev":
                versions.write_text(resolved["dev"], "utf-8")
    return resolved


def _of_pyproject(environment: str) -> list[str]:
    if environment in GROUPS:
        return ["--group", f"pyproject.toml:{environment}"]
    extras = [argument for extra in EXTRAS[environment].split() for argument in ("--extra", extra)]
    build = [] if environment in WITHOUT_BUILD else ["--group", "build"]
    return ["pyproject.toml", *extras, *build]


def main(arguments: list[str]) -> int:
    match arguments:
        case ["--resolve", uv]:
            LOCK.write_text(merged(resolve(uv)), "utf-8")
        case [environment, file]:
            Path(file).write_text(requirements_of(environment, LOCK.read_text("utf-8")), "utf-8")
        case _:
            raise SystemExit("usage: locked.py ENVIRONMENT FILE | --resolve UV")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
