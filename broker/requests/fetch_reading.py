"""Reads the partitions of a Fetch: which of them may be read, how much of each, and whether the request must wait for data.

In Kafka this is part of KafkaApis.handleFetchRequest, ReplicaManager.readFromLog and DelayedFetch.tryComplete.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from broker.node.context import RequestContext
from broker.node.fetch_sessions import Answers, CachedPartition
from broker.replicas.partition import Partition
from broker.replicas.replication.leading import Leading
from broker.replicas.replication.selection import RACK_AWARE, preferred_replica
from broker.requests.metadata_views import CLUSTER_NAME, topic_name
from broker.resources.unsent import UNSENT
from protocol.errors import NONE, ErrorCode
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    LeaderIdAndEpoch,
    PartitionData,
)
from protocol.named_tuple import NamedTuple

READ_COMMITTED: Final = 1
STORAGE_ERROR_SINCE: Final = 6
RACKS_SINCE: Final = 11
"""First version in which a consumer sends its rack, and may be redirected to a follower and read from it (KIP-392)."""
TOPIC_IDS_SINCE: Final = 13
LEADER_HINTS_SINCE: Final = 16
NOT_A_LEADER_HERE: Final = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)
NOT_DIVERGING: Final = (NONE, None)


class ReadOutcome(NamedTuple):
    """The result of reading all partitions of a Fetch once."""

    answers: Answers
    bytes_read: int
    must_answer: bool
    """Whether to respond without waiting: a partition has an error, a diverging epoch or a preferred replica."""


class FetchReading:
    """The partitions of one Fetch, which are read again until the response can be sent."""

    __slots__ = (
        "_bytes_max",
        "_context",
        "_interesting",
        "_knows_racks",
        "_node",
        "_rack",
        "_read_committed",
        "_replica_id",
        "min_bytes",
        "readable",
        "refused",
    )

    def __init__(
        self,
        request: FetchRequest,
        context: RequestContext,
        partitions: Sequence[CachedPartition],
        follower: int,
        bytes_max: float = inf,
    ) -> None:
        self._context = context
        self._node = context.node
        self._read_committed = request.isolation_level == READ_COMMITTED
        self._replica_id = follower
        self._knows_racks = context.api_version >= RACKS_SINCE and self._replica_id < 0
        self._rack = request.rack_id if self._knows_racks else ""
        self._bytes_max = int(min(request.max_bytes, context.node.config.fetch_max_bytes, bytes_max))
        self.min_bytes = min(request.min_bytes, self._bytes_max)
        self.readable: list[tuple[CachedPartition, Partition]] = []
        """Partitions without an error in the last `read`. The request watches them while it waits."""
        self._interesting: list[CachedPartition] = []
        self.refused: Answers = []
        # Followers need CLUSTER_ACTION on the cluster, and no operation on the topic.
        may_follow = (
            self._replica_id < 0
            or self._node.authorizer is None
            or context.authorize("CLUSTER_ACTION", "CLUSTER", CLUSTER_NAME)
        )
        for wanted in partitions:
            error = self._refusal(wanted) if may_follow else ErrorCode.topic_authorization_failed
            if error is NONE:
                self._interesting.append(wanted)
            else:
                self.refused.append((wanted, _without_data(wanted, error, aborted=())))
        if self.refused:
            # Kafka resolves topic ids before it checks authorization, so unknown ids come first.
            self.refused.sort(key=lambda each: each[1].error_code != ErrorCode.unknown_topic_id)

    def _refusal(self, wanted: CachedPartition) -> ErrorCode:
        """The error for which the partition is not read at all, or NONE. As in Kafka, such an error does not complete the
        Fetch early.
        """
        if wanted.topic is None:
            # The session may have been created with the id before the topic was created.
            wanted.topic = topic_name(self._node, wanted.topic_id)
            if wanted.topic is None:
                return ErrorCode.unknown_topic_id
        if (
            self._node.authorizer is not None
            and self._replica_id < 0
            and not self._context.authorize("READ", "TOPIC", wanted.topic)
        ):
            return ErrorCode.topic_authorization_failed
        if self._node.replicas.opened_leader(wanted.topic, wanted.index) is None:
            topic = self._node.metadata.topic(wanted.topic)
            if topic is None or topic.partition(wanted.index) is None:
                return ErrorCode.unknown_topic_or_partition
        return NONE

    def read(self) -> ReadOutcome:
        answers: Answers = []
        self.readable = []
        bytes_left = min(self._bytes_max, UNSENT.room_bytes)
        bytes_read, must_answer = 0, not self._interesting
        for wanted in self._interesting:
            # KIP-74: until some partition returned data, its first batch is returned whole, however large, for progress.
            answer = self._read_one(wanted, bytes_left, whole_first_batch=bytes_read == 0)
            answers.append((wanted, answer))
            if (
                answer.error_code != NONE
                or answer.diverging_epoch.epoch >= 0
                or answer.preferred_read_replica >= 0
            ):
                must_answer = True
            # `Partition.read` returns bytes; only the type of the field also allows a list of chunks.
            size = len(answer.records or b"")
            bytes_read += size
            bytes_left = max(bytes_left - size, 0)
        return ReadOutcome(answers, bytes_read, must_answer)

    def _read_one(
        self, wanted: CachedPartition, bytes_left: int, *, whole_first_batch: bool
    ) -> PartitionData:
        partition = self._replica(wanted)
        if isinstance(partition, ErrorCode):
            return self._failed(wanted, partition)
        preferred = self._preferred(partition, wanted.offset) if self._rack else None
        if preferred is not None:
            return _elsewhere(wanted, partition, preferred)
        error, diverging = partition.diverging(wanted.last_fetched_epoch, wanted.offset)
        if error is not NONE:
            return self._failed(wanted, error)
        if diverging is not None:
            return _diverged(wanted, partition, diverging)
        max_bytes = min(wanted.max_bytes, bytes_left)
        if max_bytes < 0:
            # A client's error: Kafka's log throws for this partition, and the other partitions are read.
            return self._failed(wanted, ErrorCode.unknown_server_error)
        result = partition.read(
            wanted.offset, max_bytes, read_committed=self._read_committed, whole_first_batch=whole_first_batch
        )
        if result.error is not NONE:
            return self._failed(wanted, result.error)
        self.readable.append((wanted, partition))
        aborted = None
        # Where Kafka omits a first batch that does not fit, it also omits this list: null, not [].
        if self._read_committed and (
            result.records or max_bytes == 0 or wanted.offset >= result.last_stable_offset
        ):
            aborted = [
                AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in result.aborted or ()
            ]
        return PartitionData(
            partition_index=wanted.index,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            aborted_transactions=aborted,
            records=result.records,
        )

    def _preferred(self, partition: Partition, offset: int) -> int | None:
        """Id of a follower in the consumer's rack to read from.

        None if there is none, if this node does not lead the partition, or without a rack-aware replica selector.
        """
        leading = partition.leading
        if not isinstance(leading, Leading) or self._node.config.replica_selector_class != RACK_AWARE:
            return None
        brokers = self._node.metadata.brokers
        return preferred_replica(
            leading.followers, partition.isr, partition.leader_id, brokers, self._rack, offset
        )

    def _replica(self, wanted: CachedPartition) -> Partition | ErrorCode:
        """The partition, if the sender may read it on this node and the topic id matches; else the error."""
        topic, index = wanted.topic or "", wanted.index
        partition: Partition | ErrorCode | None = self._node.replicas.opened_leader(topic, index)
        if partition is None:
            partition = self._node.replicas.hosted(topic, index)
        if isinstance(partition, ErrorCode):
            return partition
        if wanted.topic_id is not None and partition.topic_id != wanted.topic_id:
            # The topic was deleted and recreated under the same name since the session learnt its id.
            return ErrorCode.inconsistent_topic_id
        if wanted.leader_epoch >= 0:
            error = partition.check_epoch(wanted.leader_epoch)
            if error is not NONE:
                return error
        if not self._knows_racks and partition.leader_id != self._node.node_id:
            return ErrorCode.not_leader_or_follower
        if self._replica_id >= 0 and not _is_follower(partition, self._replica_id):
            # The sender is not a replica of this partition. As in Kafka, the code depends on whether it sent an epoch.
            if wanted.leader_epoch >= 0:
                return ErrorCode.unknown_leader_epoch
            return ErrorCode.not_leader_or_follower
        return partition

    def ready(self) -> bool:
        """Whether to read the partitions again: ``min_bytes`` are available, or further waiting would not help.

        The cases are those of Kafka's ``DelayedFetch``.
        """
        available = 0
        for wanted, partition in self.readable:
            if self._replica(wanted) is not partition:
                return True
            end = partition.last_stable_offset if self._read_committed else partition.high_watermark
            if wanted.offset > end:
                return True
            if wanted.offset < end:
                size, in_older_segment = partition.readable_bytes(
                    wanted.offset, read_committed=self._read_committed
                )
                if in_older_segment:
                    # A read ends at the end of its segment, so waiting would not make it longer.
                    return True
                available += min(size, wanted.max_bytes)
            if partition.diverging(wanted.last_fetched_epoch, wanted.offset) != NOT_DIVERGING:
                return True
        return available >= self.min_bytes

    def _failed(self, wanted: CachedPartition, error: ErrorCode) -> PartitionData:
        version = self._context.api_version
        if error is ErrorCode.kafka_storage_error and version < STORAGE_ERROR_SINCE:
            # Clients of these versions do not know KAFKA_STORAGE_ERROR.
            error = ErrorCode.not_leader_or_follower
        answer = _without_data(wanted, error)
        if version >= LEADER_HINTS_SINCE and error in NOT_A_LEADER_HERE:
            topic = self._node.metadata.topic(wanted.topic or "")
            state = topic.partition(wanted.index) if topic else None
            if state is not None:
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=state.leader, leader_epoch=state.leader_epoch
                )
        return answer


def replica_id(request: FetchRequest) -> int:
    """Broker id of the fetching follower, -1 for a consumer. Version 15 moved the id into a tagged field (KIP-903)."""
    return max(request.replica_id, request.replica_state.replica_id)


def _is_follower(partition: Partition, replica_id: int) -> bool:
    return replica_id in partition.replicas and replica_id != partition.leader_id


def _diverged(wanted: CachedPartition, partition: Partition, diverging: tuple[int, int]) -> PartitionData:
    """A response without data that names the epoch and offset at which the client's log diverged (KIP-320, KIP-595)."""
    return PartitionData(
        partition_index=wanted.index,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        aborted_transactions=None,
        records=b"",
    )


def _elsewhere(wanted: CachedPartition, partition: Partition, preferred: int) -> PartitionData:
    """A response without data that sends the consumer to a replica nearer to it (KIP-392)."""
    return PartitionData(
        partition_index=wanted.index,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        preferred_read_replica=preferred,
        aborted_transactions=None,
        records=b"",
    )


def _without_data(
    wanted: CachedPartition, error: ErrorCode, aborted: Sequence[AbortedTransaction] | None = None
) -> PartitionData:
    return PartitionData(
        partition_index=wanted.index,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=aborted,
        records=b"",
    )
