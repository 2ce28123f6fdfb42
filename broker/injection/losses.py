"""Bounded ledger of lost records: records that a log no longer has, although they may have been acknowledged."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import field
from typing import Final

from protocol.slotted import slotted

LOSSES_KEPT: Final = 1000

COMMITTED, PERHAPS_COMMITTED, ACKS_1 = "committed", "perhaps committed", "acks=1"
"""For which acks lost records may have been acknowledged.

- committed: for any acks, because they were below the high watermark of the replica.
- perhaps committed: perhaps for acks=all. They were above the high watermark, but the leader was elected
  uncleanly.
- acks=1: only for acks=1 or 0, because they were never committed.
"""

Key = tuple[str, int, int, int, int, int]


@slotted
class Loss:
    """Consecutive batches of one producer that some replicas had, and the leader does not have."""

    time_ms: int
    """Time at which the first replica removed the lost batches."""
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    producer_id: int
    """Producer id in the lost batches; -1 for a producer without idempotence."""
    producer_epoch: int
    acknowledged: str
    """How the records may have been acknowledged: `COMMITTED`, `PERHAPS_COMMITTED` or `ACKS_1`."""
    written_epoch: int
    """Leader epoch in which the lost batches were written."""
    leader: int
    """The node that led the partition when the lost batches were removed, and did not have them."""
    leader_epoch: int
    nodes: list[int] = field(default_factory=list)
    """Nodes whose replicas had the lost batches."""

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
    """The latest losses, at most ``LOSSES_KEPT``. If several replicas remove the same batches, that is one loss."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Loss] = OrderedDict()
        self.dropped = 0
        """Number of older losses that were discarded."""

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
            known.acknowledged = loss.acknowledged  # this replica had a higher high watermark

    def list(self) -> tuple[Loss, ...]:
        """The recorded losses, oldest first."""
        return tuple(self._kept.values())

    def clear(self) -> None:
        self._kept.clear()
        self.dropped = 0


_RANKS: Final = {COMMITTED: 0, PERHAPS_COMMITTED: 1, ACKS_1: 2}
