"""The name of a sink, and the transactional ids that are derived from it."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

NAME_LENGTH_MAX = 200


class Label(NamedTuple):
    """One attempt of one task. ``attempt_id``: Spark's task attempt id, unique within a driver.

    ``renewals``: the number of transactional ids that the attempt has abandoned because their epoch was uncertain.
    """

    task: int
    attempt_id: int
    renewals: int = 0


class SinkPlace(NamedTuple):
    """The place of a sink's decision record in a cluster: the sink's name, and the topic of the option decisionTopic."""

    name: str
    topic: str

    def __str__(self) -> str:
        return f"{self.name} (decisionTopic {self.topic})"


def driver_id(name: str) -> str:
    """The driver's transactional id: only the current producer of this id can decide a batch."""
    return f"{name}-driver"


def pool_id(name: str, run: int, task: int) -> str:
    """The transactional id of a task in the pool: the driver initialises it for each batch, and one attempt uses it."""
    return f"{name}-{run}-{task}"


def ticket_id(name: str, run: int, task: int) -> str:
    """The transactional id of a task's ticket: the attempt that gets its next epoch may use the pool id."""
    return f"{name}-{run}-{task}-ticket"


def own_id(name: str, run: int, plan: int, label: Label) -> str:
    """A transactional id outside the pool, which only one attempt initialises.

    Each plan has a number that only one driver uses. So no late attempt can fence the producer by mistake.
    """
    more = f".{label.renewals}" if label.renewals else ""
    return f"{name}-{run}-{label.task}-{plan}.{label.attempt_id}{more}"


def query_group(query_id: str) -> str:
    """The consumer group whose offset names the sink that has decided the first batch of a streaming query.

    Spark's query id is in the checkpoint: it does not change when the query gets another name or its checkpoint moves.
    """
    return f"odradek-query-{query_id}"


class TaskId(NamedTuple):
    """The parts of a task's transactional id; ``plan`` is None for an id of the pool."""

    run: int
    task: int
    plan: int | None


def read_task_id(name: str, transactional_id: str) -> TaskId | None:
    """Parse a transactional id; None if it is not the id of a task of the sink ``name``.

    Sinks with similar names share no ids: ``a-1-2`` belongs to ``a``, because an id of ``a-1`` has one more number.
    ``a-1-2-3`` belongs to ``a-1``, because the third part after a sink's name (only in an attempt's own id) has a dot.
    """
    match = re.fullmatch(
        re.escape(name) + r"-(\d+)-(\d+)(?:-(\d+)\.\d+(?:\.\d+)?)?", transactional_id, re.ASCII
    )
    if match is None:
        return None
    run, task, plan = match.groups()
    return TaskId(int(run), int(task), None if plan is None else int(plan))


def is_of_sink(name: str, transactional_id: str) -> bool:
    """Whether the sink may have a transaction under this id: the driver's or a task's."""
    return transactional_id == driver_id(name) or read_task_id(name, transactional_id) is not None


def from_checkpoint(location: str) -> str:
    """A name for a query without one, derived from the location of its checkpoint, which does not change."""
    digest = hashlib.sha256(location.rstrip("/").encode()).hexdigest()
    return f"odradek-{digest[:16]}"
