"""The state of a sink, for its user. The functions may be called in any process, and while a query runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from odradek.spark.sink import plan
from odradek.spark.sink.decision_record import Entry, Phase, SinkState
from odradek.spark.sink.options import SinkOptions
from odradek.spark.sink.store import Store
from odradek.spark.wire import Cluster, Partition, ProducerId, Retriable, TransactionState

_UNSTABLE = "UNSTABLE_OFFSET_COMMIT"
_COMMITTED = ("PrepareCommit", "CompleteCommit")
# If batches end while their transactions are being read, read again, at most this number of times.
_LOOKS_MAX = 5


@dataclass(frozen=True)
class Decision:
    """The last decision of a sink.

    ``batch``: the last decided batch, -1 if there is none; it has ``rows`` rows and was decided at ``decided_at``
    (UTC). ``phase``: ``"decided"``, or ``"planning"`` while a later batch is being written (or has failed).
    ``plan`` is the number of the last plan; ``run`` is the number of the plan that chose the tasks' transactional
    ids (a plan chooses new ones after a failed plan); ``decision`` is the number of the plan of the last decision,
    for the option ``firstBatch``. ``transactions``: transactional id and producer of each transaction of the
    decision; while ``phase`` is ``"planning"``, of those that could not be committed (normally none).
    """

    name: str
    batch: int
    phase: str
    query_id: str
    run: int
    plan: int
    decision: int
    rows: int
    decided_at: datetime | None
    transactions: tuple[tuple[str, ProducerId], ...]


def progress(options: Mapping[str, str]) -> Decision | None:
    """Read the decision record of the sink with these options (those of the query); None if the sink has none.

    A sink has a decision record from its first plan on, which comes before the first decision. The call changes nothing
    and may be made while the query runs. It waits while a decision is being committed."""
    read = SinkOptions.of(options)
    with Cluster(read.client) as cluster:
        record = Store(cluster, read.protocol.name, read.protocol.topic).read()
    return None if record is None else _decision(read.protocol.name, record)


def _decision(name: str, record: SinkState) -> Decision:
    decided = record.decided
    at = datetime.fromtimestamp(record.decided_at_ms / 1000, UTC) if record.decided_at_ms else None
    return Decision(
        name=name,
        batch=record.next_batch - 1,
        phase="decided" if record.phase is Phase.DECIDED else "planning",
        query_id=record.query_id,
        run=record.run,
        plan=record.plan,
        decision=record.decision,
        rows=record.content.rows,
        decided_at=at,
        transactions=tuple(decided.transactions(name)) if decided else (),
    )


@dataclass(frozen=True)
class SinkTransaction:
    """A transaction of a sink. ``state``: ``"open"``, ``"aborted"``, or ``"expired"`` if its coordinator has removed the id.

    ``partitions``: the partitions that the transaction wrote to, as far as known. ``since``: its start (UTC), if it is open.
    """

    transactional_id: str
    state: str
    partitions: tuple[Partition, ...]
    since: datetime | None = None


@dataclass(frozen=True)
class Status:
    """The state of a sink. ``decision``: as `progress` returns it; None while ``deciding``, or if no batch was ever planned.

    ``deciding``: a driver's transaction is open, and the record cannot be read until it ends. ``half_committed``: the
    transactions of the last decided batch that are not committed yet; consumers see the batch without them. ``others``: the
    other open transactions, of a batch that is being written or of a query that has ended. ``read_committed`` consumers get
    no record behind an open transaction."""

    name: str
    decision: Decision | None
    deciding: bool
    half_committed: tuple[SinkTransaction, ...]
    others: tuple[SinkTransaction, ...]


def status(options: Mapping[str, str]) -> Status:
    """Return the state of the sink with these options (those of the query).

    The call changes nothing, and may be made at any time. While a decision is being committed, the call waits for up to
    ``kafka.delivery.timeout.ms``.
    """
    read = SinkOptions.of(options)
    with Cluster(read.client) as cluster:
        return _status(cluster, read.protocol)


def _status(cluster: Cluster, settings: plan.Settings) -> Status:
    store = Store(cluster, settings.name, settings.topic)
    for _ in range(_LOOKS_MAX):
        record, deciding = _read(store)
        found = _look(cluster, settings.name, record, deciding)
        # A later plan may have committed these transactions and handed out their ids again since the record was read.
        if not found.half_committed or _read(store) == (record, deciding):
            return found
    raise Retriable(
        "CONCURRENT_TRANSACTIONS",
        f"The sink {settings.name} decides batches faster than their transactions can be read: try again.",
    )


def _read(store: Store) -> tuple[SinkState | None, bool]:
    """The decision record, and whether it cannot be read (is None) because a driver's transaction is open."""
    try:
        return store.read(), False
    except Retriable as error:
        if error.code != _UNSTABLE:
            raise
        return None, True


