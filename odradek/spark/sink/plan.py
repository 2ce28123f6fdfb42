"""Plan a batch: fence older drivers, finish the last decided batch, and initialise a pool of ids for the tasks."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.spark.sink.checkpoint import BatchOffsets, Checkpoint
from odradek.spark.sink.decision_record import NO_CONTENT, Answer, Content, Decided, Phase, SinkState
from odradek.spark.sink.errors import OutcomeUnknown
from odradek.spark.sink.evidence import OPEN, doubt
from odradek.spark.sink.names import driver_id, is_of_sink, pool_id, read_task_id, ticket_id
from odradek.spark.sink.points import reached
from odradek.spark.sink.store import Coordination, Store
from odradek.spark.wire import Fenced, InvalidTransaction, ProducerId, WireError

log = logging.getLogger(__name__)

# A plan is repeated if the epoch of an id of its pool is uncertain.
PLANS_MAX = 3
# Open transactions of lost attempts are looked for at most once in this interval. Until then they hold back consumers.
SWEEP_INTERVAL_MS = 10_000


@dataclass(frozen=True)
class Settings:
    """Settings of the sink's protocol.

    ``answer``: the option ``firstBatch``, None if it is not set. ``hashed``: whether to compute a digest of a
    batch's rows (the option ``contentHash``). ``checkpoint``: the location of the query's checkpoint, None if
    unknown. ``streaming``: whether the sink writes a streaming query; False for a batch write. ``numbered``:
    whether batches have numbers; a batch write without a number is always a new batch.
    """

    name: str
    topic: str
    transaction_timeout_ms: int
    answer: Answer | None = None
    hashed: bool = True
    checkpoint: str | None = None
    streaming: bool = True
    numbered: bool = True

    def answers(self, decision: int) -> bool:
        """Whether the option ``firstBatch`` is valid after the decision of the plan with the number ``decision``."""
        return self.answer is not None and self.answer.plan == decision


class Place(NamedTuple):
    """The producers of a task's pool id and of its ticket.

    Only the attempt of the task that gets the next epoch of ``ticket`` may use the pool id.
    """

    producer: ProducerId
    ticket: ProducerId


@dataclass(frozen=True)
class Plan:
    """The plan of a batch, which the driver sends to the tasks, and which each task sends back in its report.

    ``number``: the number of this plan; ``run``: the number of the plan that named the pool. ``driver``: the driver's
    producer in this plan. ``next_batch``, ``query_id``, ``decision``, ``topics``, ``content``, ``doubt``: as in
    `SinkState`. ``unended``: the number of transactions of the last decided batch that could not be committed.
    ``pool``: the initialised ids by task; ``ages``: as in `SinkState`. ``offsets``: the batch's file in the checkpoint
    when the batch was planned.
    """

    settings: Settings
    number: int
    run: int
    driver: ProducerId
    next_batch: int
    query_id: str
    decision: int
    planned_at_ms: int = 0
    swept_at_ms: int = 0
    unended: int = 0
    topics: Mapping[str, bytes] = field(default_factory=dict)
    content: Content = NO_CONTENT
    doubt: str = ""
    offsets: BatchOffsets | None = None
    pool: Mapping[int, Place] = field(default_factory=dict)
    ages: Mapping[int, int] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        """Whether the option ``firstBatch`` is set, and valid after the last decision."""
        return self.settings.answers(self.decision)

    def head(self) -> Plan:
        """The plan without the pool, small enough to be sent with each task's report."""
        return dataclasses.replace(self, pool={}, ages={})


def plan_batch(cluster: Coordination, settings: Settings, now_ms: int) -> Plan:
    """Fence older drivers, finish the last decided batch, and initialise transactional ids for the next batch."""
    for _ in range(PLANS_MAX):
        plan, uncertain = _plan_once(cluster, settings, now_ms)
        if not uncertain:
            reached("plan.pooled")
            return plan
        # A lost InitProducerId may still be under way, and would fence a task in the middle of its work. No task will
        # use these ids: the next plan finds this plan unfinished, and takes other ids.
        log.warning(
            "the epochs of ids %s are uncertain: planning again with other ids", ", ".join(sorted(uncertain))
        )
    raise OutcomeUnknown(
        f"Responses to InitProducerId of the sink {settings.name} were lost {PLANS_MAX} times: start the query again "
        "when the network is better."
    )


