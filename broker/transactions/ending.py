"""Carries out what the end of a transaction takes (`broker.transactions.effects`), effect by effect.

An effect that waits (for a commit, for time) goes on with the rest of its list in a callback. On one node without
``flush.messages`` nothing waits: Prepare, markers, Complete and the response are one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from broker.clock import Clock, Domain
from broker.injection.crash import crash_point
from broker.transactions import state as rules
from broker.transactions.callback_errors import Done
from broker.transactions.effects import Complete, Effect, Prepare, Respond, WriteMarkers
from broker.transactions.markers import RETRY_BACKOFF_MS, TransactionMarkerManager, completion_of
from broker.transactions.remote_markers import PendingCompleteTxn
from broker.transactions.shard import Entry, TransactionShard
from broker.transactions.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, Transaction, Transition
from protocol.errors import NONE, ErrorCode
from protocol.named_tuple import NamedTuple

PREPARE_APPEND: Final = "txn.prepare.append"
COMPLETE_APPEND: Final = "txn.complete.append"


class Log(Protocol):
    """How states get into ``__transaction_state`` (`TransactionCoordinator`)."""

    def persist(
        self,
        shard: TransactionShard,
        entry: Entry,
        transition: Transition,
        done: Done,
        then: Callable[[], object],
        point: str,
    ) -> None:
        """Append, install once committed, go on with ``then``; a failure is ``done``'s."""
        ...

    def append(
        self, shard: TransactionShard, txn: Transaction, point: str, appended: Callable[[ErrorCode], object]
    ) -> None: ...


class End(NamedTuple):
    """One transaction on its way to its end. It knows nothing of its markers: no cycle for the garbage collector."""

    shard: TransactionShard
    entry: Entry
    respond: Done


class Ending:
    """The runner: of all transactions that end here."""

    def __init__(self, log: Log, markers: TransactionMarkerManager, clock: Clock) -> None:
        self._log = log
        self._markers = markers
        self._clock = clock

    def run(self, end: End, effects: Sequence[Effect], completion: PendingCompleteTxn | None = None) -> None:
        """``completion``: the markers of the transaction, from its decision on."""
        # isinstance: the patterns of a match statement cost three times as much, and this is every commit.
        for position, effect in enumerate(effects, 1):
            if isinstance(effect, Prepare):
                self._prepare(end, effect.transition, effects[position:])
                return
            if isinstance(effect, WriteMarkers):
                self._markers.start(self._followed(completion or decided(end), end, effect.then))
            elif isinstance(effect, Respond):
                end.respond(effect.answer)
            elif isinstance(effect, Complete):
                assert completion is not None, "behind its markers"
                self._complete(end, completion)
            else:
                rest = partial(self.run, end, effects[position:], completion)
                self._clock.call_later_ms(effect.delay_ms, rest, Domain.TRANSACTIONS)
                return

    def completion(self, end: End, then: Sequence[Effect]) -> PendingCompleteTxn:
        """The markers of a transaction that was decided before, and what follows them."""
        return self._followed(decided(end), end, then)

    def _followed(
        self, completion: PendingCompleteTxn, end: End, then: Sequence[Effect]
    ) -> PendingCompleteTxn:
        completion.then = partial(self.run, end, then)
        return completion

    def _prepare(self, end: End, transition: Transition, rest: Sequence[Effect]) -> None:
        def committed() -> None:
            crash_point("txn.prepare.after")
            self.run(end, rest, decided(end))

        crash_point("txn.prepare.before")
        self._log.persist(end.shard, end.entry, transition, end.respond, committed, PREPARE_APPEND)

    def _complete(self, end: End, completion: PendingCompleteTxn) -> None:
        if not completion.is_wanted():
            return
        entry, after = end.entry, rules.complete(end.entry.txn, self._clock.now_ms())

        def appended(error: ErrorCode) -> None:
            if error is NONE:
                entry.pending, entry.failed_fence = None, False
                end.shard.install(entry, after)
                crash_point("txn.complete.after")
            elif error is ErrorCode.coordinator_not_available:
                again = partial(self._complete, end, completion)
                self._clock.call_later_ms(RETRY_BACKOFF_MS, again, Domain.REQUESTS)
            # else: another node coordinates the partition now and finishes the transaction from its log

        crash_point("txn.complete.before")
        self._log.append(end.shard, after, COMPLETE_APPEND, appended)


def decided(end: End) -> PendingCompleteTxn:
    """From here until CompleteX is committed the id answers CONCURRENT_TRANSACTIONS."""
    completion = completion_of(end.shard, end.entry)
    end.entry.remaining = completion.remaining
    end.entry.pending = COMPLETE_COMMIT if completion.marker.committed else COMPLETE_ABORT
    return completion
