"""Decide a batch, or abort it: the driver's work after its tasks have ended."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence

from odradek.spark.sink.checkpoint import Checkpoint
from odradek.spark.sink.decision_record import (
    DIGEST_MODULUS,
    Answer,
    Content,
    Decided,
    Entry,
    Phase,
    SinkState,
    aged,
)
from odradek.spark.sink.errors import DecisionMismatch, MayBeLost, NotDecided, OutcomeUnknown, SinkError
from odradek.spark.sink.names import pool_id, read_task_id
from odradek.spark.sink.plan import Plan, ongoing, sweep
from odradek.spark.sink.points import armed, reached
from odradek.spark.sink.store import Coordination, Store, changed_topics
from odradek.spark.sink.task import Report
from odradek.spark.wire import Fenced, InvalidTransaction, ProducerId, Retriable, WireError

log = logging.getLogger(__name__)

# A batch that takes a larger share of transaction.timeout.ms is not decided.
TIME_SHARE_MAX = 0.9

Transactions = Sequence[tuple[str, ProducerId]]


def commit_batch(cluster: Coordination, reports: Sequence[Report], now_ms: int) -> SinkState | None:
    """Decide the batch and commit its transactions. Return the written record, None if the batch was decided before.

    Raises ``NotDecided`` if the batch will be replayed, ``OutcomeUnknown`` if a restart of the query has to find
    out whether the batch is decided or to commit its transactions, ``MayBeLost`` if the batch is decided but rows
    of it may be lost, and ``DecisionMismatch`` if the batch was decided before with other rows.
    """
    plan, batch = _common(reports)
    reached("commit.started", batch)
    if all(report.skipped for report in reports):
        if not plan.answered:
            _check_content(plan, reports, batch)
        return None
    store = Store(cluster, plan.settings.name, plan.settings.topic)
    written = [report for report in reports if report.producer is not None]
    record = store.fitting(_record(plan, batch, reports, written, now_ms))
    chunks = store.chunks(record)
    _in_time(plan, batch, now_ms)
    _check(cluster, written, batch)
    topics = _check_topics(cluster, written, batch)
    reached("commit.checked", batch)
    _decide(store, plan, chunks, batch, reports[0].query_id)
    _read_back(store, record)
    reached("decision.made", batch)
    assert record.decided is not None
    _end_all(cluster, record.decided.transactions(plan.settings.name), batch)
    reached("end.all", batch)
    _check_topics_again(cluster, topics, batch)
    _tidy(cluster, plan, written)
    return record


def _common(reports: Sequence[Report]) -> tuple[Plan, int]:
    """Return the plan (task 0 reports it with the pool) and the batch. Raises ``SinkError`` if reports differ."""
    if len({(report.plan.driver, report.batch, report.query_id, report.skipped) for report in reports}) != 1:
        raise SinkError(
            "The tasks of the batch report different plans: this is an error in the sink. The batch is not decided."
        )
    report = min(reports, key=lambda each: each.label)
    return report.plan, report.batch


def _content(plan: Plan, reports: Iterable[Report], batch: int) -> Content:
    """The content of the batch: a summary of the rows that the tasks have read, and the hash of its ``offsets`` file.

    The hash is left out if the file has changed since the batch was planned: another driver may have replaced it.
    """
    digests = [report.digest for report in reports]
    whole = None if None in digests else sum(each for each in digests if each is not None) % DIGEST_MODULUS
    now = Checkpoint(plan.settings.checkpoint).offsets(batch)
    offsets = now.digest if now is not None and now == plan.offsets else None
    return Content(sum(report.rows for report in reports), whole, offsets)


def _check_content(plan: Plan, reports: Sequence[Report], batch: int) -> None:
    """Raise ``DecisionMismatch`` if the replay of a decided batch has other rows than the batch that was decided.

    The number of rows is compared first. With the same number, an equal digest is enough: it does not depend on the order of
    rows or on tasks. A different digest is accepted only if the batch's ``offsets`` file is the one that was decided: then
    the query is not deterministic. Without digests the file alone is compared, and if the file cannot be read, only the
    number of rows.
    """
    name, decided, now = plan.settings.name, plan.content, _content(plan, reports, batch)
    again, without = Answer(batch, plan.decision), Answer(batch + 1, plan.decision)
    answers = f"firstBatch={again} writes this batch as well, firstBatch={without} continues without it."
    aimed_at = {topic for report in reports for topic in report.aimed_at}
    # A decision record that was too long without its topics has no topics.
    if plan.topics and (other := sorted(aimed_at - set(plan.topics))):
        raise DecisionMismatch(
            f"Batch {batch} of the sink {name} was decided for {', '.join(sorted(plan.topics))}, and a second write "
            f"of this batch is for {', '.join(other)}: no row of the second write is written. Two writes of one batch "
            f"number need two names (option 'name'). If the query has another topic now: {answers}"
        )
    summed = None not in (decided.digest, now.digest)
    # If Spark had planned the batch again, at least the time in the file would differ.
    located = None not in (decided.offsets, now.offsets)
    same_sum = summed and decided.digest == now.digest
    same_offsets = located and decided.offsets == now.offsets
    if decided.rows == now.rows and (same_sum or same_offsets or not (summed or located)):
        if summed and not same_sum:
            log.warning(
                "the replay of batch %d of the sink %s has the same offsets and number of rows as the decided batch, "
                "but different rows: the query is not deterministic. The decided rows are kept",
                batch,
                name,
            )
        return
    if decided.rows != now.rows:
        how = f"it had {decided.rows} rows and has {now.rows} now"
    else:
        how = f"its {now.rows} rows are {'different ones' if summed else 'of other offsets'}"
    cure = (
        f"A file of the checkpoint is lost or is an old one (offsets/{batch}), or this is another write under the same name "
        f"and batch. Restore offsets/{batch} as it was."
    )
    if same_offsets:
        cure = "Its offsets are the same: the query is not deterministic, or its source has changed."
    elif decided.rows == now.rows and not located:
        cure += " If the query is not deterministic, set the option contentHash=false: only rows are counted then."
    raise DecisionMismatch(
        f"Batch {batch} of the sink {name} was decided, and Spark has planned another one in its place: {how}. {cure} "
        f"Otherwise: {answers}"
    )


def _record(
    plan: Plan, batch: int, reports: Sequence[Report], written: Iterable[Report], now_ms: int
) -> SinkState:
    entries = sorted(
        Entry(report.label, report.pooled, report.producer, tuple(sorted(report.partitions)))
        for report in written
        if report.producer is not None
    )
    return SinkState(
        run=plan.run,
        plan=plan.number,
        next_batch=batch + 1,
        phase=Phase.DECIDED,
        query_id=reports[0].query_id,
        decision=plan.number,
        pool=aged(plan.ages, (entry.label.task for entry in entries)),
        decided=Decided(plan.run, plan.number, tuple(entries)),
        swept_at_ms=plan.swept_at_ms,
        content=_content(plan, reports, batch),
        decided_at_ms=now_ms,
        topics={topic: each for report in written for topic, each in report.topics.items()},
    )


def _in_time(plan: Plan, batch: int, now_ms: int) -> None:
    """Raise ``NotDecided`` if too little of the transaction timeout is left to commit the transactions after a crash."""
    timeout_ms = plan.settings.transaction_timeout_ms
    if now_ms - plan.planned_at_ms > timeout_ms * TIME_SHARE_MAX:
        raise NotDecided(
            f"Batch {batch} is not decided: it took {(now_ms - plan.planned_at_ms) // 1000} s, and its transactions time "
            f"out after {timeout_ms // 1000} s. Make the batches smaller, or raise kafka.transaction.timeout.ms."
        )


def _check(cluster: Coordination, written: Iterable[Report], batch: int) -> None:
    """Raise ``NotDecided`` unless each transaction is open and its producer is not fenced.

    AddPartitionsToTxn is sent with partitions that the transaction already has. The request then changes nothing, and fails
    if the transaction has been aborted.
    """
    asked = [
        (report.transactional_id, report.producer, sorted(report.partitions))
        for report in written
        if report.producer is not None
    ]
    for transactional_id, error in cluster.check_transactions(asked).items():
        if isinstance(error, Fenced | InvalidTransaction):
            raise NotDecided(
                f"Batch {batch} is not decided: the transaction {transactional_id} was already aborted, by its timeout or "
                f"by a newer owner of the id; a restart of the query writes the batch again. ({error})"
            ) from error
        if error is not None:
            raise error


def _check_topics(cluster: Coordination, written: Iterable[Report], batch: int) -> Mapping[str, bytes]:
    """Return the topic ids by name; raise ``NotDecided`` if a topic is not the one that the tasks wrote to.

    EndTxn succeeds even if partitions of the transaction were deleted (TransactionMarkerChannelManager skips partitions
    without a leader), so their rows would be lost silently.
    """
    known: dict[str, bytes] = {}
    other = {
        topic
        for report in written
        for topic, topic_id in report.topics.items()
        if known.setdefault(topic, topic_id) != topic_id
    }
    other.update(changed_topics(cluster, known))
    if other:
        raise NotDecided(
            f"Batch {batch} is not decided: {', '.join(sorted(other))} was deleted or created again while the batch was "
            "being written; a restart of the query writes it again."
        )
    return known


def _decide(
    store: Store, plan: Plan, chunks: dict[tuple[str, int], tuple[int, str]], batch: int, query_id: str
) -> None:
    try:
        store.write(plan.driver, chunks)
        # For later batches, the batch number shows that the query had a batch before.
        if batch == 0 and plan.settings.streaming:
            store.bind(plan.driver, query_id)
        reached("decision.written", batch)
        store.end(plan.driver, commit=True)
    except (Fenced, InvalidTransaction) as error:
        raise NotDecided(
            f"Batch {batch} is not decided: another driver of the sink {store.name} has taken over. ({error})"
        ) from error
    except Retriable as error:
        raise OutcomeUnknown(
            f"It is not known whether batch {batch} of the sink {store.name} is decided: restart the query, which then "
            f"reads the decision. ({error})"
        ) from error


def _read_back(store: Store, record: SinkState) -> None:
    """Read the decision record again, because only a record that was read back is certain to be stored.

    A late copy of the plan's EndTxn may have ended the driver's transaction before the record was written in it. Raises
    ``NotDecided`` if the record was not stored, and ``SinkError`` if another driver has replaced it.
    """
    found = store.read()
    if found == record:
        return
    if found is None or found.next_batch < record.next_batch:
        raise NotDecided(
            f"Batch {record.next_batch - 1} is not decided: the record of the sink {store.name} was not stored; a restart "
            "of the query writes the batch again."
        )
    raise SinkError(
        f"Batch {record.next_batch - 1} is decided, and another driver of the sink {store.name} has taken over."
    )


def _end_all(cluster: Coordination, transactions: Transactions, batch: int) -> None:
    """Commit the transactions of a decided batch. Until all are committed, a consumer may see a part of the batch."""
    refused: dict[str, WireError] = {}
    for point, some in _portions(transactions):
        outcomes = cluster.end_transactions(some, commit=True)
        refused.update((each, error) for each, error in outcomes.items() if error is not None)
        if point:
            reached(point, batch)
    if not refused:
        return
    listed = "; ".join(f"{each}: {error}" for each, error in sorted(refused.items())[:5])
    if all(isinstance(error, Retriable) for error in refused.values()):
        raise OutcomeUnknown(
            f"Batch {batch} is decided, but {len(refused)} of its transactions could not be committed yet. Start the query "
            f"again before their transaction.timeout.ms has passed: it commits them first. ({listed})"
        )
    raise MayBeLost(
        f"Batch {batch} is decided, but {len(refused)} of its transactions could not be committed, and their rows may be "
        f"lost: {listed}"
    )


def _check_topics_again(cluster: Coordination, topics: Mapping[str, bytes], batch: int) -> None:
    """Raise ``MayBeLost`` if a topic has changed while its transactions were committed.

    Spark then does not record the batch as committed, and the replay of the batch stops with an error until the user sets
    ``firstBatch``. ``topics`` are all topics that were written to; the decision record may list fewer.
    """
    other = changed_topics(cluster, topics)
    if other:
        raise MayBeLost(
            f"Batch {batch} is decided, but {', '.join(other)} was deleted or created again before all of its transactions "
            "were committed, and their rows may be lost."
        )


def _portions(transactions: Transactions) -> list[tuple[str, Transactions]]:
    """The transactions in one portion, or in three while a kill point is armed: tests kill processes between them."""
    if not armed():
        return [("", transactions)]
    half = max(1, len(transactions) // 2)
    return [("end.first", transactions[:1]), ("end.some", transactions[1:half]), ("", transactions[half:])]


def _tidy(cluster: Coordination, plan: Plan, written: Iterable[Report]) -> None:
    """Abort the open transactions of attempts that lost against another attempt of their task.

    An attempt that lost may use an id of its own that is in no report, so open transactions are listed after each
    batch. Pool ids get an EndTxn with this plan's epoch, because a newer driver may have handed the same ids out again.
    An attempt's own id is never handed out again, so its producer can be fenced. If a request fails, a later plan
    aborts the transactions.
    """
    name = plan.settings.name
    won = {report.transactional_id for report in written}
    lost = [
        (pool_id(name, plan.run, report.label.task), plan.pool[report.label.task].producer)
        for report in written
        if report.label.task in plan.pool and not report.pooled
    ]
    try:
        if lost:
            cluster.end_transactions(lost, commit=False)
    except WireError as error:
        log.warning("open transactions of the sink %s are not aborted before the next plan: %s", name, error)
    sweep(cluster, plan.settings, _own(cluster, name, plan.number) - won)


def _own(cluster: Coordination, name: str, plan: int) -> set[str]:
    """The ids outside the pool, of attempts in this and earlier plans, that have open transactions."""
    found = {each: read_task_id(name, each) for each in ongoing(cluster, name)}
    return {
        each for each, parsed in found.items() if parsed and parsed.plan is not None and parsed.plan <= plan
    }


def abort_batch(cluster: Coordination, reports: Sequence[Report]) -> bool:
    """Abort the transactions that the tasks left open; return False if the next plan has to end them.

    Spark calls this when a task has failed, and when ``commit_batch`` has raised. In the second case the batch may be
    decided, and its transactions must be committed. So the driver's own open transaction is aborted first, after which
    no decision can follow, and then the decision record is read.
    """
    if not reports:
        return False
    plan, batch = min(reports, key=lambda each: each.label).plan, reports[0].batch
    reached("abort.started", batch)
    store = Store(cluster, plan.settings.name, plan.settings.topic)
    try:
        outcome = _rule_out(store, plan)
    except WireError as error:
        log.warning("transactions of batch %d are not aborted before the next plan: %s", batch, error)
        return False
    if outcome is None:
        return False
    if outcome.phase is Phase.DECIDED and outcome.decided is not None:
        cluster.end_transactions(outcome.decided.transactions(store.name), commit=True)
        return False
    reached("abort.checked", batch)
    names = [pool_id(store.name, plan.run, task) for task in outcome.ages]
    reported = [report.transactional_id for report in reports if report.producer is not None]
    sweep(cluster, plan.settings, names, reported, _own(cluster, store.name, plan.number))
    reached("abort.done", batch)
    return True


def _rule_out(store: Store, plan: Plan) -> SinkState | None:
    """Abort the driver's transaction, so that this plan cannot decide any more, and return the decision record.

    None if a newer driver has taken over."""
    try:
        # No transaction is open if the driver's last one was committed: the plan's or the decision.
        with contextlib.suppress(InvalidTransaction):
            store.end(plan.driver, commit=False)
        record = store.read_as(plan.driver)
        with contextlib.suppress(InvalidTransaction):
            store.end(plan.driver, commit=False)
    except Fenced:
        return None
    return record if record is not None and record.plan == plan.number else None