def resolve(cluster: Coordination, settings: Settings, now_ms: int) -> SinkState | None:
    """End the transactions that a query has left open: commit the decided ones, abort all others.

    Returns the decision record, None if no batch was ever planned. A driver that still runs is fenced, and its batch
    is replayed. The function works like a plan, but hands out no ids. So it may run at any time, even late: it uses no
    id of a later plan.
    """
    left = ongoing(cluster, settings.name)
    # If there is no such sink, return before InitProducerId would create a transactional id.
    if not left and Store(cluster, settings.name, settings.topic).read() is None:
        return None
    return _take_over(cluster, settings, now_ms, new_ids=True).record


class _Taken(NamedTuple):
    """The driver's producer and the decision record after older drivers were fenced: only this driver can decide."""

    driver: ProducerId
    record: SinkState


def _take_over(cluster: Coordination, settings: Settings, now_ms: int, *, new_ids: bool = False) -> _Taken:
    """Fence older drivers, finish the last decided batch, record that a batch is planned, and abort other open transactions.

    ``new_ids``: always take new pool ids, and always look for open transactions of lost attempts.
    """
    name = settings.name
    reached("plan.started")
    mine = driver_id(name)
    driver = cluster.init_producer_ids([mine], settings.transaction_timeout_ms)[mine]
    reached("plan.fenced")
    store = Store(cluster, name, settings.topic)
    found = store.read_as(driver)
    reached("plan.fetched")
    decided = _reend(cluster, name, found)
    reached("plan.reended")
    due = new_ids or found is None or found.phase is Phase.PLANNING or _is_due(found, now_ms)
    # If the record is lost, the cluster still lists the sink's transactional ids.
    known = _listed(cluster, name, () if found is None else (OPEN,)) if due else None
    checkpoint = Checkpoint(settings.checkpoint)
    mark = checkpoint.mark()
    record = dataclasses.replace(
        _planning(found, decided, settings, new_ids, known or {}),
        doubt=doubt(store, driver, found, mark, known or {}),
    )
    record = store.fitting(record if known is None else dataclasses.replace(record, swept_at_ms=now_ms))
    store.write(driver, store.chunks(record))
    store.end(driver, commit=True)
    if mark != store.place:
        checkpoint.leave_mark(store.place)
    reached("plan.recorded")
    if due:
        _sweep(cluster, settings, record, found, _open(known or {}))
    reached("plan.swept")
    return _Taken(driver, record)


def _is_due(found: SinkState, now_ms: int) -> bool:
    return now_ms - found.swept_at_ms >= SWEEP_INTERVAL_MS


def _plan_once(cluster: Coordination, settings: Settings, now_ms: int) -> tuple[Plan, Collection[str]]:
    driver, record = _take_over(cluster, settings, now_ms)
    pool, uncertain = _pool(cluster, settings, record)
    plan = Plan(
        settings=settings,
        number=record.plan,
        run=record.run,
        driver=driver,
        next_batch=record.next_batch,
        query_id=record.query_id,
        decision=record.decision,
        planned_at_ms=now_ms,
        swept_at_ms=record.swept_at_ms,
        unended=len(record.decided.entries) if record.decided else 0,
        topics=record.topics,
        content=record.content,
        doubt=record.doubt,
        offsets=Checkpoint(settings.checkpoint).last_offsets(),
        pool=pool,
        ages=record.ages,
    )
    return plan, uncertain


def _pool(
    cluster: Coordination, settings: Settings, record: SinkState
) -> tuple[dict[int, Place], Collection[str]]:
    """Initialise each task's pool id and ticket id; return the pool, and the pool ids whose epochs are uncertain."""
    ids = {task: pool_id(settings.name, record.run, task) for task in record.ages}
    tickets = {task: ticket_id(settings.name, record.run, task) for task in record.ages}
    if not ids:
        return {}, ()
    given = cluster.init_producer_ids([*ids.values(), *tickets.values()], settings.transaction_timeout_ms)
    places = {task: Place(given[ids[task]], given[tickets[task]]) for task in record.ages}
    # An uncertain ticket has no bad effect: no attempt gets the expected epoch.
    return places, given.uncertain & set(ids.values())


