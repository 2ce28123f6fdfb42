"""The records that clients sent and consumed in a run, for the final checks. Threads append to a history during the run."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """The client failed without learning the outcome."""


class Place(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Seen(NamedTuple):
    """One record that a consumer got."""

    offset: int
    value: str


@dataclass
class Send:
    """One record that was passed to a producer. Every value is unique in the run."""

    who: str
    """Name of the producer instance, whose records in one partition must stay in order."""
    value: str
    place: Place
    offset: int | None = None
    """Offset in the acknowledgement, None without one."""


@dataclass
class Transaction:
    who: str
    sends: list[Send] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN


@dataclass
class View:
    """Records that one consumer got, in the order of their arrival."""

    who: str
    committed_only: bool
    seen: defaultdict[Place, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    """Errors that no consumer may get."""


@dataclass
class History:
    transactions: list[Transaction] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    """Records of idempotent producers, outside transactions."""
    views: list[View] = field(default_factory=list)
    fatal: list[str] = field(default_factory=list)
    """Fatal errors of producers."""
    notes: list[str] = field(default_factory=list)
    """Events of the run, for a human reader."""


@dataclass
class End:
    """The state after a run, read by new clients."""

    committed: dict[Place, list[Seen]] = field(default_factory=dict)
    everything: dict[Place, list[Seen]] = field(default_factory=dict)
    positions: dict[tuple[str, Place], int] = field(default_factory=dict)
    """Committed offset by group and partition, 0 if there is none."""
    stable_and_high: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """(last stable offset, high watermark) of each partition."""


def to_json(history: History, end: End | None) -> str:
    """The run as JSON, for a human who looks for the cause of a violation."""
    return json.dumps(
        {
            "transactions": [
                {"who": one.who, "outcome": one.outcome.value, "sends": [_send(send) for send in one.sends]}
                for one in history.transactions
            ],
            "sends": [_send(send) for send in history.sends],
            "views": [
                {"who": view.who, "errors": view.errors, "seen": {str(k): v for k, v in view.seen.items()}}
                for view in history.views
            ],
            "fatal": history.fatal,
            "notes": history.notes,
            "end": None if end is None else _end(end),
        },
        indent=1,
    )


def _send(send: Send) -> list[Any]:
    return [send.who, send.value, str(send.place), send.offset]


def _end(end: End) -> dict[str, Any]:
    return {
        "committed": {str(place): seen for place, seen in end.committed.items()},
        "everything": {str(place): seen for place, seen in end.everything.items()},
        "positions": {f"{group} {place}": at for (group, place), at in end.positions.items()},
        "stable_and_high": {str(place): both for place, both in end.stable_and_high.items()},
    }
