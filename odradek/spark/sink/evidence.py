"""What says that a sink had batches of which its decision record says nothing: then silence is not taken for "new".

Where Spark is at batch 1 or later, its own number says so. At batch 0 a missing record means a new query, or a lost record:
the group was deleted or has expired, the query has another name now, or the option decisionTopic another value.
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
# A task's transaction is committed after a decision only.
_COMMITTED = ("PrepareCommit", "CompleteCommit")


def doubt(
    store: Store,
    driver: ProducerId,
    found: SinkState | None,
    mark: SinkPlace | None,
    known: Mapping[str, str],
) -> str:
    """Why the sink's record may be a lost one, as the end of a sentence; "" if nothing says so. ``found``: the record;
    ``mark``: what the checkpoint says; ``known``: the sink's transactional ids, state by id."""
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
        return "its checkpoint says that it has planned a batch before"
    return ""


def committed_tasks(name: str, known: Mapping[str, str]) -> list[str]:
    """The transactional ids of the sink's tasks whose last transaction is committed."""
    return sorted(each for each, state in known.items() if state in _COMMITTED and read_task_id(name, each))
