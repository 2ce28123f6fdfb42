"""What a certificate needs: the decisive requests of a job, and the faults that can break each of them.

The table is docs/certify.md's "What a certificate needs", with the reasons. It holds for the requests that the reference run
shows; each pair of request and fault asks for one cell of the matrix (in any phase) that was tried, effective and clean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.certify.plans.faults import BY_NAME, Reach, applies
from odradek.certify.plans.moments import Moment
from odradek.certify.plans.plan import Cell

_DEATHS: Final = ("kill-after", "kill-before", "lose-answer")
_ERRORS: Final = ("abortable-error", "fatal-error", "retriable-error")
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "EndTxn": (
        *(*_DEATHS, "silent-answer", "fatal-error", "retriable-error", "freeze", "time-out-transaction"),
        *("second-copy", "add-instance", "remove-instance"),
    ),
    "TxnOffsetCommit": (
        *(*_DEATHS, "silent-answer", *_ERRORS, "freeze", "time-out-session", "add-instance"),
    ),
    "OffsetCommit": (
        *(*_DEATHS, "silent-answer", "fatal-error", "retriable-error", "freeze", "time-out-session"),
        *("second-copy", "add-instance", "remove-instance"),
    ),
    "Produce": (*_DEATHS, "silent-answer", *_ERRORS, "freeze", "time-out-transaction"),
    "InitProducerId": (*_DEATHS, "silent-answer", "fatal-error", "retriable-error"),
    "AddPartitionsToTxn": (*_DEATHS, *_ERRORS),
    "AddOffsetsToTxn": (*_DEATHS, *_ERRORS),
    "JoinGroup": ("kill-before", "lose-answer", "retriable-error"),
    "SyncGroup": ("kill-after", "lose-answer", "fatal-error"),
    "ConsumerGroupHeartbeat": ("kill-before", "lose-answer", "fatal-error", "retriable-error"),
    "Heartbeat": ("fatal-error", "time-out-session"),
    "OffsetFetch": ("kill-before", "lose-answer", "retriable-error"),
    "Fetch": ("abort-input",),
}
"""The faults that can break a request. Both in the order in which they are tried."""
DECISIVE: Final = frozenset(NEEDED) - {"Fetch"}
KILLS: Final = frozenset({"kill-before", "kill-after", "kill-all", "kill-between"})
ELSEWHERE: Final = ("kill-between", "freeze-between")
"""Needed at Fetch of a job whose positions are not in Kafka: what decides lies behind the records that it reads."""


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """One fault at one decisive request."""

    on: str
    fault: str

    def __str__(self) -> str:
        return f"{self.fault} at {self.on}"

    def is_met_by(self, cell: Cell) -> bool:
        kind, fault = cell
        return kind.on == self.on and fault == self.fault


def required(
    moments: Iterable[Moment],
    nodes: int,
    reaches: Collection[Reach],
    left_out: Collection[str] = (),
    *,
    is_elsewhere: bool = False,
) -> list[Requirement]:
    """What a certificate of a job with these moments needs, in the order in which it is tried: fault by fault.

    Without a decisive commit in Kafka (``is_elsewhere``) the instants behind the records that the job reads are needed too.
    """
    kinds: dict[str, list[Moment]] = {}
    for moment in moments:
        if not moment.is_step:
            kinds.setdefault(moment.on, []).append(moment)
    table = dict(NEEDED)
    if is_elsewhere or not ({"TxnOffsetCommit", "OffsetCommit"} & kinds.keys()):
        table["Fetch"] += ELSEWHERE
    found = [
        Requirement(on, name)
        for on, names in table.items()
        for name in names
        if name not in left_out
        and BY_NAME[name].reach in reaches
        and any(applies(BY_NAME[name], each, nodes) for each in kinds.get(on, ()))
    ]
    return sorted(found, key=_order)


def _order(requirement: Requirement) -> tuple[int, int]:
    """Each fault at each request, the faults that break most first."""
    return _FAULT_ORDER.index(requirement.fault), _REQUEST_ORDER.index(requirement.on)


_REQUEST_ORDER: Final = tuple(NEEDED)
_FAULT_ORDER: Final = (
    *("kill-after", "lose-answer", "abort-input", "kill-before", "silent-answer", "kill-between"),
    *("abortable-error", "fatal-error", "freeze", "second-copy", "add-instance", "retriable-error"),
    *("time-out-transaction", "time-out-session", "remove-instance", "freeze-between"),
)


def cells_of(requirement: Requirement, cells: Iterable[Cell]) -> Iterator[Cell]:
    """The cells of the matrix that can meet it."""
    return (each for each in cells if requirement.is_met_by(each))


def unmet(needed: Sequence[Requirement], clean: Iterable[Cell]) -> list[Requirement]:
    """Those that none of these cells meets."""
    said = {(kind.on, fault) for kind, fault in clean}
    return [each for each in needed if (each.on, each.fault) not in said]


def is_slow(requirement: Requirement) -> bool:
    """A run of it lasts as long as a client waits for a response that never comes."""
    return BY_NAME[requirement.fault].is_slow


# -- clients that wait -----------------------------------------------------------------------------------------------------

WAITS_S: Final[Mapping[str, float]] = {
    "librdkafka": 60.0,
    "apache-kafka-java": 30.0,
    "kgo": 10.0,
    "sarama": 30.0,
    "aiokafka": 40.0,
    "kafka-python": 30.0,
    "kafkajs": 30.0,
}
"""How long each client library waits for a response that never comes, by its defaults, measured (docs/certify.md)."""
LONGEST_WAIT_S: Final = 60.0
"""Of a client that the table does not have."""


def wait_s(clients: Mapping[str, str]) -> float:
    """How long a run lasts whose response never comes, by the client libraries (name, version) that the job uses."""
    found = [WAITS_S.get(_library(*each), LONGEST_WAIT_S) for each in clients.items()]
    return max(found, default=LONGEST_WAIT_S)


def _library(name: str, version: str) -> str:
    """Bindings of librdkafka have a name of their own, and its version in theirs (2.16.1-rdkafka-2.16.0)."""
    return "librdkafka" if "rdkafka" in f"{name} {version}" else name.lower()


SIDE_BY_SIDE: Final = 3
"""Runs that wait for a response that never comes, at once, beside the others: they cost no CPU."""
