"""The follower's side of a partition: ask the leader for what follows the log's end, cut off what it does not have, append.

One for each leader epoch. A question and its answer take two steps, so that a link may be slow or cut between them; with
links that are up both happen in one call. Kafka's counterpart is ``AbstractFetcherThread``, truncating on fetch (KIP-595).
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
"""How much a follower asks for (``replica.fetch.max.bytes``), and takes in before others have their turn."""
BACKOFF_MS: Final = 1000
"""``replica.fetch.backoff.ms``: after an error, ask again."""

LOST_MS: Final = 30_000
"""``replica.socket.timeout.ms``: an answer that has not come by then is asked for again."""

log_events = get_logger()


class ReplicaFetcher:
    """The copying of one partition from one leader in one epoch."""

    def __init__(
        self, partition: Partition, context: ReplicationContext, leader_id: int, leader_epoch: int
    ) -> None:
        self._partition = partition
        self._context = context
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self._ended = False
        self._busy = False
        """A question or an answer is on its way, or an answer is held: there is one of them at a time."""
        self._again = False
        self._share = 0
        """The bytes that may still be taken in in this turn."""
        self._failures = 0
        self._timer: Timer | None = None

    def start_soon(self) -> None:
        """Ask in the next turn of the loop, when all nodes have heard who leads."""
        self._later(0, self.pull)

    def end(self) -> None:
        """Another node leads, or the epoch is over: a response that is still on its way is ignored."""
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

    # -- asking -------------------------------------------------------------------------------------------------

    def pull(self) -> None:
        """Ask, unless an answer is awaited: the leader may have more, or a link may be up again."""
        if self._ended or self._partition.offline is not None:
            return
        if self._busy:
            self._again = True
        else:
            self._begin(self._send)

    def _woken(self) -> None:
        """Our question lies at the leader, and now there is an answer."""
        if not self._ended and not self._busy:
            self._begin(self._converse)

    def _begin(self, step: Callable[[], None]) -> None:
        self._busy = True
        self._share = FETCH_BYTES
        step()

    def _rest(self) -> None:
        """Nothing is on its way: the leader, a link, a timer or the disk brings us back."""
        self._busy = False
        if self._again:
            self._again = False
            self.pull()

    def _send(self) -> None:
        delay_ms = self._delay_ms(self._context.node_id, self.leader_id)
        if delay_ms:
            self._later(delay_ms, self._converse)
        else:
            self._converse()

    def _converse(self) -> None:
        """Our question has arrived; go on with answer and question until one of them has to wait."""
        while not self._ended:
            fetched = self._ask()
            if fetched is None:
                break
            delay_ms = self._delay_ms(self.leader_id, self._context.node_id)
            if delay_ms:
                self._later(delay_ms, partial(self._arrived, fetched))
                return
            if not self._take(fetched):
                return
            if self._is_sated(fetched):
                self._later(0, partial(self._begin, self._send))
                return
            if self._delay_ms(self._context.node_id, self.leader_id):
                self._send()
                return
        self._rest()

    def _arrived(self, fetched: LeaderResponse) -> None:
        """An answer over a slow link; over one that was cut meanwhile it does not come."""
        if not self._is_connected():
            self._rest()
        elif self._take(fetched):
            self._share = FETCH_BYTES
            self._send()

    def _is_sated(self, fetched: LeaderResponse) -> bool:
        """This turn's share is taken in, its end was told to the leader, and there is more."""
        return self._share <= 0 and not fetched.records and fetched.diverging is None

    def _ask(self) -> LeaderResponse | None:
        """The leader's response. None when no leader can be reached or it has nothing new: then it wakes this follower."""
        partition, context = self._partition, self._context
        log = partition.log
        if not self._is_connected() or partition.unconfirmed.confirmed_end_offset < log.log_end_offset:
            return None
        if log.epochs.latest < 0 and log.log_end_offset > partition.high_watermark:
            # It cannot be compared with the leader's: only what is committed is certain.
            truncate(partition, partition.high_watermark, context)
        peer = context.peers(self.leader_id)
        leader = peer.get(partition.topic, partition.index) if peer is not None else None
        leading = leader.leading if leader is not None else None
        if not isinstance(leading, Leading):
            return LeaderResponse(ErrorCode.not_leader_or_follower)
        question = FollowerFetch(
            context.node_id,
            self.leader_epoch,
            log.log_end_offset,
            log.epochs.latest,
            log.log_start_offset,
            partition.high_watermark,
            max(self._share, 0),
            context.broker_epoch(context.node_id),
        )
        return leading.fetch(question, self._woken)

    def _is_connected(self) -> bool:
        """Whether this node is still there, fetches at all, and reaches the leader and is reached by it."""
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

    # -- taking in ----------------------------------------------------------------------------------------------

    def _take(self, fetched: LeaderResponse) -> bool:
        """Apply a response; False if that has to wait, and then continues by itself."""
        if fetched.error is ErrorCode.offset_out_of_range:
            return self._go_back(fetched)
        if fetched.error is not NONE:
            return self._back_off(fetched.error)
        if fetched.diverging is not None:
            return self._cut(*fetched.diverging)
        if fetched.records and self._context.injection.points is not None:
            return self._pass(fetched)
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
                # Not one whole batch (a damaged length in the leader's file): to ask again at once would never end.
                error = ErrorCode.corrupt_message
            if error is not NONE:
                return self._back_off(error)
        partition.update_from_leader(fetched.high_watermark, fetched.log_start_offset)
        self._failures = 0
        return True

    def _begin_with_whole_batch(self, records: bytes) -> None:
        """Move an empty log back to the base offset of its first batch, if the leader's log starts inside that batch.

        DeleteRecords moves a log start to any offset. Kafka: ``UnexpectedAppendOffsetException``, which
        ``Partition.appendRecordsToFollowerOrFutureReplica`` catches.
        """
        partition = self._partition
        try:
            first = RecordBatch.parse(records, 0)
        except CorruptBatch:
            return  # the append refuses it
        if first.base_offset < partition.log_end_offset <= first.last_offset:
            truncate_fully_and_start_at(partition, first.base_offset, self._context)

    def _pass(self, fetched: LeaderResponse) -> bool:
        """Append, unless the step is held at ``replica.append``: then later, or, if it is lost, after the next fetch."""
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
        """Ask again later; at once the first time, for who leads may not be known everywhere yet."""
        self._busy = self._again = False
        if self._partition.offline is None:
            self._failures += 1
            self._later(0 if self._failures == 1 else BACKOFF_MS, self.pull)
            if self._failures == 2:
                log_events.info(
                    "follower waits",
                    topic=self._partition.topic,
                    partition=self._partition.index,
                    leader=self.leader_id,
                    leader_epoch=self.leader_epoch,
                    reason=error.name,
                )
        return False

    def _cut(self, epoch: int, end_offset: int) -> bool:
        """Cut off what the leader does not have, as far as this answer tells; the next one may tell more (KIP-279).

        If we have not the epoch that the leader names, we cut to where the next older one of ours ends, and ask again.
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
            # No word of the leader's lets us find where we parted: that must not become a loop.
            return self._back_off(ErrorCode.offset_out_of_range)
        return partition.offline is None

    def _go_back(self, fetched: LeaderResponse) -> bool:
        """Our end lies outside of the leader's log: behind its end (an unclean election), or below its start."""
        partition = self._partition
        if fetched.log_end_offset < partition.log_end_offset:
            truncate(partition, fetched.log_end_offset, self._context)
        elif fetched.log_start_offset > partition.log_end_offset:
            truncate_fully_and_start_at(partition, fetched.log_start_offset, self._context)
        else:
            return self._back_off(fetched.error)
        return partition.offline is None
