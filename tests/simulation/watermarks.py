"""Checks of high watermarks at each change: a replica that does not lead serves no record that no leader has committed.

A check of all replicas once per second would miss most violations, because a wrong high watermark of a follower is
corrected by its next fetch. So the checks follow each method of `Partition` that may change the high watermark or the log
end.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from unittest.mock import patch
from uuid import UUID

from broker.metadata.partition_change import RECOVERING
from broker.metadata.values import PartitionState, Topic
from broker.replicas.partition import Partition, bounds
from broker.replicas.replication.leading import Leading
from storage.epochs import LeaderEpochs
from tests.simulation.consumers import whole_batches
from tests.simulation.ledger import Broken

Key = tuple[UUID, int]
"""(topic id, partition)."""

MOVES: Final = (
    *("__init__", "advance_high_watermark", "update_from_leader", "truncate_by"),
    *("note_flushed", "_decided", "delete_records", "drop_oldest"),
)


class Shown(NamedTuple):
    """The last record that any consumer got. A replica with this record also has all records before it."""

    offset: int
    epoch: int
    """Leader epoch of the record."""


class Committed:
    """The records that leaders have committed: the high watermark, and the leader epochs below it."""

    def __init__(self) -> None:
        self._high_watermark = 0
        self.leader_epoch = -1
        self._epochs = LeaderEpochs()

    def __repr__(self) -> str:
        return f"{self._high_watermark} records with the epochs {self._epochs.entries()[-3:]}"

    def extend(self, leader: Partition) -> None:
        """Add the records up to the leader's high watermark, which may have changed."""
        self._high_watermark = max(self._high_watermark, leader.high_watermark)
        self.leader_epoch = leader.leader_epoch
        if leader.log.epochs.latest != self._epochs.latest:
            self._epochs = LeaderEpochs(leader.log.epochs.entries())

    def has(self, replica: Partition) -> bool:
        """Whether all records below a replica's high watermark are committed."""
        last = replica.high_watermark - 1
        return last < replica.log_start_offset or self.covers(
            Shown(last, replica.log.epochs.epoch_for_offset(last))
        )

    def covers(self, last: Shown) -> bool:
        """Whether the record ``last``, and so each record before it, is committed."""
        known = self._epochs.epoch_for_offset(last.offset)
        return last.offset < self._high_watermark and known in (last.epoch, -1)


