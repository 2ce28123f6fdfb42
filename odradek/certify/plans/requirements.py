"""The requirements of a certificate: the decisive requests of a job, and the faults that can break each of them.

The table `NEEDED` is the one under "What a certificate needs" in docs/certify.md, which gives the reasons. Of the
table, only requests that the reference run contains are required. A requirement (request, fault) is met by one run, in
any phase of a transaction, in which the fault was hit with an effect and the job did not fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.certify.plans import at_services
from odradek.certify.plans.faults import BY_NAME, FAULTS, Reach, applies
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
    "ShareAcknowledge": (
        *(*_DEATHS, "silent-answer", "retriable-error", "freeze", "expire-locks"),
        *("add-instance", "remove-instance"),
    ),
    "ShareFetch": (
        *(*_DEATHS, "abort-input", "kill-between", "retriable-error", "freeze", "expire-locks"),
        *("late-records", "add-instance", "remove-instance"),
    ),
    "ShareGroupHeartbeat": (
        "kill-before",
        "lose-answer",
        "fatal-error",
        "retriable-error",
        "time-out-session",
    ),
    "Fetch": ("abort-input",),
}
"""By API, the names of the faults that can make a job fail there. APIs and faults are in the order in which they are
tried.
"""
DECISIVE: Final = frozenset(NEEDED) - {"Fetch"}
KILLS: Final = frozenset({"kill-before", "kill-after", "kill-all", "kill-between"})
ELSEWHERE: Final = ("kill-between", "freeze-between")
"""Faults required after Fetch for a job that stores its offsets outside Kafka, as it stores them after reading."""


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """A requirement of a certificate: one fault must be tried at one API."""

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
    """The requirements for a job with these moments, in the order in which they are tried: fault by fault.

    If the job commits no offsets to Kafka (or with ``is_elsewhere``), the faults `ELSEWHERE` after Fetch are required
    too.
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
    found += [
        Requirement(on, fault.name)
        for on, members in kinds.items()
        if members[0].service
        for fault in FAULTS
        if fault.name not in left_out
        and fault.reach in reaches
        and any(at_services.is_needed(fault.name, each.on, each.phase) for each in members)
    ]
    return sorted(found, key=_order)


def _order(requirement: Requirement) -> tuple[int, int]:
    """Sort key: first by fault, those that break most jobs first; then by request, services first."""
    at = _REQUEST_ORDER.index(requirement.on) if requirement.on in _REQUEST_ORDER else -1
    return _FAULT_ORDER.index(requirement.fault), at


_REQUEST_ORDER: Final = tuple(NEEDED)
_FAULT_ORDER: Final = (
    *("kill-after", "lose-answer", "abort-input", "kill-before", "silent-answer", "kill-between", "reset"),
    *("server-error", "unavailable", "serialization-failure", "deadlock", "admin-shutdown"),
    *("restart-service", "empty-pool"),
    *("abortable-error", "fatal-error", "freeze", "second-copy", "add-instance", "retriable-error"),
    *("expire-locks", "late-records", "time-out-transaction", "time-out-session", "remove-instance"),
    "freeze-between",
)


def cells_of(requirement: Requirement, cells: Iterable[Cell]) -> Iterator[Cell]:
    """The cells (class of requests, fault) with the API and the fault of the requirement."""
    return (each for each in cells if requirement.is_met_by(each))


def unmet(needed: Sequence[Requirement], clean: Iterable[Cell]) -> list[Requirement]:
    """The requirements (API, fault) in ``needed`` that no cell in ``clean`` meets."""
    said = {(kind.on, fault) for kind, fault in clean}
    return [each for each in needed if (each.on, each.fault) not in said]


def is_slow(requirement: Requirement) -> bool:
    """Whether the requirement's fault makes a client wait for a response that never arrives, until the client gives up."""
    return BY_NAME[requirement.fault].is_slow


# -- clients that wait for a lost response ---------------------------------------------------------------------------------

WAITS_S: Final[Mapping[str, float]] = {
    "librdkafka": 60.0,
    "apache-kafka-java": 30.0,
    "kgo": 10.0,
    "sarama": 30.0,
    "aiokafka": 40.0,
    "kafka-python": 30.0,
    "kafkajs": 30.0,
}
"""Measured time that each client library waits by default for a response that never arrives, in s (docs/certify.md)."""
LONGEST_WAIT_S: Final = 60.0
"""Time assumed for a client library that is not in `WAITS_S`, in seconds."""


def wait_s(clients: Mapping[str, str]) -> float:
    """Estimated duration of a run in which a response never arrives, for these client libraries (name, version)."""
    found = [WAITS_S.get(_library(*each), LONGEST_WAIT_S) for each in clients.items()]
    return max(found, default=LONGEST_WAIT_S)


def _library(name: str, version: str) -> str:
    """The key of a client library in `WAITS_S`.

    Bindings of librdkafka announce their own name, and a version that contains librdkafka's (2.16.1-rdkafka-2.16.0).
    """
    return "librdkafka" if "rdkafka" in f"{name} {version}" else name.lower()


SIDE_BY_SIDE: Final = 3
"""Number of parallel runs in which a response never arrives. They use no CPU."""
