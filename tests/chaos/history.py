"""What clients did and saw in a run, to be judged afterwards. Meanwhile many threads append to it, and no more."""

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
    """The client failed before it knew."""


class Place(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Seen(NamedTuple):
    """One record, as a reader was given it."""

    offset: int
    value: str


@dataclass
class Send:
    """One record, from the moment it was handed to the client. Values are unlike each other in the whole run."""

    who: str
    """One instance of a producer: what it sends to a partition stays in that order."""
    value: str
    place: Place
    offset: int | None = None
    """Once it was acknowledged."""


@dataclass
class Transaction:
    who: str
    sends: list[Send] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN


@dataclass
class View:
    """What one reader has read, in that order."""

    who: str
    committed_only: bool
    seen: defaultdict[Place, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    """Of the kind that no reader should meet."""


@dataclass
class History:
    transactions: list[Transaction] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    """Outside transactions: of idempotent producers."""
    views: list[View] = field(default_factory=list)
    fatal: list[str] = field(default_factory=list)
    """Clients that could go on no more with the producer that they had."""
    notes: list[str] = field(default_factory=list)
    """What went on, for people."""


@dataclass
class End:
    """What is there when all is over, read by clients that came late."""

    committed: dict[Place, list[Seen]] = field(default_factory=dict)
    everything: dict[Place, list[Seen]] = field(default_factory=dict)
    positions: dict[tuple[str, Place], int] = field(default_factory=dict)
    """What each group has committed; 0 where it has nothing."""
    stable_and_high: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Last stable offset and high watermark of each partition."""


def to_json(history: History, end: End | None) -> str:
    """For people who look for what went wrong."""
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
