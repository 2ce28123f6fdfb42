"""The follower's side of a partition: fetch from the leader what follows the log end, truncate where logs diverge, append.

There is one fetcher for each leader epoch. Request and response are separate steps, so that a link may be slow or cut
between them; over a healthy link both happen in one call. Kafka: ``AbstractFetcherThread``, truncating on fetch (KIP-595).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.clock import Domain, Timer
from broker.injection.points import InjectionPoint
from broker.logging import get_logger
from broker.replicas.replication.leading import FollowerFetch, LeaderResponse, Leading
from broker.replicas.replication.truncation import truncate, truncate_fully_and_start_at
from protocol.batch import CorruptBatch, RecordBatch
from protocol.errors import NONE, ErrorCode
from storage.epochs import UNDEFINED

if TYPE_CHECKING:
    from broker.replicas.partition import Partition
    from broker.replicas.replication.context import ReplicationContext

FETCH_BYTES: Final = 1024 * 1024
"""Maximum bytes of one fetch (``replica.fetch.max.bytes``), and of all fetches in one turn of the event loop."""
BACKOFF_MS: Final = 1000
"""``replica.fetch.backoff.ms``: delay of the next fetch after an error."""

LOST_MS: Final = 30_000
"""``replica.socket.timeout.ms``: a fetch without a response is repeated after this time."""

log_events = get_logger()


class ReplicaFetcher:
    """Replicates one partition from one leader in one leader epoch."""

    def __init__(
        self, partition: Partition, context: ReplicationContext, leader_id: int, leader_epoch: int
    ) -> None:
        self._partition = partition
        self._context = context
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self._ended = False
        self._busy = False
        """Whether a fetch is in progress: its request or response is in transit, or the response is held by a rule."""
        self._again = False
        self._share = 0
        """Number of bytes that may still be appended in this turn of the event loop."""
        self._failures = 0
        self._timer: Timer | None = None

    def start_soon(self) -> None:
        """Fetch in the next turn of the event loop, when all nodes have applied the change of leader."""
        self._later(0, self.pull)

    def end(self) -> None:
        """Stop, because the leader or the epoch changed. A response in transit is ignored."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    def _later(self, delay_ms: float, step: Callable[[], None]) -> None:
        def go_on() -> None:
            self._timer = None
            if not self._ended:
                step()

        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._context.clock.call_later_ms(delay_ms, go_on, Domain.REPLICATION)

    # -- fetching -----------------------------------------------------------------------------------------------

    def pull(self) -> None:
        """Fetch now, or after the current response: the leader may have more records, or a link may be up again."""
        if self._ended or self._partition.offline is not None:
            return
        if self._busy:
            self._again = True
        else:
            self._begin(self._send)

    def _woken(self) -> None:
        """Fetch again. The leader, where the last fetch waits, calls this when there is something to fetch."""
        if not self._ended and not self._busy:
            self._begin(self._fetch_repeatedly)

    def _begin(self, step: Callable[[], None]) -> None:
        self._busy = True
        self._share = FETCH_BYTES
        step()

    def _become_idle(self) -> None:
        """Become idle, or fetch again if `pull` was called during the fetch.

        When idle, a wake-up by the leader, a link, a timer or a flush starts the next fetch.
        """
        self._busy = False
        if self._again:
            self._again = False
            self.pull()

    def _send(self) -> None:
        delay_ms = self._delay_ms(self._context.node_id, self.leader_id)
        if delay_ms:
            self._later(delay_ms, self._fetch_repeatedly)
        else:
            self._fetch_repeatedly()

    def _fetch_repeatedly(self) -> None:
        """Fetch from the leader, apply the response and fetch again, until one of these steps has to wait."""
        while not self._ended:
            fetched = self._fetch()
            if fetched is None:
                break
            delay_ms = self._delay_ms(self.leader_id, self._context.node_id)
            if delay_ms:
                self._later(delay_ms, partial(self._receive, fetched))
                return
            if not self._apply(fetched):
                return
            if self._is_share_used_up(fetched):
                self._later(0, partial(self._begin, self._send))
                return
            if self._delay_ms(self._context.node_id, self.leader_id):
                self._send()
                return
        self._become_idle()

    def _receive(self, fetched: LeaderResponse) -> None:
        """Apply a response that has arrived over a slow link. The response is lost if the link was cut meanwhile."""
        if not self._is_connected():
            self._become_idle()
        elif self._apply(fetched):
            self._share = FETCH_BYTES
            self._send()

    def _is_share_used_up(self, fetched: LeaderResponse) -> bool:
        """Whether the bytes for this turn of the event loop are fetched and acknowledged, so that the next fetch waits for
        the next turn.
        """
        return self._share <= 0 and not fetched.records and fetched.diverging is None

    def _fetch(self) -> LeaderResponse | None:
        """Send a fetch and return the leader's response.

        None if the leader is not reachable, the disk has not confirmed all appends yet, or there is nothing new. In the
        last case the fetch waits at the leader, which calls `_woken`.
        """
        partition, context = self._partition, self._context
        log = partition.log
        if not self._is_connected() or partition.unconfirmed.confirmed_end_offset < log.log_end_offset:
            return None
        if log.epochs.latest < 0 and log.log_end_offset > partition.high_watermark:
            # Without a leader epoch this log cannot be compared with the leader's: only the committed part is kept.
            truncate(partition, partition.high_watermark, context)
        peer = context.peers(self.leader_id)
        leader = peer.get(partition.topic, partition.index) if peer is not None else None
        leading = leader.leading if leader is not None else None
        if not isinstance(leading, Leading):
            return LeaderResponse(ErrorCode.not_leader_or_follower)
        request = FollowerFetch(
            context.node_id,
            self.leader_epoch,
            log.log_end_offset,
            log.epochs.latest,
            log.log_start_offset,
            partition.high_watermark,
            max(self._share, 0),
            context.broker_epoch(context.node_id),
        )
        return leading.fetch(request, self._woken)

    def _is_connected(self) -> bool:
        """Whether this node runs, its fetching of the partition is not paused, and the link to the leader is up both
        ways."""
        context, partition, links = self._context, self._partition, self._context.injection.links
        if not context.is_here():
            return False
        if links.all_up:
            return True
        me, leader = context.node_id, self.leader_id
        return not (
            links.is_cut(me, leader)
            or links.is_cut(leader, me)
            or links.is_paused(me, partition.topic, partition.index)
        )

    def _delay_ms(self, sender: int, receiver: int) -> int:
        links = self._context.injection.links
        return 0 if links.all_up else links.delay_ms(sender, receiver)

    # -- applying responses -------------------------------------------------------------------------------------

    def _apply(self, fetched: LeaderResponse) -> bool:
        """Apply a response. Returns False if the fetch loop must stop: a timer or callback starts it again."""
        if fetched.error is ErrorCode.offset_out_of_range:
            return self._handle_out_of_range(fetched)
        if fetched.error is not NONE:
            return self._back_off(fetched.error)
        if fetched.diverging is not None:
            return self._truncate_diverging(*fetched.diverging)
        if fetched.records and self._context.injection.points is not None:
            return self._append_past_point(fetched)
        return self._append(fetched)

    def _append(self, fetched: LeaderResponse) -> bool:
        partition = self._partition
        if fetched.records:
            self._share -= len(fetched.records)
            if partition.log_start_offset == partition.log_end_offset:
                self._begin_with_whole_batch(fetched.records)
            before = partition.log_end_offset
            error = partition.append_replicated(fetched.records)
            if error is NONE and partition.log_end_offset == before:
                # The response has no whole batch (a corrupt length in the leader's file). Fetching at once would loop.
                error = ErrorCode.corrupt_message
            if error is not NONE:
                return self._back_off(error)
        partition.update_from_leader(fetched.high_watermark, fetched.log_start_offset)
        self._failures = 0
        return True

    def _begin_with_whole_batch(self, records: bytes) -> None:
        """Move the start of the empty log back to the base offset of the first batch in ``records``, if the log starts
        inside of that batch.

        An empty log starts at the leader's log start, which DeleteRecords may move into a batch. Kafka:
        ``UnexpectedAppendOffsetException``, which ``Partition.appendRecordsToFollowerOrFutureReplica`` catches.
        """
        partition = self._partition
        try:
            first = RecordBatch.parse(records, 0)
        except CorruptBatch:
            return  # `append_replicated` returns the error
        if first.base_offset < partition.log_end_offset <= first.last_offset:
            truncate_fully_and_start_at(partition, first.base_offset, self._context)

    def _append_past_point(self, fetched: LeaderResponse) -> bool:
        """Append through the injection point ``replica.append``, which may hold the step.

        If the step is still held after ``LOST_MS``, the response is dropped and fetched again. Returns as `_apply`
        does.
        """
        at_once, is_open = True, True
        done = False

        def settle(step: Callable[[], bool]) -> None:
            nonlocal done, is_open
            if self._ended or not is_open:
                return
            is_open = False
            done = step()
            if done and not at_once:
                self._begin(self._send)

        def lost() -> None:
            nonlocal is_open
            is_open = False
            self._begin(self._send)

        partition = self._partition
        at = InjectionPoint("replica.append", self._context.node_id, partition.topic, partition.index)
        self._context.injection.intercept(
            at,
            lambda: settle(lambda: self._append(fetched)),
            lambda error: settle(lambda: self._back_off(error)),
        )
        at_once = False
        if is_open:
            self._later(LOST_MS, lost)
        return done

    def _back_off(self, error: ErrorCode) -> bool:
        """Schedule the next fetch: at once after the first error, since not all nodes may have the new leader yet."""
        self._busy = self._again = False
        if self._partition.offline is None:
            self._failures += 1
            self._later(0 if self._failures == 1 else BACKOFF_MS, self.pull)
            if self._failures == 2:
                log_events.info(
                    "follower backs off",
                    topic=self._partition.topic,
                    partition=self._partition.index,
                    leader=self.leader_id,
                    leader_epoch=self.leader_epoch,
                    reason=error.name,
                )
        return False

    def _truncate_diverging(self, epoch: int, end_offset: int) -> bool:
        """Truncate to the point up to which the logs agree, as far as this response shows (KIP-279).

        If this log does not have the epoch that the leader names, truncate to the end of this log's next older epoch.
        The response to the next fetch then shows more.
        """
        partition, log = self._partition, self._partition.log
        known_epoch, known_end = partition.end_offset_for_epoch(epoch)
        if epoch < 0 or (known_epoch, known_end) == UNDEFINED:
            target = end_offset
        elif known_epoch != epoch:
            target = known_end
        else:
            target = min(known_end, end_offset)
        before = log.log_end_offset, log.epochs.latest
        truncate(partition, min(target, log.log_end_offset), self._context)
        if before == (log.log_end_offset, log.epochs.latest):
            # Nothing was truncated, so fetching again at once would loop.
            return self._back_off(ErrorCode.offset_out_of_range)
        return partition.offline is None

    def _handle_out_of_range(self, fetched: LeaderResponse) -> bool:
        """Truncate this log to the leader's log end if it is longer (unclean election). If it ends before the
        leader's log start, delete it and start it there. Returns as `_apply` does.
        """
        partition = self._partition
        if fetched.log_end_offset < partition.log_end_offset:
            truncate(partition, fetched.log_end_offset, self._context)
        elif fetched.log_start_offset > partition.log_end_offset:
            truncate_fully_and_start_at(partition, fetched.log_start_offset, self._context)
        else:
            return self._back_off(fetched.error)
        return partition.offline is None
