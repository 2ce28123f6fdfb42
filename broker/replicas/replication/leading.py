"""The leader's side of a partition with several replicas: progress of the followers, high watermark, ISR.

In Kafka this is the leader's half of ``Partition``. The leader knows of its followers only what their fetches contain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from broker.clock import Domain, Timer
from broker.logging import get_logger
from broker.replicas.replication.progress import Progress
from protocol.errors import NONE, ErrorCode
from protocol.named_tuple import NamedTuple
from storage.files import DamagedFile, StorageError

if TYPE_CHECKING:
    from broker.replicas.partition import Partition
    from broker.replicas.replication.context import ReplicationContext

ISR_RETRY_MS: Final = 1000
"""Milliseconds after which the ISR is checked again when the controller has refused a change."""

log_events = get_logger()


class FollowerFetch(NamedTuple):
    """The content of a follower's Fetch request."""

    follower: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    """Latest leader epoch in the follower's log; -1 if the log has no epoch."""
    log_start_offset: int
    high_watermark: int
    max_bytes: int
    """Maximum number of bytes in the response; 0 if the follower only reports its offsets."""
    broker_epoch: int | None
    """Broker epoch of the follower's current registration (KIP-903); None if its node may not be in the ISR."""


class LeaderResponse(NamedTuple):
    """The leader's response to a follower. With OFFSET_OUT_OF_RANGE it has the leader's log start and log end."""

    error: ErrorCode
    records: bytes = b""
    high_watermark: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) up to which the logs agree, if the follower's log has diverged (KIP-595)."""


