"""What a sink has decided, for people: from any process, and while a query runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from odradek.spark.sink.decision import Phase
from odradek.spark.sink.options import SinkOptions
from odradek.spark.sink.store import Store
from odradek.spark.wire import Cluster, ProducerId

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decision:
    """The last decision of a sink.

    ``batch``: the last decided one, -1 if there is none, of ``rows`` rows, at ``decided_at`` (UTC). ``phase``:
    ``"decided"``, or ``"planning"`` while a later one is under way (or was given up). ``plan`` counts plans; ``run`` is the
    plan since which nothing has failed. ``transactions``: transactional id and producer of what the decision counts on;
    while planning, what of it could not be committed (that should be empty)."""

    name: str
    batch: int
    phase: str
    query_id: str
    run: int
    plan: int
    rows: int
    decided_at: datetime | None
    transactions: tuple[tuple[str, ProducerId], ...]


def progress(options: Mapping[str, str]) -> Decision | None:
    """Reads the decision record of the sink with these options (those of the query); None if it has never planned a batch.

    It changes nothing and may be called while the query runs. A decision that is being made is waited for."""
    read = SinkOptions.of(options)
    with Cluster(read.client) as cluster:
        record = Store(cluster, read.protocol.name, read.protocol.topic).read()
    if record is None:
        return None
    decided = record.decided
    at = datetime.fromtimestamp(record.decided_at_ms / 1000, UTC) if record.decided_at_ms else None
    return Decision(
        name=read.protocol.name,
        batch=record.next_batch - 1,
        phase="decided" if record.phase is Phase.DECIDED else "planning",
        query_id=record.query_id,
        run=record.run,
        plan=record.plan,
        rows=record.rows,
        decided_at=at,
        transactions=tuple(decided.transactions(read.protocol.name)) if decided else (),
    )
