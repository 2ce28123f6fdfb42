"""What the logs of the running nodes hold of a transactional id. (Signatures; what they do comes next.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.node import Node
from broker.trace.trace import Trace


class UnknownTransaction(LookupError):
    """No running node has heard of this transactional id; the text says so."""


class Timeline:
    """The life of one transactional id."""

    def to_json(self) -> dict[str, Any]:
        """{"transactional_id", "transactions": [...], "events": [...], "scanned": [...]}."""
        raise NotImplementedError

    def to_text(self) -> str:
        """A table for people."""
        raise NotImplementedError


async def timeline(nodes: Sequence[Node], transactional_id: str, trace: Trace | None = None) -> Timeline:
    """Read it from the logs of the leaders among ``nodes`` (the running ones), and from the trace's ring.

    Long logs are read in slices: others have their turns. ``UnknownTransaction`` if there is no such id.
    """
    raise NotImplementedError


def transactions(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Every transactional id that the coordinators on ``nodes`` know, by its name.

    [{"transactional_id", "state": "ONGOING", "producer_id", "producer_epoch", "timeout_ms", "start_ms", "last_update_ms",
    "partitions": ["orders-0"], "coordinator": node id}]
    """
    raise NotImplementedError
