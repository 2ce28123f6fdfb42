"""The leader's side of a partition with several replicas: who has how much, what is therefore committed, who is in sync.

Kafka's counterpart is the half of ``Partition`` that a leader uses. Nothing is known here but what followers asked for.
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
"""When the controller has refused a change of the in-sync replicas, they are looked at again."""

log_events = get_logger()


class FollowerFetch(NamedTuple):
    """What a follower's Fetch says."""

    follower: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    """-1 when the log has none."""
    log_start_offset: int
    high_watermark: int
    max_bytes: int
    """0: it only tells how far it has come."""
    broker_epoch: int | None
    """Of the follower's present registration (KIP-903); None: its node may not be in sync."""


class LeaderResponse(NamedTuple):
    """What the leader answers. With OFFSET_OUT_OF_RANGE it says where its log begins and ends."""

    error: ErrorCode
    records: bytes = b""
    high_watermark: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    diverging: tuple[int, int] | None = None
    """(epoch, end offset): the follower's log has left the leader's (KIP-595)."""


class Leading:
    """What the leader of one partition knows of its followers."""

    def __init__(self, partition: Partition, context: ReplicationContext) -> None:
        self._partition = partition
        self._context = context
        self.epoch = -1
        self.epoch_start_offset = -1
        """Where this leader's epoch begins: a follower that has not come so far may lack what is committed."""
        self.followers: dict[int, Progress] = {}
        self._waiting: dict[int, Callable[[], None]] = {}
        """Followers that have all: their question waits here until there is more to say."""
        self._proposed: tuple[int, ...] | None = None
        """The in-sync replicas as the controller was asked to have them; one such question at a time (KIP-497)."""
        self._feeding = False
        self._hearing = False
        self._completion: Timer | None = None
        self._retry: Timer | None = None
        self._ended = False

    # -- taking over --------------------------------------------------------------------------------------------

    def assume(self) -> None:
        """Lead as the partition's attributes say: in a new epoch, or with other replicas or in-sync replicas."""
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
        partition.advance_high_watermark()  # there may be one in sync fewer to wait for

    def _begin_epoch(self, epoch: int) -> None:
        new_leader = self.epoch < 0
        self.epoch, self.epoch_start_offset = epoch, self._partition.log_end_offset
        now_ms = self._now_ms()
        for node_id, progress in self.followers.items():
            in_sync = node_id in self._partition.isr
            progress.begin_epoch(self.epoch_start_offset, now_ms, new_leader=new_leader, in_sync=in_sync)

    def end(self) -> None:
        """This node leads the partition no more."""
        self._ended = True
        self._waiting.clear()
        for timer in (self._completion, self._retry):
            if timer is not None:
                timer.cancel()

    def _now_ms(self) -> int:
        return self._context.clock.now_ms(Domain.REPLICATION)

    # -- followers ask ------------------------------------------------------------------------------------------

    def fetch(self, asked: FollowerFetch, wake: Callable[[], None]) -> LeaderResponse | None:
        """What a follower gets; None when it has all: then ``wake`` is called, once, when there is more to say."""
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
            # As for a consumer, the rest of the log is served; Kafka answers followers so, too.
            partition.say_damaged(damaged.path, asked.fetch_offset, str(damaged))
            return LeaderResponse(ErrorCode.corrupt_message)
        except StorageError as failed:
            return LeaderResponse(partition.go_offline(failed).error)
        self._hear(asked, progress)
        # Hearing of it may have moved the high watermark, and that is to be told at once.
        high_watermark = partition.high_watermark
        if (
            asked.fetch_offset == end_offset
            and asked.high_watermark == high_watermark
            and asked.log_start_offset >= log_start
        ):
            self._waiting[asked.follower] = wake
            return None
        return LeaderResponse(NONE, records, high_watermark, log_start, end_offset)

    def _read(self, asked: FollowerFetch, end_offset: int) -> bytes:
        if asked.max_bytes <= 0:
            return b""
        span = self._partition.log.read(
            asked.fetch_offset, end_offset, asked.max_bytes, whole_first_batch=True
        )
        return span.bytes() if span is not None else b""

    def _hear(self, asked: FollowerFetch, progress: Progress) -> None:
        """A follower that fetches from an offset has every record before it."""
        moved = asked.fetch_offset != progress.log_end_offset
        shortened = asked.log_start_offset != progress.log_start_offset
        end_offset = self._partition.unconfirmed.written_end_offset
        progress.note_fetch(asked.fetch_offset, asked.log_start_offset, end_offset, self._now_ms())
        progress.broker_epoch = asked.broker_epoch
        if asked.follower not in self.maximal_isr:
            self._expand(asked.follower, progress)
        if shortened:
            self._partition.delayed.notify()  # a DeleteRecords may wait for it
        if moved and not self._feeding:
            self._hearing = True
            try:
                self._partition.advance_high_watermark()
            finally:
                self._hearing = False

    # -- the leader has news ------------------------------------------------------------------------------------

    def appended(self) -> None:
        """Feed what was appended to the followers that wait: whose links are up, they have it when this returns.

        They had all until now, which a follower that asks twice a second need not be told; here it is noted.
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
        """The high watermark or the log start has moved."""
        waiting, self._waiting = self._waiting, {}
        for wake in waiting.values():
            wake()

    def forget_waiting(self, is_lost: Callable[[int], bool]) -> None:
        """Questions that came over links which are down now are not here any more."""
        for node_id in [each for each in self._waiting if is_lost(each)]:
            del self._waiting[node_id]

    # -- what is committed --------------------------------------------------------------------------------------

    @property
    def maximal_isr(self) -> Sequence[int]:
        """The ISR, and the replicas that the controller was asked to add: waiting for more is safe (KIP-497)."""
        isr = self._partition.isr
        return (*isr, *(each for each in self._proposed if each not in isr)) if self._proposed else isr

    def is_in_sync(self, node_id: int) -> bool:
        return node_id in self._partition.isr

    def _has_enough(self) -> bool:
        """Whether as many are in sync as ``min.insync.replicas`` wants."""
        wanted = min(self._partition.log.config.min_insync_replicas, len(self.followers) + 1)
        return len(self.maximal_isr) >= wanted

    def committable(self, end_offset: int) -> int:
        """What every replica that counts has, of the log up to ``end_offset``.

        Those in sync count, and those that have caught up and are about to join them: else the high watermark would run
        away from them. With too few in sync nothing is committed (``min.insync.replicas``).
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
        """The high watermark has moved. Callbacks run at once, or after the turn of the follower that moved it."""
        partition = self._partition
        partition.note_committed()
        if not self._hearing:
            self._complete()
        elif self._completion is None:
            self._completion = self._context.clock.call_later_ms(0, self._complete, Domain.REPLICATION)

    def _complete(self) -> None:
        self._completion = None
        if not self._ended:
            self.wake()
            # What every replica in sync has is committed. If there are too few of them by now, the client that asked for
            # acks=all is told so: its data stays.
            verdict = NONE if self._has_enough() else ErrorCode.not_enough_replicas_after_append
            self._partition.delayed.committed(self._partition.high_watermark, verdict)

    @property
    def low_watermark(self) -> int:
        """The log start of the replica that has deleted least, of those that run."""
        starts = [
            progress.log_start_offset
            for node_id, progress in self.followers.items()
            if self._context.broker_epoch(node_id) is not None
        ]
        return min([self._partition.log_start_offset, *starts])

    # -- who is in sync -----------------------------------------------------------------------------------------

    def _may_join(self, node_id: int, progress: Progress) -> bool:
        """``Partition.isReplicaIsrEligible``: its broker is registered, not fenced, not about to stop, and in the life
        in which it has fetched."""
        broker_epoch = self._context.broker_epoch(node_id)
        return broker_epoch is not None and broker_epoch == progress.broker_epoch

    def _expand(self, node_id: int, progress: Progress) -> None:
        """``Partition.maybeExpandIsr``: let a follower join that has all that is committed, also of what this leader's
        epoch began with. Only for a follower that has just fetched, or whose Fetch waits here: the offsets alone
        do not tell whether it fetches, and while the high watermark stands still they fit for ever.
        """
        partition = self._partition
        if (
            self._proposed is None
            and progress.log_end_offset >= max(partition.high_watermark, self.epoch_start_offset)
            and self._may_join(node_id, progress)
        ):
            self._propose((*partition.isr, node_id))

    def shrink(self) -> bool:
        """Take those out that have not caught up for ``replica.lag.time.max.ms``. Whether there is more to wait for.

        What holds the high watermark up may also be a follower that is not in sync, was about to be, and is gone.
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
        partition.advance_high_watermark()
        behind = any(
            node_id in partition.isr and progress.log_end_offset != end_offset
            for node_id, progress in self.followers.items()
        )
        return behind or partition.high_watermark < end_offset

    def _propose(self, isr: tuple[int, ...]) -> None:
        # A leader of Kafka's has them as a set: tools show them in this order.
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
        """The controller has decided. What it changed has been told already, by the metadata."""
        self._proposed = None
        refusal: BaseException | None = None
        with suppress(asyncio.CancelledError):
            refusal = task.exception()
        if self._ended:
            return
        if refusal is not None:
            log_events.info(
                "in-sync replicas stay",
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
        """A change of the in-sync replicas is over: followers whose Fetch waits here would have sent it again by now."""
        self._retry = None
        for node_id in self._waiting:
            if node_id not in self.maximal_isr:
                self._expand(node_id, self.followers[node_id])
        self._partition.advance_high_watermark()