def _reend(cluster: Coordination, name: str, found: SinkState | None) -> Decided | None:
    """Commit the transactions of the last decided batch again, which changes nothing if they are committed.

    Return the transactions that cannot be committed. While the record is in phase ``DECIDED``, no task has used these
    ids again. So a refused EndTxn means that the transaction was aborted (its timeout has passed), or that its id has
    expired since. The plan cannot tell the two apart, but the task can: its batch number shows whether Spark has
    recorded that all transactions were committed.
    """
    if found is None or found.decided is None or found.phase is Phase.PLANNING:
        return found.decided if found is not None else None
    transactions = found.decided.transactions(name)
    outcomes = cluster.end_transactions(transactions, commit=True)
    refused = []
    for entry, (transactional_id, _) in zip(found.decided.entries, transactions, strict=True):
        error = outcomes[transactional_id]
        if isinstance(error, Fenced | InvalidTransaction):
            log.error("EndTxn of %s (decided batch %d): %s", transactional_id, found.next_batch - 1, error)
            refused.append(entry)
        elif error is not None:
            raise error
    return dataclasses.replace(found.decided, entries=tuple(refused)) if refused else None


def _planning(
    found: SinkState | None,
    decided: Decided | None,
    settings: Settings,
    new_ids: bool,
    known: Mapping[str, str],
) -> SinkState:
    """The decision record of a new plan. It keeps the pool's ids (``run``) only if the last plan led to a decision.

    ``known``: states of the sink's transactional ids, as far as they were listed: all ids if there is no record, else those
    with open transactions.
    """
    ids = [each for each in (read_task_id(settings.name, one) for one in known) if each is not None]
    if found is None:
        # Use no name again, so that the transactions committed under it stay visible as evidence.
        number = max((max(each.run, each.plan or 0) for each in ids), default=0) + 1
        return SinkState(run=number, plan=number, next_batch=0, phase=Phase.PLANNING)
    number = found.plan + 1
    answered = settings.answers(found.decision)
    # An open transaction under a pool id whose task has left the pool can only be aborted safely if the ids are new.
    outside = any(each.plan is None and each.run == found.run and each.task not in found.ages for each in ids)
    return dataclasses.replace(
        found,
        run=number if found.phase is Phase.PLANNING or answered or new_ids or outside else found.run,
        plan=number,
        phase=Phase.PLANNING,
        decided=decided,
    )


def _sweep(
    cluster: Coordination, settings: Settings, record: SinkState, found: SinkState | None, left: Iterable[str]
) -> None:
    """Abort the transactions that earlier plans left open, because they hold back consumers until they time out.

    Errors are only logged.
    """
    old: set[str] = set()
    if found is not None and record.run != found.run:
        # This also fences late attempts of the unfinished plan's tasks, which may not have begun yet.
        old.update(pool_id(settings.name, found.run, task) for task in found.ages)
    sweep(cluster, settings, _dead(settings.name, record, left), old)


def _dead(name: str, record: SinkState, left: Iterable[str]) -> list[str]:
    """The transactional ids among ``left`` that no task of this or a later plan uses, even if it runs late."""
    names = []
    for transactional_id in left:
        parsed = read_task_id(name, transactional_id)
        if parsed is not None and (
            parsed.run < record.run if parsed.plan is None else parsed.plan < record.plan
        ):
            names.append(transactional_id)
    return names


def ongoing(cluster: Coordination, name: str) -> list[str]:
    """Transactional ids of the sink's open transactions.

    Empty if they cannot be listed (before Kafka 3.0, or without the right).
    """
    return _open(_listed(cluster, name, (OPEN,)) or {})


def list_ongoing(cluster: Coordination, name: str) -> list[str]:
    """Transactional ids of the sink's open transactions. Raises ``WireError`` if they cannot be listed."""
    return _open(_list(cluster, name, (OPEN,)))


def _open(known: Mapping[str, str]) -> list[str]:
    return [each for each, state in known.items() if state == OPEN]


def _list(cluster: Coordination, name: str, states: Sequence[str]) -> dict[str, str]:
    known = cluster.list_transactions(f"{name}-", states)
    # The name of another sink may begin with this name.
    return {each: state for each, state in known.items() if is_of_sink(name, each)}


def _listed(cluster: Coordination, name: str, states: Sequence[str]) -> dict[str, str] | None:
    try:
        return _list(cluster, name, states)
    except WireError as error:
        log.warning("transactions of the sink %s cannot be listed: %s", name, error)
        return None


def sweep(cluster: Coordination, settings: Settings, *names: Iterable[str]) -> None:
    """Fence the producers of these transactional ids, which aborts their open transactions.

    An error is only logged: the transactions then end by their timeout.
    """
    ids = sorted({each for some in names for each in some})
    if not ids:
        return
    try:
        cluster.init_producer_ids(ids, settings.transaction_timeout_ms)
    except WireError as error:
        log.warning("transactions of the sink %s stay open until their timeout: %s", settings.name, error)
