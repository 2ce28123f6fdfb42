"""What a sink is called, and the transactional ids that follow from it."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

NAME_LENGTH_MAX = 200


class Label(NamedTuple):
    """One attempt of one task. ``attempt_id``: Spark's task attempt id, which no other attempt of the same driver has;
    ``renewals``: how many ids it gave up because it could not know their epoch."""

    task: int
    attempt_id: int
    renewals: int = 0


class SinkPlace(NamedTuple):
    """Where a cluster has a sink's decision record: the sink's name, and the topic of the option decisionTopic."""

    name: str
    topic: str

    def __str__(self) -> str:
        return f"{self.name} (decisionTopic {self.topic})"


def driver_id(name: str) -> str:
    """The driver that owns it may decide."""
    return f"{name}-driver"


def pool_id(name: str, run: int, task: int) -> str:
    """Initialised by the driver for each batch, and used by the one attempt of the task that has the ticket for it."""
    return f"{name}-{run}-{task}"


def ticket_id(name: str, run: int, task: int) -> str:
    """Never has a transaction: its epoch counts the attempts that would like to use the pool's id. See task.py."""
    return f"{name}-{run}-{task}-ticket"


def own_id(name: str, run: int, plan: int, label: Label) -> str:
    """Initialised by the attempt itself only: each plan has a number of its own, and is used by one
    driver. So no late attempt can fence it by mistake."""
    more = f".{label.renewals}" if label.renewals else ""
    return f"{name}-{run}-{label.task}-{plan}.{label.attempt_id}{more}"


def query_group(query_id: str) -> str:
    """The consumer group whose offset says which sink has decided the first batch of a streaming query. Spark's query id
    lives in the checkpoint: it stays when the query gets another name or its checkpoint another place."""
    return f"odradek-query-{query_id}"


class TaskId(NamedTuple):
    """A task's transactional id, read back; ``plan`` is None for one of the pool."""

    run: int
    task: int
    plan: int | None


def read_task_id(name: str, transactional_id: str) -> TaskId | None:
    """None if it is not an id of a task of this sink. (``a-1-2`` is no id of the sink ``a-1``, nor the other way round: the
    third part of an attempt's own id has a dot.)"""
    match = re.fullmatch(
        re.escape(name) + r"-(\d+)-(\d+)(?:-(\d+)\.\d+(?:\.\d+)?)?", transactional_id, re.ASCII
    )
    if match is None:
        return None
    run, task, plan = match.groups()
    return TaskId(int(run), int(task), None if plan is None else int(plan))


def is_of_sink(name: str, transactional_id: str) -> bool:
    """Whether a transaction may be open under this id of the sink: the driver's or a task's."""
    return transactional_id == driver_id(name) or read_task_id(name, transactional_id) is not None


def from_checkpoint(location: str) -> str:
    """A name for a query that has none: of its checkpoint's location, which is as constant as the query."""
    digest = hashlib.sha256(location.rstrip("/").encode()).hexdigest()
    return f"odradek-{digest[:16]}"