class Leading:
    """The leader's state of one partition: the progress of the followers, and the ISR."""

    def __init__(self, partition: Partition, context: ReplicationContext) -> None:
        self._partition = partition
        self._context = context
        self.epoch = -1
        self.epoch_start_offset = -1
        """Log end at the start of this leader's epoch: a follower below it may lack committed records."""
        self.followers: dict[int, Progress] = {}
        self._waiting: dict[int, Callable[[], None]] = {}
        """Callbacks of caught-up followers, whose fetches wait at this leader until there is something new to send."""
        self._proposed: tuple[int, ...] | None = None
        """ISR in the pending AlterPartition request, None if there is none. One request is sent at a time (KIP-497)."""
        self._feeding = False
        self._is_noting_fetch = False
        self._completion: Timer | None = None
        self._retry: Timer | None = None
        self._wait: Timer | None = None
        self._ends_waits = context.fetch_wait_max_ms == 0
        """Whether a fetch gets a response at once if the leader has only a new high watermark for the follower."""
        self._ended = False

    # -- taking over --------------------------------------------------------------------------------------------

    def assume(self) -> None:
        """Lead according to the partition's attributes, after a change of leader epoch, replicas or ISR."""
        partition = self._partition
        known = self.followers
        self.followers = {
            node_id: known.get(node_id) or Progress()
            for node_id in partition.replicas
            if node_id != self._context.node_id
        }
        for node_id in known.keys() - self.followers.keys():
            self._waiting.pop(node_id, None)
        if partition.leader_epoch > self.epoch:
            self._begin_epoch(partition.leader_epoch)
        self._context.watch_lag(partition)
        partition.advance_high_watermark()  # the ISR may be smaller

    def _begin_epoch(self, epoch: int) -> None:
        new_leader = self.epoch < 0
        self.epoch, self.epoch_start_offset = epoch, self._partition.log_end_offset
        now_ms = self._now_ms()
        for node_id, progress in self.followers.items():
            in_sync = node_id in self._partition.isr
            progress.begin_epoch(self.epoch_start_offset, now_ms, new_leader=new_leader, in_sync=in_sync)

    def end(self) -> None:
        """Stop leading the partition."""
        self._ended = True
        self._waiting.clear()
        for timer in (self._completion, self._retry, self._wait):
            if timer is not None:
                timer.cancel()

    def _now_ms(self) -> int:
        return self._context.clock.now_ms(Domain.REPLICATION)

    # -- fetches of followers -----------------------------------------------------------------------------------

    def fetch(self, asked: FollowerFetch, wake: Callable[[], None]) -> LeaderResponse | None:
        """Handle a follower's Fetch. If there is nothing new for the follower, returns None, and calls ``wake`` once
        there is something new.
        """
        partition, progress = self._partition, self.followers.get(asked.follower)
        self._waiting.pop(asked.follower, None)
        if progress is None:
            return LeaderResponse(ErrorCode.not_leader_or_follower)
        if partition.offline is not None:
            return LeaderResponse(ErrorCode.kafka_storage_error)
        error = partition.check_epoch(asked.leader_epoch)
        if error is not NONE:
            return LeaderResponse(error)
        log_start, end_offset = partition.log_start_offset, partition.unconfirmed.written_end_offset
        error, diverging = partition.diverging(asked.last_fetched_epoch, asked.fetch_offset)
        if diverging is not None:
            return LeaderResponse(NONE, diverging=diverging)
        if error is not NONE or not log_start <= asked.fetch_offset <= end_offset:
            return LeaderResponse(
                ErrorCode.offset_out_of_range, log_start_offset=log_start, log_end_offset=end_offset
            )
        try:
            records = self._read(asked, end_offset)
        except DamagedFile as damaged:
            # As for a consumer, other parts of the log are still served. Kafka does so for followers, too.
            partition.log_damaged(damaged.path, asked.fetch_offset, str(damaged))
            return LeaderResponse(ErrorCode.corrupt_message)
        except StorageError as failed:
            return LeaderResponse(partition.go_offline(failed).error)
        # The fetch offset may move the high watermark. As in Kafka (``Partition.fetchRecords``), a fetch that does not
        # wait gets the earlier high watermark. At the end of a wait the leader reads it again.
        high_watermark = partition.high_watermark
        self._note_fetch(asked, progress)
        if asked.fetch_offset == end_offset and asked.log_start_offset >= log_start:
            high_watermark = partition.high_watermark
            if self._waits(asked, wake):
                return None
        return LeaderResponse(NONE, records, high_watermark, log_start, end_offset)

    def _waits(self, asked: FollowerFetch, wake: Callable[[], None]) -> bool:
        """Whether a fetch that gets no records has to wait. If so, add its follower to the waiting ones."""
        is_behind = asked.high_watermark != self._partition.high_watermark
        if is_behind and self._ends_waits:
            return False
        self._waiting[asked.follower] = wake
        if is_behind:
            self._wake_later()
        return True

    def _read(self, asked: FollowerFetch, end_offset: int) -> bytes:
        if asked.max_bytes <= 0:
            return b""
        span = self._partition.log.read(
            asked.fetch_offset, end_offset, asked.max_bytes, whole_first_batch=True
        )
        return span.bytes() if span is not None else b""

    def _note_fetch(self, asked: FollowerFetch, progress: Progress) -> None:
        """Record a follower's progress: it has every record before the fetch offset."""
        moved = asked.fetch_offset != progress.log_end_offset
        shortened = asked.log_start_offset != progress.log_start_offset
        end_offset = self._partition.unconfirmed.written_end_offset
        progress.note_fetch(asked.fetch_offset, asked.log_start_offset, end_offset, self._now_ms())
        progress.broker_epoch = asked.broker_epoch
        if asked.follower not in self.maximal_isr:
            self._expand(asked.follower, progress)
        if shortened:
            self._partition.delayed.notify()  # a DeleteRecords may wait for the follower's log start
        if moved and not self._feeding:
            self._is_noting_fetch = True
            try:
                self._partition.advance_high_watermark()
            finally:
                self._is_noting_fetch = False

    # -- news for followers -------------------------------------------------------------------------------------

    def appended(self) -> None:
        """Wake the waiting followers. A follower on a healthy link has appended the new records when this returns.

        A follower whose Fetch waits at this leader counts as caught up until this append. In Kafka, caught-up followers
        fetch twice a second.
        """
        now_ms = self._now_ms()
        waiting, self._waiting = self._waiting, {}
        for node_id in waiting:
            self.followers[node_id].last_caught_up_ms = now_ms
        self._feeding, before = True, self._feeding
        try:
            for wake in waiting.values():
                wake()
        finally:
            self._feeding = before
        end_offset = self._partition.log_end_offset
        if any(progress.log_end_offset < end_offset for progress in self.followers.values()):
            self._context.watch_lag(self._partition)

    def wake(self) -> None:
        """Respond to all fetches that wait at this leader, although there are no new records."""
        waiting, self._waiting = self._waiting, {}
        self._ends_waits, before = True, self._ends_waits
        try:
            for wake in waiting.values():
                wake()
        finally:
            self._ends_waits = before

    def _wake_later(self) -> None:
        """Respond to the waiting followers after ``replica.fetch.wait.max.ms``, since the high watermark has moved.

        In Kafka, too, a new high watermark does not end the wait of a follower's Fetch: the follower learns it
        with the next records, or at the end of the wait.
        """
        if self._ends_waits:
            self.wake()
        elif self._wait is None and self._waiting:
            self._wait = self._context.clock.call_later_ms(
                self._context.fetch_wait_max_ms, self._end_wait, Domain.REPLICATION
            )

    def _end_wait(self) -> None:
        self._wait = None
        self.wake()

    def forget_waiting(self, is_lost: Callable[[int], bool]) -> None:
        """Drop waiting fetches of followers for which ``is_lost`` is true, because their link is down."""
        for node_id in [each for each in self._waiting if is_lost(each)]:
            del self._waiting[node_id]

    # -- high watermark -----------------------------------------------------------------------------------------

    @property
    def maximal_isr(self) -> Sequence[int]:
        """The ISR plus replicas that a pending AlterPartition would add, for which the high watermark waits (KIP-497)."""
        isr = self._partition.isr
        return (*isr, *(each for each in self._proposed if each not in isr)) if self._proposed else isr

    def is_in_sync(self, node_id: int) -> bool:
        return node_id in self._partition.isr

    def _has_enough(self) -> bool:
        """Whether the maximal ISR satisfies ``min.insync.replicas``."""
        wanted = min(self._partition.log.config.min_insync_replicas, len(self.followers) + 1)
        return len(self.maximal_isr) >= wanted

    def committable(self, end_offset: int) -> int:
        """The offset, at most ``end_offset``, that every relevant replica has reached.

        Relevant are replicas in the maximal ISR, and caught-up replicas that are about to join the ISR, so that the high
        watermark does not run ahead of them. If the ISR is below ``min.insync.replicas``, the high watermark does not move.
        """
        partition = self._partition
        if not partition.has_enough_replicas():
            return partition.high_watermark
        isr, leader_end, now_ms = self.maximal_isr, partition.unconfirmed.written_end_offset, self._now_ms()
        lag_max_ms = self._context.lag_max_ms()
        for node_id, progress in self.followers.items():
            if progress.log_end_offset < end_offset and (
                node_id in isr
                or (
                    progress.is_caught_up(leader_end, now_ms, lag_max_ms)
                    and self._may_join(node_id, progress)
                )
            ):
                end_offset = progress.log_end_offset
        return end_offset

    def committed(self) -> None:
        """Complete waiting requests after the high watermark moved: now, or in a later turn of the event loop if a
        follower's fetch moved it."""
        partition = self._partition
        partition.note_committed()
        if not self._is_noting_fetch:
            self._complete()
        elif self._completion is None:
            self._completion = self._context.clock.call_later_ms(0, self._complete, Domain.REPLICATION)

    def _complete(self) -> None:
        self._completion = None
        if not self._ended:
            self._wake_later()
            # Everything below the high watermark is committed. If the ISR is below min.insync.replicas by now, an acks=all
            # Produce fails with NOT_ENOUGH_REPLICAS_AFTER_APPEND, as in Kafka; its batch stays in the log.
            verdict = NONE if self._has_enough() else ErrorCode.not_enough_replicas_after_append
            self._partition.delayed.committed(self._partition.high_watermark, verdict)

    @property
    def low_watermark(self) -> int:
        """Smallest log start offset of the leader and the live followers."""
        starts = [
            progress.log_start_offset
            for node_id, progress in self.followers.items()
            if self._context.broker_epoch(node_id) is not None
        ]
        return min([self._partition.log_start_offset, *starts])

    # -- ISR ----------------------------------------------------------------------------------------------------

    def _may_join(self, node_id: int, progress: Progress) -> bool:
        """Whether the follower's broker is registered, neither fenced nor in controlled shutdown, and has the broker epoch
        with which it fetched (``Partition.isReplicaIsrEligible``)."""
        broker_epoch = self._context.broker_epoch(node_id)
        return broker_epoch is not None and broker_epoch == progress.broker_epoch

    def _expand(self, node_id: int, progress: Progress) -> None:
        """Propose to add a follower to the ISR, if it has reached the high watermark and the start of this leader's epoch.

        Kafka: ``Partition.maybeExpandIsr``. Call this only for a follower that has just fetched, or whose Fetch
        waits at this leader. The offsets alone do not show that the follower still fetches, since the high
        watermark may not move for a while.
        """
        partition = self._partition
        if (
            self._proposed is None
            and progress.log_end_offset >= max(partition.high_watermark, self.epoch_start_offset)
            and self._may_join(node_id, progress)
        ):
            self._propose((*partition.isr, node_id))

    def shrink(self) -> bool:
        """Propose to remove followers from the ISR that were not caught up for ``replica.lag.time.max.ms``.

        Returns whether to check again later, because a follower in the ISR is behind. As in Kafka, this check
        moves the high watermark only if the ISR changes (``Partition.maybeShrinkIsr``).
        """
        if self._ended:
            return False
        partition = self._partition
        end_offset, now_ms = partition.unconfirmed.written_end_offset, self._now_ms()
        lag_max_ms = self._context.lag_max_ms()
        slow = [
            node_id
            for node_id, progress in self.followers.items()
            if node_id in partition.isr and not progress.is_caught_up(end_offset, now_ms, lag_max_ms)
        ]
        if slow and self._proposed is None:
            self._propose(tuple(node_id for node_id in partition.isr if node_id not in slow))
        return any(
            node_id in partition.isr and progress.log_end_offset != end_offset
            for node_id, progress in self.followers.items()
        )

    def _propose(self, isr: tuple[int, ...]) -> None:
        # Sorted, since Kafka's leader has them in a set, and tools show this order.
        isr = tuple(sorted(isr))
        partition = self._partition
        log_events.info(
            "in-sync replicas change",
            topic=partition.topic,
            partition=partition.index,
            leader_epoch=self.epoch,
            isr=list(isr),
            before=list(partition.isr),
            high_watermark=partition.high_watermark,
            log_end_offset=partition.log_end_offset,
        )
        self._proposed = isr
        task = asyncio.ensure_future(
            self._context.alter_isr(partition.topic, partition.index, self.epoch, isr)
        )
        task.add_done_callback(self._altered)

    def _altered(self, task: asyncio.Future[None]) -> None:
        """Handle the result of AlterPartition. If the change succeeded, this node has already received it through the
        metadata.
        """
        self._proposed = None
        refusal: BaseException | None = None
        with suppress(asyncio.CancelledError):
            refusal = task.exception()
        if self._ended:
            return
        if refusal is not None:
            log_events.info(
                "change of in-sync replicas refused",
                topic=self._partition.topic,
                partition=self._partition.index,
                reason=str(refusal) or repr(refusal),
            )
            if self._retry is None:
                self._retry = self._context.clock.call_later_ms(
                    ISR_RETRY_MS, self._look_again, Domain.REPLICATION
                )
            return
        self._look_again()

    def _look_again(self) -> None:
        """Propose to add waiting followers to the ISR, after an AlterPartition has succeeded or failed.

        A follower whose Fetch waits at this leader counts as one that has just fetched, as it would have in Kafka.
        """
        self._retry = None
        for node_id in self._waiting:
            if node_id not in self.maximal_isr:
                self._expand(node_id, self.followers[node_id])
        self._partition.advance_high_watermark()
