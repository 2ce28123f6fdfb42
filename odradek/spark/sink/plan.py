"""Planning a batch: from fencing older drivers to a pool of ids for its tasks."""

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

# A plan begins anew when it cannot know the epoch of an id of its pool.
PLANS_MAX = 3
# Strays (of copies that lost against another, say) are looked for at most so often; until then they hold back readers.
SWEEP_INTERVAL_MS = 10_000


@dataclass(frozen=True)
class Settings:
    """What the protocol itself is told. ``answer``: the option ``firstBatch``, None if it was not given. ``hashed``: whether
    a batch's rows are summed (the option ``contentHash``). ``checkpoint``: the query's, None if it is not known.
    ``streaming``: whether it is the one sink of a streaming query, and no batch write. ``numbered``: whether its batches
    have numbers of their own; a batch write without one is always a new one."""

    name: str
    topic: str
    transaction_timeout_ms: int
    answer: Answer | None = None
    hashed: bool = True
    checkpoint: str | None = None
    streaming: bool = True
    numbered: bool = True

    def answers(self, decision: int) -> bool:
        """Whether the option ``firstBatch`` answers the question of the decision of this plan."""
        return self.answer is not None and self.answer.plan == decision


class Place(NamedTuple):
    """An id of the pool that is ready, and the ticket that was drawn last: who draws the next one may use it."""

    producer: ProducerId
    ticket: ProducerId


@dataclass(frozen=True)
class Plan:
    """What the driver tells the tasks of a batch, and what they tell it back.

    ``number``: of this plan; ``run``: of the plan that named the pool. ``driver``: under whose epoch it was made.
    ``next_batch``, ``query_id``, ``decision``, ``topics``, ``content``, ``doubt``: as the record has them. ``unended``: how
    many transactions of the last decided batch could not be committed. ``pool``: the ids that are ready, by task; ``ages``
    as in the record. ``offsets``: the file of the batch in the checkpoint, as it was when the batch was planned.
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
        """Whether the option ``firstBatch`` answers the question of the last decision."""
        return self.settings.answers(self.decision)

    def head(self) -> Plan:
        """It without the pool: small enough to travel with each task's report."""
        return dataclasses.replace(self, pool={}, ages={})


def plan_batch(cluster: Coordination, settings: Settings, now_ms: int) -> Plan:
    """Fence older drivers, finish what was decided, and give out ids for the next batch."""
    for _ in range(PLANS_MAX):
        plan, uncertain = _plan_once(cluster, settings, now_ms)
        if not uncertain:
            reached("plan.pooled")
            return plan
        # A lost request may still be under way, and would fence a task in the middle of its work. No task will use
        # these names: the next plan finds this one unfinished.
        log.warning("the epochs of %s are uncertain: other ids are taken", ", ".join(sorted(uncertain)))
    raise OutcomeUnknown(
        f"The cluster lost answers to InitProducerId of {settings.name} {PLANS_MAX} times: the query can be started again "
        "when the network is better."
    )


def resolve(cluster: Coordination, settings: Settings, now_ms: int) -> SinkState | None:
    """End what an ended query has left open: the decided transactions are committed, all others are aborted. The record as
    it is then, None where nothing was ever planned. A driver that still lives is fenced, and its batch replayed.

    It is a plan that gives out no ids. So it may come at any time, and late: no id of a later plan is touched."""
    left = ongoing(cluster, settings.name)
    # A name that no sink has: not even a transactional id should be left of the question.
    if not left and Store(cluster, settings.name, settings.topic).read() is None:
        return None
    return _take_over(cluster, settings, now_ms, anew=True).record


class _Taken(NamedTuple):
    """What the driver knows once it is the only one that can decide."""

    driver: ProducerId
    record: SinkState


