"""Clients of the group in a staged problem: a member of the classic protocol, and commits without a member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from broker.metadata.values import GROUP_RESOURCE
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from protocol.messages.share_fetch import FetchPartition as FetchSharePartition
from protocol.messages.share_fetch import FetchTopic as FetchShareTopic
from protocol.messages.share_fetch import ShareFetchRequest
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.consumer_protocol import Assignment, Subscription, TopicPartitions
from tools.client.cluster import GROUP, TRANSACTION, Cluster
from tools.client.producing import Producer

if TYPE_CHECKING:
    from tests.lab.explain.troubles import Stage

RETRIABLE: Final = (
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
)
ACCEPT, RELEASE, REJECT = 1, 2, 3


def commit(stage: Stage, offset: int) -> None:
    """Commit an offset without being a member, as ``odradek group reset`` does."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name=stage.topic, partitions=[partition])]
    request = OffsetCommitRequest(group_id=stage.group, topics=topics)
    stage.cluster.retrying(
        lambda: stage.cluster.ask_coordinator(GROUP, stage.group, "offset_commit", request, 8)
    )


def commit_in(stage: Stage, producer: Producer, offset: int) -> None:
    facts: dict[str, Any] = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    added = AddOffsetsToTxnRequest(transactional_id=stage.id, group_id=stage.group, **facts)
    stage.cluster.ask_coordinator(TRANSACTION, stage.id, "add_offsets_to_txn", added, 3)
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [TxnOffsetCommitRequestTopic(name=stage.topic, partitions=[partition])]
    request = TxnOffsetCommitRequest(
        transactional_id=stage.id, group_id=stage.group, generation_id=-1, topics=topics, **facts
    )
    stage.cluster.ask_coordinator(GROUP, stage.group, "txn_offset_commit", request, 3)


class Member:
    """A member of the classic protocol, with connections of its own."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.cluster = stage.connect()
        self.member_id = ""
        self.generation = -1

    def _ask(self, api: str, request: Any, version: int) -> Any:
        return self.cluster.ask_coordinator(GROUP, self.stage.group, api, request, version)

    def join(self) -> None:
        topics = [self.stage.topic]
        metadata = Subscription(topics=topics).encode(0)
        request = JoinGroupRequest(
            group_id=self.stage.group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        joined = self._ask("join_group", request, 3)
        assert not joined.error_code, joined
        self.member_id, self.generation = joined.member_id, joined.generation_id
        places = [TopicPartitions(topic=self.stage.topic, partitions=[0])]
        given = [
            SyncGroupRequestAssignment(
                member_id=each.member_id,
                assignment=Assignment(
                    assigned_partitions=places if each.member_id == self.member_id else ()
                ).encode(0),
            )
            for each in joined.members
        ]
        sync = SyncGroupRequest(
            group_id=self.stage.group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=given,
        )
        self._ask("sync_group", sync, 3)

    def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.stage.group, generation_id=self.generation, member_id=self.member_id
        )
        return int(self._ask("heartbeat", request, 3).error_code)

    def until_rebalance(self) -> None:
        """Send heartbeats until a rebalance begins because another member has joined. The sending member does not rejoin."""
        while not self.heartbeat():
            pass

    def leave(self) -> None:
        if not self.member_id:
            return
        members = [MemberIdentity(member_id=self.member_id)]
        self._ask("leave_group", LeaveGroupRequest(group_id=self.stage.group, members=members), 3)

    def fetch(self) -> None:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(
            replica_id=-1, max_bytes=1000, topics=[FetchTopic(topic=self.stage.topic, partitions=[wanted])]
        )
        self.cluster.ask_leader(self.stage.topic, 0, "fetch", request, 11)


class Sharing(Protocol):
    """The names and connections that a `ShareMember` uses."""

    topic: str
    group: str

    def connect(self) -> Cluster: ...


class ShareMember:
    """A member of a share group, with a share session on a connection of its own."""

    def __init__(self, stage: Sharing, member_id: str = "b") -> None:
        self.stage = stage
        self.cluster = stage.connect()
        self.member_id = member_id
        self.session_epoch = 0

    def configure(self, **values: str) -> None:
        """Set configs of the group, which reads from the beginning, and assigns partitions at once."""
        usual = {"share_auto_offset_reset": "earliest", "share_assignment_interval_ms": "0"}
        changes = [
            AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in (usual | values).items()
        ]
        resource = AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=self.stage.group, configs=changes
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        (result,) = self.cluster.ask_controller("incremental_alter_configs", request).responses
        assert not result.error_code, result

    def leave(self) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=self.stage.group, member_id=self.member_id, member_epoch=-1
        )
        self.cluster.ask_coordinator(GROUP, self.stage.group, "share_group_heartbeat", request)

    def join(self) -> None:
        """Send heartbeats until partitions are assigned, which are initialized in the background."""
        epoch = 0
        topics: list[str] | None = [self.stage.topic]
        while True:
            request = ShareGroupHeartbeatRequest(
                group_id=self.stage.group,
                member_id=self.member_id,
                member_epoch=epoch,
                subscribed_topic_names=topics,
            )
            answer = self.cluster.ask_coordinator(GROUP, self.stage.group, "share_group_heartbeat", request)
            assert answer.error_code in (0, *RETRIABLE), answer
            if answer.error_code:
                continue
            epoch, topics = answer.member_epoch, None
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return

    def fetch(self, records: int = 1, index: int = 0) -> list[tuple[int, int, int]]:
        """Acquire at most ``records`` records. Returns their ranges with the delivery counts."""
        request = ShareFetchRequest(
            group_id=self.stage.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            max_wait_ms=10_000,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=records,
            batch_size=records,
            share_acquire_mode=1,
            topics=[
                FetchShareTopic(
                    topic_id=self._topic_id(), partitions=[FetchSharePartition(partition_index=index)]
                )
            ],
        )
        answer = self.cluster.ask_leader(self.stage.topic, index, "share_fetch", request)
        assert not answer.error_code, answer
        self.session_epoch += 1
        (partition,) = answer.responses[0].partitions
        assert not partition.error_code, partition
        return [
            (each.first_offset, each.last_offset, each.delivery_count) for each in partition.acquired_records
        ]

    def acknowledge(self, first: int, last: int, kind: int, index: int = 0) -> None:
        batch = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        partition = AcknowledgePartition(partition_index=index, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id=self.stage.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            topics=[AcknowledgeTopic(topic_id=self._topic_id(), partitions=[partition])],
        )
        answer = self.cluster.ask_leader(self.stage.topic, index, "share_acknowledge", request)
        self.session_epoch += 1
        assert not answer.error_code, answer
        assert not answer.responses[0].partitions[0].error_code, answer

    def _topic_id(self) -> UUID:
        (topic,) = self.cluster.refresh([self.stage.topic])
        assert topic.topic_id is not None
        return topic.topic_id
