"""A task of the sink: decide whether to write, get a transactional id, write the rows, and report."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from odradek.spark.sink.decision_record import Answer
from odradek.spark.sink.errors import DecisionMismatch, MayBeLost, OutcomeUnknown
from odradek.spark.sink.names import Label, own_id, pool_id, ticket_id
from odradek.spark.sink.plan import Place, Plan
from odradek.spark.sink.points import reached
from odradek.spark.sink.store import Coordination, Partition, Store, changed_topics
from odradek.spark.wire import ProducerId, WireError

RENEWALS_MAX = 5


Rows = TypeVar("Rows", bound=Sized)
RowsOf = TypeVar("RowsOf", bound=Sized, contravariant=True)


class Writer(Protocol[RowsOf]):
    """A writer of rows into an open transaction, with the partitions and topic ids that it has written to."""

    @property
    def partitions(self) -> frozenset[Partition]: ...

    @property
    def topics(self) -> Mapping[str, bytes]: ...

    def write(self, rows: RowsOf) -> None: ...

    def flush(self) -> None: ...


class RowSum(Protocol[RowsOf]):
    """A summary of all rows of a task.

    ``digest``: the sum of the rows' hashes (`records.digest`), None if it is not computed; ``topics``: the names of the
    topics that the rows are for.
    """

    @property
    def rows(self) -> int: ...

    @property
    def digest(self) -> int | None: ...

    @property
    def topics(self) -> frozenset[str]: ...

    def add(self, rows: RowsOf) -> None: ...


@dataclass(frozen=True)
class Report:
    """A task's report to the driver.

    ``producer`` is None if the task had no rows, or nothing to write (``skipped``: the batch is already decided). ``plan``
    is complete from task 0, and without the pool from the other tasks. ``rows``, ``digest`` and ``aimed_at`` summarise the
    rows that the task has read (`RowSum`). ``topics``: ids of the topics that the task wrote to.
    """

    plan: Plan
    label: Label
    batch: int
    query_id: str
    skipped: bool = False
    pooled: bool = False
    producer: ProducerId | None = None
    rows: int = 0
    digest: int | None = None
    aimed_at: frozenset[str] = frozenset()
    partitions: frozenset[Partition] = frozenset()
    topics: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def transactional_id(self) -> str:
        name, run = self.plan.settings.name, self.plan.run
        if self.pooled:
            return pool_id(name, run, self.label.task)
        return own_id(name, run, self.plan.number, self.label)


def to_write(cluster: Coordination, plan: Plan, batch: int, query_id: str) -> bool:
    """Whether the batch has to be written; False if it is already decided.

    Raises ``DecisionMismatch`` if the decision record is not that of this query at this batch, and ``MayBeLost`` if the
    batch is decided but some of its rows may be lost.
    """
    if plan.answered:
        assert plan.settings.answer is not None
        return _answered(cluster, plan, plan.settings.answer, batch, query_id)
    name = plan.settings.name
    if plan.query_id not in ("", query_id):
        raise DecisionMismatch(
            f"The sink {name} belongs to another query ({plan.query_id}, which decided up to batch {plan.next_batch - 1}); "
            f"this one is {query_id}, so its checkpoint is a new one. Give the sink another name, or set the option "
            f"firstBatch={_answer(plan, batch)} to let this query take it over."
        )
    if batch == plan.next_batch:
        if plan.query_id == "" and plan.settings.numbered:
            _check_new(cluster, plan, batch, query_id)
        return True
    if batch == plan.next_batch - 1:
        _check_decided(cluster, plan, batch)
        return False
    if batch < plan.next_batch:
        raise DecisionMismatch(
            f"The query is at batch {batch}, but the sink {name} has decided up to batch {plan.next_batch - 1}: the "
            f"checkpoint is an old one. Restore the newest, or set the option firstBatch={_answer(plan, batch)} to write "
            "again from there."
        )
    known = f"only has batches before {plan.next_batch}" if plan.query_id else "has not decided any batch"
    if plan.doubt:
        known += f" (but {plan.doubt})"
    raise DecisionMismatch(
        f"The query is at batch {batch}, but the sink {name} {known}: its name has changed, or its decision record has "
        f"expired (offsets.retention.minutes) or was deleted. If batch {batch} has not been written yet, set the option "
        f"firstBatch={_answer(plan, batch)}; if it has, firstBatch={_answer(plan, batch + 1)}."
    )


def _answer(plan: Plan, batch: int) -> Answer:
    """The value of the option ``firstBatch`` with which the sink continues at this batch."""
    return Answer(batch, plan.decision)


def _check_new(cluster: Coordination, plan: Plan, batch: int, query_id: str) -> None:
    """Raise ``DecisionMismatch`` if a sink without a decision shows evidence of an earlier, lost decision."""
    if reason := _doubt(cluster, plan, query_id):
        raise DecisionMismatch(
            f"The query is at batch {batch}, and the sink {plan.settings.name} has not decided any batch, but {reason}. Its "
            "decision record was deleted or has expired (offsets.retention.minutes), or the sink had another name or "
            "decisionTopic: if so, set them back. Otherwise, if "
            f"batch {batch} has not been written yet, set the option firstBatch={_answer(plan, batch)}; if it has, "
            f"firstBatch={_answer(plan, batch + 1)}."
        )


def _doubt(cluster: Coordination, plan: Plan, query_id: str) -> str:
    """Evidence that an earlier decision of the sink is lost, as a clause for an error message; "" if none."""
    if plan.doubt or plan.query_id or not plan.settings.streaming:
        return plan.doubt
    other = Store(cluster, plan.settings.name, plan.settings.topic).bound(query_id)
    return f"the first batch of this query was decided by the sink {other}" if other else ""


def _check_decided(cluster: Coordination, plan: Plan, batch: int) -> None:
    """Raise ``MayBeLost`` if a decided batch has uncommitted transactions, or a topic that was deleted."""
    if plan.unended:
        lost = (
            f"{plan.unended} of its transactions could not be committed any more: their transaction.timeout.ms passed "
            "before a restart, or another client took their ids. Readers may see a part of the batch; `odradek spark sink "
            f"status {plan.settings.name}` names the partitions."
        )
    elif other := changed_topics(cluster, plan.topics):
        lost = (
            f"{', '.join(other)} was deleted or created again since: the batch may have been committed to the old topic, "
            "and readers of the new one do not see it."
        )
    else:
        return
    raise MayBeLost(
        f"Batch {batch} of the sink {plan.settings.name} was decided, but {lost} Set the option "
        f"firstBatch={_answer(plan, batch)} to write all of it again, or firstBatch={_answer(plan, batch + 1)} to continue "
        "without it."
    )


def _answered(cluster: Coordination, plan: Plan, answer: Answer, batch: int, query_id: str) -> bool:
    if batch not in (answer.batch, answer.batch - 1):
        raise DecisionMismatch(
            f"The option firstBatch={answer} does not fit: the query is at batch {batch}. Set it to {_answer(plan, batch)}, "
            f"or to {_answer(plan, batch + 1)} if batch {batch} has been written, or leave it out."
        )
    if batch == answer.batch:
        return True
    known = plan.query_id in ("", query_id) and not _doubt(cluster, plan, query_id)
    if batch == plan.next_batch and known:
        raise DecisionMismatch(
            f"The option firstBatch={answer} would lose batch {batch}: the decision record of the sink {plan.settings.name} "
            "says that it was never decided, so none of its rows was ever read. Leave the option out."
        )
    return False


def open_transaction(cluster: Coordination, plan: Plan, label: Label) -> tuple[str, ProducerId, bool, Label]:
    """Get a transactional id for this attempt of a task.

    Returns the transactional id, its producer, whether it belongs to the pool, and the label for the report.

    The driver has initialised a pool id for the task. But several attempts may run at once (a retry, a second
    attempt of the stage, speculation). Spark has already given up some of them, and a Python worker cannot find
    out whether its own attempt is one of these. So each attempt sends InitProducerId for the task's ticket, a
    second transactional id without transactions. Each response contains the next epoch, and exactly one attempt
    gets the epoch after the driver's. That attempt alone uses the pool id and does not initialise it. If it runs
    late, its producer has an old epoch and is fenced. Every other attempt initialises an id of its own.
    """
    settings = plan.settings
    place = plan.pool.get(label.task)
    if place is not None and _draws(cluster, plan, label.task, place):
        return pool_id(settings.name, plan.run, label.task), place.producer, True, Label(label.task, 0)
    for renewals in range(RENEWALS_MAX):
        renewed = label._replace(renewals=renewals)
        mine = own_id(settings.name, plan.run, plan.number, renewed)
        given = cluster.init_producer_ids([mine], settings.transaction_timeout_ms)
        if not given.uncertain:
            return mine, given[mine], False, renewed
        # The lost request may still arrive, and would fence this producer.
    raise OutcomeUnknown(f"Responses to InitProducerId of {mine} were lost {RENEWALS_MAX} times.")


def _draws(cluster: Coordination, plan: Plan, task: int, place: Place) -> bool:
    ticket = ticket_id(plan.settings.name, plan.run, task)
    given = cluster.init_producer_ids([ticket], plan.settings.transaction_timeout_ms)
    # If the response to a ticket request is lost, the ticket is used up: the next attempt gets a later epoch.
    return given[ticket] == place.ticket._replace(epoch=place.ticket.epoch + 1)


@contextlib.contextmanager
def aborting(cluster: Coordination, transactional_id: str, producer: ProducerId) -> Iterator[None]:
    """Context manager: abort the transaction if the task fails while it writes, because the task will not report it.

    If the failure is a ``WireError``, no request is sent.
    """
    try:
        yield
    except WireError:
        raise
    except BaseException:
        with contextlib.suppress(WireError):
            cluster.end_transactions([(transactional_id, producer)], commit=False)
        raise


def run_task(
    cluster: Coordination,
    plan: Plan,
    label: Label,
    batch: int,
    query_id: str,
    rows: Iterable[Rows],
    row_sum: RowSum[Rows],
    writer: Callable[[str, ProducerId], Writer[Rows]],
) -> Report:
    """Write all rows into one transaction and leave it open; return a report, by which the driver ends the transaction.

    The rows of a decided batch are read as well: the driver compares them with the decided batch, and stateful operators
    before the sink need them.
    """
    write = to_write(cluster, plan, batch, query_id)
    carried = plan if label.task == 0 else plan.head()
    report = Report(carried, label, batch, query_id, skipped=not write)
    some = _summed(rows, row_sum)
    if write:
        reached("task.started", batch)
        first = next(some, None)
        if first is not None:
            report = _written(cluster, plan, report, itertools.chain([first], some), writer)
        reached("task.reported", batch)
    else:
        for _ in some:
            pass
    return dataclasses.replace(report, rows=row_sum.rows, digest=row_sum.digest, aimed_at=row_sum.topics)


def _summed(rows: Iterable[Rows], row_sum: RowSum[Rows]) -> Iterator[Rows]:
    for each in rows:
        if len(each):
            row_sum.add(each)
            yield each


def _written(
    cluster: Coordination,
    plan: Plan,
    report: Report,
    rows: Iterable[Rows],
    writer: Callable[[str, ProducerId], Writer[Rows]],
) -> Report:
    transactional_id, producer, pooled, label = open_transaction(cluster, plan, report.label)
    reached("task.opened", report.batch)
    with aborting(cluster, transactional_id, producer):
        to = writer(transactional_id, producer)
        for number, each in enumerate(rows):
            to.write(each)
            if number == 0:
                reached("task.first-batch-sent", report.batch)
        to.flush()
        reached("task.flushed", report.batch)
    return dataclasses.replace(
        report,
        label=label,
        pooled=pooled,
        producer=producer,
        partitions=to.partitions,
        topics=to.topics,
    )