def _take_over(cluster: Coordination, settings: Settings, now_ms: int, *, anew: bool = False) -> _Taken:
    """Fence older drivers, finish what was decided, record that a batch is planned, and abort what is open besides.
    ``anew``: with new names for the pool, and a look for strays, in any case."""
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
    due = anew or found is None or found.phase is Phase.PLANNING or _is_due(found, now_ms)
    # Where the record is lost, its names are not.
    known = _listed(cluster, name, () if found is None else (OPEN,)) if due else None
    checkpoint = Checkpoint(settings.checkpoint)
    mark = checkpoint.mark()
    record = dataclasses.replace(
        _planning(found, decided, settings, anew, known or {}),
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
    """A new epoch for each id of the pool, and for the id that says who may use it; and the ids that must not be used."""
    ids = {task: pool_id(settings.name, record.run, task) for task in record.ages}
    tickets = {task: ticket_id(settings.name, record.run, task) for task in record.ages}
    if not ids:
        return {}, ()
    given = cluster.init_producer_ids([*ids.values(), *tickets.values()], settings.transaction_timeout_ms)
    places = {task: Place(given[ids[task]], given[tickets[task]]) for task in record.ages}
    # An uncertain ticket is only one that no task draws.
    return places, given.uncertain & set(ids.values())


def _reend(cluster: Coordination, name: str, found: SinkState | None) -> Decided | None:
    """Commit the transactions of a decided batch once more: harmless where it was done. What is left cannot be committed.

    While the record says ``DECIDED`` no task has begun anything new under these ids, so a refusal means that the transaction
    was aborted (its timeout passed), or that its id has expired since; who knows whether Spark has heard that all were
    committed can tell the two apart, and that is the task, by its batch."""
    if found is None or found.decided is None or found.phase is Phase.PLANNING:
        return found.decided if found is not None else None
    transactions = found.decided.transactions(name)
    outcomes = cluster.end_transactions(transactions, commit=True)
    refused = []
    for entry, (transactional_id, _) in zip(found.decided.entries, transactions, strict=True):
        error = outcomes[transactional_id]
        if isinstance(error, Fenced | InvalidTransaction):
            log.error("%s of the decided batch %d: %s", transactional_id, found.next_batch - 1, error)
            refused.append(entry)
        elif error is not None:
            raise error
    return dataclasses.replace(found.decided, entries=tuple(refused)) if refused else None


def _planning(
    found: SinkState | None,
    decided: Decided | None,
    settings: Settings,
    anew: bool,
    known: Mapping[str, str],
) -> SinkState:
    """The record that says: a batch is planned. A run goes on as long as every plan of it led to a decision. ``known``: the
    sink's transactional ids, state by id, as far as they were looked for: all of them where there is no record, else those
    with open transactions."""
    ids = [each for each in (read_task_id(settings.name, one) for one in known) if each is not None]
    if found is None:
        # None of the names is used again: also what they have committed stays to be seen.
        number = max((max(each.run, each.plan or 0) for each in ids), default=0) + 1
        return SinkState(run=number, plan=number, next_batch=0, phase=Phase.PLANNING)
    number = found.plan + 1
    answered = settings.answers(found.decision)
    # A transaction under a name of the pool whose task is not in it any more: only new names make it safe to abort.
    outside = any(each.plan is None and each.run == found.run and each.task not in found.ages for each in ids)
    return dataclasses.replace(
        found,
        run=number if found.phase is Phase.PLANNING or answered or anew or outside else found.run,
        plan=number,
        phase=Phase.PLANNING,
        decided=decided,
    )


def _sweep(
    cluster: Coordination, settings: Settings, record: SinkState, found: SinkState | None, left: Iterable[str]
) -> None:
    """Abort what earlier plans left open, so that it does not hold back readers until its timeout. Best effort."""
    old: set[str] = set()
    if found is not None and record.run != found.run:
        # Their zombies are fenced too, who may not have begun yet.
        old.update(pool_id(settings.name, found.run, task) for task in found.ages)
    sweep(cluster, settings, _dead(settings.name, record, left), old)


def _dead(name: str, record: SinkState, left: Iterable[str]) -> list[str]:
    """Those of the ids that no task of this plan or a later one uses, however late it runs."""
    names = []
    for transactional_id in left:
        parsed = read_task_id(name, transactional_id)
        if parsed is not None and (
            parsed.run < record.run if parsed.plan is None else parsed.plan < record.plan
        ):
            names.append(transactional_id)
    return names


def ongoing(cluster: Coordination, name: str) -> list[str]:
    """The sink's open transactions; none when the cluster does not tell (before Kafka 3.0, or for lack of rights)."""
    return _open(_listed(cluster, name, (OPEN,)) or {})


def list_ongoing(cluster: Coordination, name: str) -> list[str]:
    """The sink's open transactions; ``WireError`` when the cluster does not tell."""
    return _open(_list(cluster, name, (OPEN,)))


def _open(known: Mapping[str, str]) -> list[str]:
    return [each for each, state in known.items() if state == OPEN]


def _list(cluster: Coordination, name: str, states: Sequence[str]) -> dict[str, str]:
    known = cluster.list_transactions(f"{name}-", states)
    # Another sink's name may begin with this one.
    return {each: state for each, state in known.items() if is_of_sink(name, each)}


def _listed(cluster: Coordination, name: str, states: Sequence[str]) -> dict[str, str] | None:
    try:
        return _list(cluster, name, states)
    except WireError as error:
        log.warning("transactions of %s cannot be listed: %s", name, error)
        return None


def sweep(cluster: Coordination, settings: Settings, *names: Iterable[str]) -> None:
    """Abort what is open under these ids and fence their producers. What fails is left to its timeout."""
    ids = sorted({each for some in names for each in some})
    if not ids:
        return
    try:
        cluster.init_producer_ids(ids, settings.transaction_timeout_ms)
    except WireError as error:
        log.warning("strays of %s are left to their timeout: %s", settings.name, error)
