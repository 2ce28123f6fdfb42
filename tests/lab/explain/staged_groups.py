"""Clients of the group in a staged problem: a member of the classic protocol, and commits without a member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.consumer_protocol import Assignment, Subscription, TopicPartitions
from tools.client.cluster import GROUP, TRANSACTION
from tools.client.producing import Producer

if TYPE_CHECKING:
    from tests.lab.explain.troubles import Stage


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