class Watermarks:
    """By partition, the records that leaders have committed, and the last record that a consumer got."""

    def __init__(self) -> None:
        self.broken: str | None = None
        """The first violation. It is stored because the broker code in which it is found might catch an exception."""
        self._committed: dict[Key, list[Committed]] = {}
        """By partition: the committed records. An unclean election, which may lose some, begins a new element."""
        self._shown: dict[Key, Shown] = {}
        self._unclean: dict[Key, int] = {}
        """By partition: the leader epoch of its last unclean election."""

    def check(self) -> None:
        """Raise ``Broken`` if a check of a high watermark or of a served record has failed."""
        if self.broken is not None:
            raise Broken(self.broken)

    def _fail(self, text: str) -> None:
        self.broken = self.broken or text

    # ---- replicas

    def moved(self, partition: Partition) -> None:
        """Check a partition whose high watermark, log start or log end may have changed."""
        if partition.offline is not None:
            return
        key, high_watermark = (partition.topic_id, partition.index), partition.high_watermark
        if not partition.log_start_offset <= high_watermark <= partition.log_end_offset:
            ends = (partition.log_start_offset, high_watermark, partition.log_end_offset)
            self._fail(f"{_name(partition)}: log start, high watermark, log end are {ends}")
        if partition.leading is not None or partition.leads_alone:
            self._extend(key, partition)
        elif len(partition.replicas) > 1 and not any(each.has(partition) for each in self._history(key)):
            self._fail(
                f"{_name(partition)} does not lead (the leader is {partition.leader_id}) and has the high watermark "
                f"{high_watermark} with the epochs {partition.log.epochs.entries()[-3:]}; leaders committed "
                f"{self._history(key)[-1]}"
            )

    def _extend(self, key: Key, leader: Partition) -> None:
        latest = self._history(key)[-1]
        if leader.leader_epoch > latest.leader_epoch >= 0 and _is_led_uncleanly(leader):
            latest = Committed()
            self._history(key).append(latest)
        if leader.leader_epoch >= latest.leader_epoch:
            latest.extend(leader)

    def _history(self, key: Key) -> list[Committed]:
        return self._committed.setdefault(key, [Committed()])

    def out_of_bounds(self, partition: Partition) -> None:
        """Note a violation of the bounds, in place of the broker's error line (`broker.replicas.partition.bounds`)."""
        self.moved(partition)
        raise AssertionError(self.broken)

    # ---- consumers

    def shown(self, key: Key, records: bytes, leader: Partition | None) -> None:
        """Check that leaders have committed the batches that a consumer got from any replica, and note the last one.

        ``leader`` is the partition's current leader, if any.
        """
        last = next(iter(deque(whole_batches(records), maxlen=1)), None)
        if last is None:
            return
        found = Shown(last.last_offset, last.partition_leader_epoch)
        if not any(each.covers(found) for each in self._history(key)):
            self._fail(f"{key}: a consumer got {found}; leaders committed {self._history(key)[-1]}")
        if found.epoch < self._unclean.get(key, -1) and (leader is None or not _has(leader, found)):
            return  # the replica has not learned of the unclean election yet
        before = self._shown.get(key)
        if before is None or found.offset > before.offset:
            self._shown[key] = found

    def leads(self, leader: Partition) -> None:
        """Check that a new leader has all records that consumers were served."""
        key = (leader.topic_id, leader.index)
        shown = self._shown.get(key)
        if shown is not None and not _has(leader, shown):
            self._fail(
                f"{_name(leader)} leads in epoch {leader.leader_epoch} without {shown}, which a consumer was served; "
                f"its log ends at {leader.log_end_offset}, with epochs {leader.log.epochs.entries()[-3:]}"
            )

    def elected(self, topic: Topic, state: PartitionState) -> bool:
        """Whether this is a new unclean election. If so, forget the record that consumers got last."""
        if state.leader_recovery_state != RECOVERING:
            return False
        key = (topic.topic_id, state.index)
        if state.leader_epoch > self._unclean.get(key, -1):
            self._unclean[key] = state.leader_epoch
            self._shown.pop(key, None)
            return True
        return False


def _is_led_uncleanly(leader: Partition) -> bool:
    leading = leader.leading
    return isinstance(leading, Leading) and leading._context.is_led_uncleanly(leader)


def _has(replica: Partition, shown: Shown) -> bool:
    if shown.offset < replica.log_start_offset:
        return True
    if shown.offset >= replica.log_end_offset:
        return False
    return bool(replica.log.epochs.epoch_for_offset(shown.offset) == shown.epoch)


def _name(partition: Partition) -> str:
    return f"{partition.name} on node {partition._node_id}"


@contextlib.contextmanager
def watching(watermarks: Watermarks) -> Iterator[None]:
    """Context manager: check all replicas of this process after each change."""

    def checked(move: Callable[..., Any]) -> Callable[..., Any]:
        def then_check(partition: Partition, *arguments: Any, **named: Any) -> Any:
            try:
                return move(partition, *arguments, **named)
            finally:
                watermarks.moved(partition)

        return then_check

    def committed(leading: Leading) -> None:
        watermarks.moved(leading._partition)  # before its followers are notified
        tell(leading)

    tell = Leading.committed
    with contextlib.ExitStack() as patched:
        patched.enter_context(patch.object(Leading, "committed", committed))
        for name in MOVES:
            patched.enter_context(patch.object(Partition, name, checked(getattr(Partition, name))))
        patched.enter_context(patch.object(bounds, "report", watermarks.out_of_bounds))
        yield
