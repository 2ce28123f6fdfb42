"""``certify.toml``: the options of ``odradek certify`` in a file, under the same names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from odradek.certify.jobs import container
from odradek.certify.jobs.command import Command
from odradek.certify.jobs.restarts import ALWAYS, Restart
from odradek.certify.judging.check import Check
from odradek.certify.judging.comparison import Compare
from odradek.certify.judging.rows import ALL_HEADERS, ON_DEMAND, has_order
from odradek.certify.outcome import ACCEPTABLE, Verdict
from odradek.certify.plans.faults import BY_NAME
from odradek.certify.services import specs
from odradek.certify.services.specs import StageSpec
from odradek.certify.workload import Delivery, Seed, Until, Workload, read_expected, read_seeds
from odradek.durations import seconds
from odradek.nearest import nearest as nearest_of
from odradek.topics import Record

FILE: Final = "certify.toml"
_T = TypeVar("_T")
NAMES: Final = (
    *("topic", "seed-records", "job", "job-container", "jobs", "output", "until"),
    *("compare", "compare-also", "ignore", "expect"),
    *("check", "restart", "grace"),
    *("nodes", "upstream", "set", "patience", "budget", "seed", "stages", "failures", "report"),
    *("profile", "accept", "leave-out", "group-config", "delivery", "allow-rejected"),
    *("stage", "stage-setup", "stage-reset", "input"),
)


def read(path: Path) -> dict[str, Any]:
    """Read the options from the file. Raises ``ValueError`` for an unknown option."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    unknown = [name for name in found if name not in NAMES]
    if unknown:
        raise ValueError(
            f"{path}: unknown option {unknown[0]}{nearest(unknown[0], NAMES)} (known: {', '.join(NAMES)})"
        )
    return found


def workload(options: Mapping[str, Any], directory: Path) -> Workload:
    """Build the workload that the options describe.

    ``directory`` is the base of relative paths, and the job's working directory. Raises ``ValueError`` for invalid options.
    """
    topics = [_topic(each) for each in _several(options.get("topic"))]
    stages = _stages(options, directory)
    said = _several(options.get("output"))
    outputs = [each for each in said if not specs.is_service(each)]
    service_outputs = [specs.parse_output(each, stages) for each in said if specs.is_service(each)]
    if not options.get("job") and not options.get("job-container"):
        raise ValueError("--job is missing: the command to certify")
    check = options.get("check")
    if not said and not check:
        raise ValueError("--output is missing: the topics that the job writes (not needed with a --check)")
    seeds: list[Seed] = []
    for each in _several(options.get("seed-records")):
        topic, _, path = each.partition("=")
        if not path:
            raise ValueError(f"--seed-records {each!r}: expected TOPIC=FILE")
        seeds += read_seeds(topic, _existing("--seed-records", directory / path))
    _check_topics(
        topics,
        {
            **dict.fromkeys((each.topic for each in seeds), "--seed-records"),
            **dict.fromkeys(outputs, "--output"),
        },
    )
    expect = options.get("expect")
    if check == "":
        raise ValueError("--check is empty: expected a command")
    expected = (
        read_expected(
            _existing("--expect", directory / expect), [*outputs, *(each.label for each in service_outputs)]
        )
        if expect
        else None
    )
    until = named("--until", Until.parse, options.get("until") or "auto")
    found = Workload(
        command=_command(options, directory, stages),
        outputs=tuple(outputs),
        topics=tuple(topics),
        seeds=tuple(seeds),
        instances=int(options.get("jobs") or 1),
        restarts=_restarts(options.get("restart"), until),
        grace_s=named("--grace", seconds, options["grace"]) if options.get("grace") else None,
        until=until,
        compare=_compare(options, said),
        compare_also=_also(options),
        ignored=_ignored(options, expected),
        nodes=int(options.get("nodes") or 1),
        upstream=str(options.get("upstream") or ""),
        settings=dict(each.split("=", 1) for each in _several(options.get("set"))),
        group_configs=_group_configs(_several(options.get("group-config"))),
        delivery=_delivery(options.get("delivery")),
        may_reject=bool(options.get("allow-rejected")),
        expected=expected,
        stages=stages,
        service_outputs=tuple(service_outputs),
        feeds=tuple(specs.parse_input(each, directory, stages) for each in _several(options.get("input"))),
        check=check,
        left_out=_left_out(_several(options.get("leave-out"))),
        patience_s=named("--patience", seconds, options["patience"]) if options.get("patience") else None,
    )
    found.command.check()
    if found.command.container:
        container.check(found.command.container)
    return found


def _stages(options: Mapping[str, Any], directory: Path) -> tuple[StageSpec, ...]:
    setups = {
        name: _existing("--stage-setup", directory / path)
        for name, path in _by_stage("stage-setup", "FILE", options)
    }
    resets = {
        name: Check(command, directory) for name, command in _by_stage("stage-reset", "COMMAND", options)
    }
    stages = [named("--stage", StageSpec.parse, each) for each in _several(options.get("stage"))]
    names = [each.name for each in stages]
    for option, name in [
        *(("stage-setup", each) for each in setups),
        *(("stage-reset", each) for each in resets),
    ]:
        if name not in names:
            raise ValueError(f"--{option} {name}: no --stage has this name (known: {', '.join(names)})")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--stage {name} is there twice: name the second one, as in {name}.second=...")
    return tuple(replace(each, setup=setups.get(each.name), reset=resets.get(each.name)) for each in stages)