def _look(cluster: Cluster, name: str, record: SinkState | None, deciding: bool) -> Status:
    decided = record.decided if record is not None else None
    counted = [each for each, _ in decided.transactions(name)] if decided is not None else []
    left = plan.list_ongoing(cluster, name)
    known = cluster.describe_transactions({*counted, *left})
    entries = zip(counted, decided.entries, strict=True) if decided is not None else ()
    half = (_outcome(each, entry, known[each]) for each, entry in entries)
    return Status(
        name=name,
        decision=None if record is None else _decision(name, record),
        deciding=deciding,
        half_committed=tuple(each for each in half if each is not None),
        others=_open(known, set(left) - set(counted)),
    )


def _outcome(transactional_id: str, entry: Entry, known: TransactionState | None) -> SinkTransaction | None:
    """The state of a decided transaction; None if it is committed."""
    if known is None:
        return SinkTransaction(transactional_id, "expired", entry.partitions)
    if known.producer == entry.producer and known.state in _COMMITTED:
        return None
    if known.producer == entry.producer and known.state == "Ongoing":
        partitions = entry.partitions or known.partitions
        return SinkTransaction(transactional_id, "open", partitions, _time(known.started_at_ms))
    return SinkTransaction(transactional_id, "aborted", entry.partitions)


def _open(known: Mapping[str, TransactionState | None], ids: Iterable[str]) -> tuple[SinkTransaction, ...]:
    described = [(each, known[each]) for each in sorted(ids)]
    return tuple(
        SinkTransaction(each, "open", state.partitions, _time(state.started_at_ms))
        for each, state in described
        # The transaction may have ended between the two requests.
        if state is not None and state.state == "Ongoing"
    )


def _time(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if ms > 0 else None


@dataclass(frozen=True)
class Resolution:
    """The result of ``resolve``.

    ``aborted``: the open transactions that belonged to no decided batch; ``still_open``: those of them that could not be
    aborted. ``lost``: the transactions of the last decided batch that could not be committed (the restarted query raises an
    error that asks for ``firstBatch``).
    """

    decision: Decision
    aborted: tuple[SinkTransaction, ...]
    still_open: tuple[SinkTransaction, ...]
    lost: tuple[SinkTransaction, ...]


def resolve(options: Mapping[str, str]) -> Resolution | None:
    """End the open transactions of a stopped query: commit those of a decided batch, abort all others.

    Returns None if no batch was ever planned under the sink's name. A query that still runs is fenced, and writes its
    batch again when it is restarted.
    """
    read = SinkOptions.of(options)
    name = read.protocol.name
    with Cluster(read.client) as cluster:
        left = plan.list_ongoing(cluster, name)
        known = cluster.describe_transactions(left)
        before = _open(known, left)
        record = plan.resolve(cluster, read.protocol, time.time_ns() // 1_000_000)
        if record is None:
            return None
        after = cluster.describe_transactions([each.transactional_id for each in before])
    still_open = tuple(
        each for each in before if known[each.transactional_id] == after[each.transactional_id]
    )
    ended = (each for each in before if each not in still_open)
    lost = record.decided.transactions(name) if record.decided is not None else []
    entries = record.decided.entries if record.decided is not None else ()
    return Resolution(
        decision=_decision(name, record),
        aborted=tuple(each for each in ended if not _was_committed(after[each.transactional_id])),
        still_open=still_open,
        lost=tuple(
            SinkTransaction(each, "aborted", entry.partitions)
            for (each, _), entry in zip(lost, entries, strict=True)
        ),
    )


def _was_committed(known: TransactionState | None) -> bool:
    return known is not None and known.state in _COMMITTED
