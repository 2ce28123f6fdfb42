"""Records that a read_committed reader did not return: aborted ones, and those above the last stable offset."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from odradek.commands.waiting import rule_that_holds
from odradek.deadlines import stretched
from odradek.errors import OdradekError
from odradek.pending import NOTICES_S
from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.fetching import Reader
from tools.client.transactions import Transaction, describe_producers, list_transactions
from tools.control import Ages, control_of
from tools.text import time_text

LOOK_S: Final = stretched(2.0)
"""Timeout of the queries for the transactions' owners, in seconds."""
SHOWN_MAX: Final = 10
"""Maximum number of partitions with a sentence of their own."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """The number of aborted records that readers of one partition skipped, and the last stable offset at which they stop."""

    topic: str
    partition: int
    aborted: int = 0
    stable: int = -1
    end: int = -1
    """The high watermark. ``stable`` and ``end`` are from the last response."""
    producer_id: int = -1
    """Producer id of the transaction that begins at ``stable``; -1 if unknown."""
    known: Transaction | None = None
    """The transaction that begins at ``stable``, as reported by its coordinator; None if unknown."""
    future: str = ""
    """How far in the future the transaction at ``stable`` began, as text; empty if not in the future."""
    cause: str = ""
    """The fault rule that holds the end of the transaction at ``stable``, as text; empty if there is none."""

    @property
    def where(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def stops(self) -> bool:
        """Whether there are records above the last stable offset."""
        return self.end > self.stable

    def sentences(self) -> list[str]:
        """Sentences for stderr; empty if all records were returned."""
        where, found = self.where, []
        if self.aborted:
            found.append(
                f"{where}: {self.aborted} aborted record{'s are' if self.aborted > 1 else ' is'} not shown"
            )
        if self.stops:
            more = self.cause or f"`odradek explain {self.topic}/{self.partition}` explains it"
            found.append(
                f"{where}: readers stop at offset {self.stable} of {self.end}: {self._transaction()} begins there; {more}"
            )
        return found

    def _transaction(self) -> str:
        if self.producer_id < 0:
            return "a transaction without a marker"
        name = f"producer {self.producer_id}" + (f" ({self.known.transactional_id})" if self.known else "")
        if self.known is None or self.known.start_ms is None:
            return f"a transaction of {name} without a marker"
        if self.known.state == "Ongoing":
            since = f"open since {time_text(self.known.start_ms)},"
            return f"a transaction of {name}, {since}{self.future and f' {self.future},'}"
        return f"a transaction of {name}, in {self.known.state} and without its marker,"


def hidden_from(readers: Iterable[Reader]) -> list[Hidden]:
    """The records that these readers skipped, and the offsets at which they stop, according to their last responses."""
    found = [
        Hidden(
            each.topic,
            each.partition,
            each.aborted,
            # A reader that has not reached the end does not know the current end offsets.
            *((each.stable, each.high_watermark) if each.at_end else ()),
        )
        for each in readers
    ]
    return [each for each in found if each.aborted or each.stops]


class Stops:
    """The notices of ``--follow``: that no record came for 2 s, or that a reader has stopped at an offset for 2 s.

    Each notice is printed once.
    """

    def __init__(self) -> None:
        self.shown = False
        """Whether a record was printed, or the notice that no record came."""
        self._begun: float | None = None
        self._since: dict[tuple[str, int, int], float] = {}
        self._told: set[tuple[str, int, int]] = set()

    def is_idle(self, now: float) -> bool:
        """Whether there was no record for 2 s since the first call. True at most once."""
        if self._begun is None:
            self._begun = now
        idle = not self.shown and now - self._begun >= NOTICES_S[0]
        self.shown = self.shown or idle
        return idle

    def new(self, hidden: Iterable[Hidden], now: float) -> list[Hidden]:
        """The readers' stops to report now, each only once; ``now`` is monotonic, in seconds."""
        found = []
        for each in hidden:
            place = (each.topic, each.partition, each.stable)
            since = self._since.setdefault(place, now)
            if each.stops and now - since >= NOTICES_S[0] and place not in self._told:
                self._told.add(place)
                found.append(replace(each, aborted=0))
        return found


def with_owners(cluster: Cluster, hidden: Iterable[Hidden]) -> list[Hidden]:
    """Add the transactions at which readers stop, as far as the cluster responds within ``LOOK_S``."""
    found = list(hidden)
    if not any(each.stops for each in found):
        return found
    with suppress(ToolError), cluster.within(LOOK_S):
        for index, each in enumerate(found[:SHOWN_MAX]):
            if each.stops:
                found[index] = _with_owner(cluster, each)
    return _with_causes(cluster, found)


def _with_owner(cluster: Cluster, at: Hidden) -> Hidden:
    for each in describe_producers(cluster, at.topic, at.partition):
        if each.current_txn_start_offset == at.stable:
            known = list_transactions(cluster, producer_ids=[each.producer_id], missing=[])
            return replace(at, producer_id=each.producer_id, known=known[0] if known else None)
    return at


def _with_causes(cluster: Cluster, found: list[Hidden]) -> list[Hidden]:
    with suppress(ToolError, OdradekError):
        ages = Ages(cluster)
        found = [replace(each, future=ages.future(each.known)) if each.known else each for each in found]
        remote = control_of(cluster)
        if remote is not None:
            rules = remote.client.get("/v1/faults", timeout_s=LOOK_S)["faults"]
            return [
                replace(each, cause=rule_that_holds([each.known.transactional_id], rules, [each.where]))
                if each.known
                else each
                for each in found
            ]
    return found


def sentences(hidden: list[Hidden]) -> list[str]:
    """Sentences about each of the first ``SHOWN_MAX`` partitions, and one sentence that sums up all others."""
    found = [sentence for each in hidden[:SHOWN_MAX] for sentence in each.sentences()]
    if len(hidden) > SHOWN_MAX:
        rest = hidden[SHOWN_MAX:]
        aborted = sum(each.aborted for each in rest)
        stops = sum(each.stops for each in rest)
        found.append(f"{len(rest)} more partitions: {aborted} aborted records, {stops} where readers stop")
    return found
