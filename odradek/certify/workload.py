"""What a user says about a job: its topics, its input, its command, when it is done, and what is right."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from odradek.certify.jobs.command import Command
from odradek.certify.jobs.restarts import ALWAYS, ON_FAILURE, Restart
from odradek.certify.judging.comparison import Compare
from odradek.certify.runs.until import Until as Until
from odradek.topics import Record

DEADLINE_FACTOR: Final = 5.0
PATIENCE_S: Final = 10.0
LONGEST_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Seed:
    """One record of the input, before the job runs. An aborted one lies between the others, for read_uncommitted readers."""

    topic: str
    value: str | None
    key: str | None = None
    partition: int | None = None
    aborted: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """All of it."""

    command: Command
    outputs: tuple[str, ...]
    topics: tuple[str, ...] = ()
    """As for ``odradek serve``: ``in:4``."""
    seeds: tuple[Seed, ...] = ()
    instances: int = 1
    restarts: Restart | None = None
    """None: what `until` asks for."""
    grace_s: float | None = None
    """What instances get at the end of a run from SIGTERM to SIGKILL. None: half a second, where the job reacts."""
    until: Until = field(default_factory=Until)
    compare: Compare = Compare.ROWS
    compare_also: frozenset[str] = frozenset()
    """A part of `rows.ON_DEMAND`."""
    ignored: frozenset[str] = frozenset()
    nodes: int = 1
    upstream: str = ""
    """Addresses of a cluster before which a proxy is put; without them a broker of Odradek's is started."""
    settings: Mapping[str, object] = field(default_factory=dict)
    expected: tuple[Record, ...] | None = None
    """What the outputs are to hold; without it what they hold without faults."""
    check: str | None = None
    """A command that gets the outputs as NDJSON, and says by its exit code whether they are right."""
    left_out: frozenset[str] = frozenset()
    """Faults that are not tried."""
    patience_s: float | None = None
    """A run in which the job asks for no change that long, beyond the time of a reference run, is stuck. None: `PATIENCE_S`,
    and where the cluster's time cannot be moved the time-outs of the job's clients too."""

    def restart(self, until: Until) -> Restart:
        """What a supervisor does with an instance that has ended. Where a run waits for its exit, code 0 is its end; and
        where it is not known yet what to wait for, it may be."""
        if self.restarts is not None:
            return self.restarts
        return ON_FAILURE if until.what in ("exit", "auto") else ALWAYS

    @property
    def inputs(self) -> frozenset[str]:
        return frozenset(each.topic for each in self.seeds)

    def deadline_s(self, reference_s: float) -> float:
        """A run that takes longer is stuck, whatever it does."""
        return LONGEST_S + DEADLINE_FACTOR * reference_s


def read_seeds(topic: str, path: Path) -> list[Seed]:
    """NDJSON: each line a record. An object with a ``value`` may have ``key``, ``partition`` and ``aborted``; any other line
    is the value itself. ``ValueError`` names the line that is wrong."""
    return [
        Seed(topic, value, key, said.get("partition"), bool(said.get("aborted", False)))
        for _, value, key, said in _lines(path)
    ]


def read_expected(path: Path, outputs: Sequence[str]) -> tuple[Record, ...]:
    """As ``read_seeds``, with the name of the output as ``topic`` where there are several; ``headers`` are pairs."""
    found = []
    for place, value, key, said in _lines(path):
        topic = said.get("topic", outputs[0] if len(outputs) == 1 else None)
        if topic not in outputs:
            raise ValueError(f"{place}: the topic is one of {', '.join(outputs)}, not {topic}")
        found.append(Record(topic, -1, -1, -1, key, value, _headers(place, said), -1, -1, False, None))
    return tuple(found)


def _headers(place: str, said: Mapping[str, Any]) -> tuple[tuple[str, str | None], ...]:
    headers = said.get("headers") or []
    if not isinstance(headers, list) or not all(
        isinstance(each, list) and len(each) == 2 for each in headers
    ):
        raise ValueError(f'{place}: headers are pairs: [["name", "value"]]')
    return tuple((str(name), _text(value)) for name, value in headers)


def _lines(path: Path) -> Iterator[tuple[str, str | None, str | None, Mapping[str, Any]]]:
    """Place, value and key of each line, and all that it says."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: no JSON: {error}") from None
        if isinstance(found, Mapping) and "value" in found:
            yield f"{path}:{number}", _text(found["value"]), _text(found.get("key")), found
        else:
            yield f"{path}:{number}", found if isinstance(found, str) else line, None, {}


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
