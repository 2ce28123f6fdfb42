"""What all actors (clients that run at the same time) of a chaos run share: topics, groups, random transactions."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from random import Random

from odradek.deadlines import stretched
from tests.chaos.checks import Moved
from tests.chaos.history import History, Place, Send, Transaction

TRANSFERS, ACKNOWLEDGED, SOURCE, SINK, SOLO_SINK = "transfers", "acknowledged", "source", "sink", "solo-sink"
PARTITIONS = {TRANSFERS: 4, ACKNOWLEDGED: 2, SOURCE: 3, SINK: 3, SOLO_SINK: 3}
WORKERS, SOLO = "workers", "solo"
JOBS = (Moved(WORKERS, SOURCE, SINK), Moved(SOLO, SOURCE, SOLO_SINK))

TRANSACTION_TIMEOUT_MS = 60_000
RECORDS_PER_TRANSACTION = (1, 6)
ABORTS = 0.25
PAUSE_S = (0.0, 0.06)
"""Range of the seconds between two transactions."""
CALL_S = stretched(10.0)
"""Seconds for one call of a client library, which may retry inside."""


@dataclass
class Stage:
    """The state of a run that its actors (clients) share. Once ``ending`` is set, actors begin no new transaction."""

    bootstrap: str
    history: History
    seed: int
    ending: threading.Event = field(default_factory=threading.Event)
    given_up: threading.Event = field(default_factory=threading.Event)
    """Set when an actor has not finished in time: calls must no longer be retried."""

    def rng(self, who: str) -> Random:
        """Random number generator of one actor, which does not depend on the other actors."""
        return Random(f"{self.seed} {who}")

    def note(self, who: str, text: object) -> None:
        self.history.notes.append(f"{who}: {text}")


def drawn_transaction(rng: Random, who: str, number: int) -> Transaction:
    """A random transaction: the records to send, and whether to commit it."""
    count = rng.randint(*RECORDS_PER_TRANSACTION)
    places = [Place(TRANSFERS, rng.randrange(PARTITIONS[TRANSFERS])) for _ in range(count)]
    return Transaction(who, [Send(who, f"{who}/{number}/{k}", place) for k, place in enumerate(places)])
