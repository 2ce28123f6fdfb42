"""Records that are no longer in a log although their producers may have been told that they are: a ledger with a bound."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import field
from typing import Final

from protocol.slotted import slotted

LOSSES_KEPT: Final = 1000

COMMITTED, PERHAPS_COMMITTED, ACKS_1 = "committed", "perhaps committed", "acks=1"
"""
committed: below the high watermark that the replica knew, so acknowledged whatever acks its producer asked for;
perhaps committed: above it, and the leader was elected uncleanly: acknowledged to acks=all if it was committed after that;
acks=1: never committed, so acknowledged only to a producer with acks=1 or 0.
"""

Key = tuple[str, int, int, int, int, int]


@slotted
class Loss:
    """Batches in a row of one producer, which replicas had and their leader has not."""

    time_ms: int
    """When the first of these replicas gave them up."""
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    producer_id: int
    """-1: a producer without idempotence."""
    producer_epoch: int
    acknowledged: str
    """committed, perhaps committed or acks=1"""
    written_epoch: int
    """The leader epoch in which they were written."""
    leader: int
    """The leader that does not have them."""
    leader_epoch: int
    nodes: list[int] = field(default_factory=list)
    """The replicas that had them."""

    @property
    def key(self) -> Key:
        return (
            self.topic,
            self.partition,
            self.first_offset,
            self.written_epoch,
            self.producer_id,
            self.producer_epoch,
        )


class Losses:
    """The newest; what several replicas give up is one loss."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Loss] = OrderedDict()
        self.dropped = 0
        """How many older ones had no room any more."""

    def __len__(self) -> int:
        return len(self._kept)

    def note(self, loss: Loss) -> None:
        known = self._kept.get(loss.key)
        if known is None:
            self._kept[loss.key] = loss
            if len(self._kept) > LOSSES_KEPT:
                self._kept.popitem(last=False)
                self.dropped += 1
            return
        known.nodes += [node_id for node_id in loss.nodes if node_id not in known.nodes]
        if loss.last_offset > known.last_offset:
            known.last_offset, known.records = loss.last_offset, loss.records
        if _RANKS[loss.acknowledged] < _RANKS[known.acknowledged]:
            known.acknowledged = loss.acknowledged  # this replica knew a higher high watermark

    def list(self) -> tuple[Loss, ...]:
        """The oldest first."""
        return tuple(self._kept.values())

    def clear(self) -> None:
        self._kept.clear()
        self.dropped = 0


_RANKS: Final = {COMMITTED: 0, PERHAPS_COMMITTED: 1, ACKS_1: 2}