def _by_stage(option: str, what: str, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The values ``NAME=...`` of an option, by the name of the stage."""
    for said in _several(options.get(option)):
        name, equals, rest = said.partition("=")
        if not equals or not rest:
            raise ValueError(f"--{option} {said!r}: expected NAME={what}")
        yield name, rest


def _command(options: Mapping[str, Any], directory: Path, stages: Sequence[StageSpec]) -> Command:
    image = options.get("job-container")
    placeholders = [specs.PORT, *(name for each in stages for name in each.placeholders)]
    command = options.get("job") or ()
    return Command.parse(command, directory, container.parse(image) if image else (), placeholders)


def named(option: str, parse: Callable[[str], _T], said: object) -> _T:
    """Return ``parse(said)``, the parsed value. The message of a ``ValueError`` gets ``option`` in front."""
    try:
        return parse(str(said))
    except ValueError as error:
        raise ValueError(f"{option} {error}") from None


def _topic(said: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}(:(\d*|\d+:[^:=]+=.*))?", said):
        raise ValueError(f"--topic {said!r}: expected NAME:PARTITIONS[:KEY=VALUE,...], such as orders:4")
    return said


def _existing(option: str, path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"{option}: there is no file {path}")
    return path


def accepted(options: Mapping[str, Any]) -> tuple[Verdict, ...]:
    """The verdicts besides "exactly once" that the user accepts."""
    known = {each.value.replace(" ", "-"): each for each in ACCEPTABLE}
    said = _several(options.get("accept"))
    for each in said:
        if each not in known:
            raise ValueError(f"{each!r}: --accept takes {' or '.join(known)}")
    return tuple(known[each] for each in said)


def _group_configs(said: Iterable[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for each in said:
        setting, equals, value = each.partition("=")
        group, colon, name = setting.rpartition(":")
        if not (equals and colon and group and name):
            raise ValueError(
                f"--group-config {each!r}: expected GROUP:NAME=VALUE, such as jobs:share.auto.offset.reset=earliest"
            )
        found.setdefault(group, {})[name] = value
    return found


def _delivery(said: object) -> Delivery | None:
    names = [each.value for each in Delivery]
    if said and said not in names:
        raise ValueError(f"--delivery {said}: expected {' or '.join(names)}")
    return Delivery(said) if said else None


def _left_out(said: Iterable[str]) -> frozenset[str]:
    for each in said:
        if each not in BY_NAME:
            raise ValueError(f"unknown fault: {each!r}{nearest(each, BY_NAME)} (known: {', '.join(BY_NAME)})")
    return frozenset(said)


def _check_topics(topics: Iterable[str], named: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for a topic in ``named`` (topic -> the option that contains it) that no --topic creates."""
    known = [each.partition(":")[0] for each in topics]
    for name, option in named.items():
        if known and name not in known:
            raise ValueError(
                f"{option} {name}: no --topic has this name{nearest(name, known)} (known: {', '.join(known)})"
            )


def nearest(name: str, known: Iterable[str]) -> str:
    """A question with the most similar known name, or an empty string.

    >>> nearest("oot", ["in", "out"]), nearest("x", ["in"])
    (' (did you mean out?)', '')
    """
    found = nearest_of(name, known)
    return f" (did you mean {found}?)" if found else ""


def _restarts(said: object, until: Until) -> Restart | None:
    """Parse ``always``, ``on-failure``, ``never``, or a maximum number of restarts; None if the option is not set."""
    if said is None:
        return None
    found = named("--restart", Restart.parse, said)
    if found == ALWAYS and until.what == "exit":
        raise ValueError(
            "--restart always starts an instance again after exit code 0, but --until exit waits for that exit: "
            "remove one of them, or use --restart on-failure"
        )
    return found


def _compare(options: Mapping[str, Any], outputs: Sequence[str]) -> Compare:
    """The method of comparison; without an output, only the check decides."""
    how = Compare(str(options.get("compare") or "rows"))
    if how is Compare.NONE and not options.get("check"):
        raise ValueError("--compare none needs a --check, which then decides alone")
    if how is Compare.NONE and options.get("expect"):
        raise ValueError("--compare none cannot be used with --expect")
    for each in outputs:
        if how is Compare.ORDERED and not has_order(each):
            raise ValueError(
                f"--compare ordered-by-key: {each} has no order: add ORDER BY, or name a single file"
            )
    return how if outputs else Compare.NONE


def _also(options: Mapping[str, Any]) -> frozenset[str]:
    also = _several(options.get("compare-also"))
    for each in also:
        if each not in ON_DEMAND:
            raise ValueError(f"--compare-also {each}: expected {' or '.join(ON_DEMAND)}")
    if also and options.get("expect"):
        raise ValueError(f"--compare-also {also[0]}: the file of --expect does not contain it")
    return frozenset(also)


def _ignored(options: Mapping[str, Any], expected: Sequence[Record] | None) -> frozenset[str]:
    """The ignored fields. If no expected record has headers, headers are ignored too."""
    ignored = frozenset(_several(options.get("ignore")))
    if expected is not None and not any(each.headers for each in expected):
        ignored |= {ALL_HEADERS}
    return ignored


def _several(said: str | Iterable[str] | None) -> list[str]:
    return [said] if isinstance(said, str) else list(said or ())
