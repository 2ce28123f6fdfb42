"""Evidence that a sink without a decision record has had batches before: its record is lost, and it is not a new sink.

From batch 1 on, Spark's batch number is evidence enough. At batch 0 a missing record means a new query or a lost record: the
group was deleted or has expired, or the query's name or its option decisionTopic has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.spark.sink.decision_record import SinkState
from odradek.spark.sink.names import SinkPlace, read_task_id
from odradek.spark.wire import ProducerId

if TYPE_CHECKING:
    from odradek.spark.sink.store import Store

OPEN = "Ongoing"
# The states of a task's transaction that show that there was a decision.
_COMMITTED = ("PrepareCommit", "CompleteCommit")


def doubt(
    store: Store,
    driver: ProducerId,
    found: SinkState | None,
    mark: SinkPlace | None,
    known: Mapping[str, str],
) -> str:
    """The reason why an earlier decision record of the sink may be lost, for an error message; "" if there is none.

    The reason is a clause such as "it has committed transactions (…)". ``found`` is the decision record that the sink
    has now, ``mark`` the sink that the query's checkpoint names, ``known`` the states of the sink's transactional ids.
    """
    if found is not None and (found.query_id or found.doubt):
        return found.doubt
    if mark is not None and mark != store.place:
        return f"its checkpoint was written by the sink {mark}"
    if found is not None:
        return ""
    if others := sorted({topic for topic, _ in store.anywhere(driver)} - {store.topic}):
        return f"it has a decision record on {', '.join(others)} (the option decisionTopic)"
    if committed := committed_tasks(store.name, known):
        return f"it has committed transactions ({', '.join(committed[:3])})"
    if mark is not None:
        return "its checkpoint shows that it has planned a batch before"
    return ""


def committed_tasks(name: str, known: Mapping[str, str]) -> list[str]:
    """The transactional ids of the sink's tasks whose last transaction was committed."""
    return sorted(each for each, state in known.items() if state in _COMMITTED and read_task_id(name, each))
