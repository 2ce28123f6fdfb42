"""The user's description of a job: topics, input, command, the condition for its end, and the expected outputs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from odradek.certify.jobs.command import Command
from odradek.certify.jobs.restarts import ALWAYS, ON_FAILURE, Restart
from odradek.certify.judging.comparison import Compare
from odradek.certify.runs.until import Until as Until
from odradek.certify.services.specs import Feed, ServiceOutput, StageSpec, is_service
from odradek.topics import Record

DEADLINE_FACTOR: Final = 5.0
PATIENCE_S: Final = 10.0
LONGEST_S: Final = 60.0


class Delivery(Enum):
    """How often each record of the input may have an effect; the values are those of ``--delivery``."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


@dataclass(frozen=True, slots=True)
class Seed:
    """One input record, written before the job starts. Aborted records are placed between the others."""

    topic: str
    value: str | None
    key: str | None = None
    partition: int | None = None
    aborted: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """The description of a job."""

    command: Command
    outputs: tuple[str, ...]
    """The topics that the job writes."""
    topics: tuple[str, ...] = ()
    """Topics in the format of ``odradek serve``: ``in:4``."""
    seeds: tuple[Seed, ...] = ()
    instances: int = 1
    restarts: Restart | None = None
    """Restart policy; None for the default of `until`."""
    grace_s: float | None = None
    """Seconds from SIGTERM to SIGKILL at the end of a run. None: 0.5, but 0 after a run whose job took longer."""
    until: Until = field(default_factory=Until)
    compare: Compare = Compare.ROWS
    compare_also: frozenset[str] = frozenset()
    """A subset of `rows.ON_DEMAND`."""
    ignored: frozenset[str] = frozenset()
    nodes: int = 1
    upstream: str = ""
    """Addresses of a cluster to put a proxy in front of; if empty, a broker of our own is started."""
    settings: Mapping[str, object] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of groups: group -> name -> value."""
    delivery: Delivery | None = None
    """The promise that is examined; None: at least once for an input that a share group consumes, otherwise exactly once."""
    may_reject: bool = False
    """Whether outputs may be missing whose input the job rejected, or whose input reached the delivery limit."""
    expected: tuple[Record, ...] | None = None
    """The expected outputs; None if a run without faults determines them."""
    check: str | None = None
    """A command that gets the outputs as NDJSON, and whose exit code shows whether they are correct."""
    stages: tuple[StageSpec, ...] = ()
    """Services besides Kafka, each behind a proxy."""
    service_outputs: tuple[ServiceOutput, ...] = ()
    """Outputs that are not topics."""
    feeds: tuple[Feed, ...] = ()
    """Inputs that are not topics."""
    left_out: frozenset[str] = frozenset()
    """Faults that are not tried."""
    patience_s: float | None = None
    """A run is stuck if the job requests no change for this time plus the duration of a reference run, in seconds.

    None for `PATIENCE_S`, plus the timeouts of the job's clients if the cluster's clock cannot be advanced.
    """

    def restart(self, until: Until) -> Restart:
        """The restart policy for runs that wait for ``until``.

        If a run waits for the job's exit, or may select that condition, an instance with exit code 0 is not restarted.
        """
        if self.restarts is not None:
            return self.restarts
        return ON_FAILURE if until.what in ("exit", "auto") else ALWAYS

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of all outputs in findings: topics, then the labels of the others."""
        return *self.outputs, *(each.label for each in self.service_outputs)

    @property
    def inputs(self) -> frozenset[str]:
        return frozenset(each.topic for each in self.seeds)

    def deadline_s(self, reference_s: float) -> float:
        """Maximum duration of a run in seconds. A run that takes longer is stuck."""
        return LONGEST_S + DEADLINE_FACTOR * reference_s


def read_seeds(topic: str, path: Path) -> list[Seed]:
    """Read NDJSON with one record per line. An object with a ``value`` may have ``key``, ``partition`` and ``aborted``.

    Any other line is itself the value. Raises ``ValueError`` with the number of an invalid line.
    """
    return [
        Seed(topic, value, key, said.get("partition"), bool(said.get("aborted", False)))
        for _, value, key, said in _lines(path)
    ]


def read_expected(path: Path, outputs: Sequence[str]) -> tuple[Record, ...]:
    """Read the expected outputs in the format of ``read_seeds``, with ``headers`` as a list of pairs.

    If there are several outputs, each record has a ``topic``. A row of a service or of files is its JSON value; the key is
    the first column, unless there is another one.
    """
    found = []
    for place, value, key, said in _lines(path):
        topic = said.get("topic", outputs[0] if len(outputs) == 1 else None)
        if topic not in outputs:
            raise ValueError(f"{place}: the topic must be one of {', '.join(outputs)}, not {topic}")
        if is_service(topic):
            from odradek.certify.services.values import parsed_row

            if not said.keys() <= {"topic", "key", "value"}:  # a column that is named value
                value, key = json.dumps(said), None
            found.append(parsed_row(topic, value or "null", key))
            continue
        found.append(Record(topic, -1, -1, -1, key, value, _headers(place, said), -1, -1, False, None))
    return tuple(found)


def _headers(place: str, said: Mapping[str, Any]) -> tuple[tuple[str, str | None], ...]:
    headers = said.get("headers") or []
    if not isinstance(headers, list) or not all(
        isinstance(each, list) and len(each) == 2 for each in headers
    ):
        raise ValueError(f'{place}: headers must be pairs: [["name", "value"]]')
    return tuple((str(name), _text(value)) for name, value in headers)


def _lines(path: Path) -> Iterator[tuple[str, str | None, str | None, Mapping[str, Any]]]:
    """Yield (file:line, value, key, the whole object) for each line."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: not JSON: {error}") from None
        if isinstance(found, Mapping) and "value" in found:
            yield f"{path}:{number}", _text(found["value"]), _text(found.get("key")), found
        else:
            yield f"{path}:{number}", found if isinstance(found, str) else line, None, {}


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
