"""Trigger a rebalance: a temporary member joins the group and leaves again."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final
from uuid import uuid4

from odradek.pending import waiting_for
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.messages.describe_groups import DescribedGroup as ClassicGroup
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.records.consumer_protocol import Subscription
from tools.client.cluster import FIRST_PAUSE_S, GROUP, RETRY_PAUSE_S, Cluster
from tools.client.errors import ToolError, check, no_such
from tools.client.groups import classic_group, consumer_group, listed_group

SESSION_MS: Final = 10_000
_JOINS, _LEAVES = 0, -1
"""Member epochs with which a member of the consumer protocol joins and leaves."""


def rebalance_group(cluster: Cluster, group: str, timeout_s: float) -> int:
    """Make the members of a group rebalance. Returns their number. Raises ``ToolError`` for a group without members.

    For a classic group, returns when the rebalance has begun; it ends when the members have joined again. For a consumer
    group (KIP-848), returns when members have released partitions, which they get back.
    """
    found = listed_group(cluster, group)
    if found is None:
        raise no_such("group", group)
    if found.group_type.lower() == "consumer":
        with waiting_for(f"the members of group {group} have not released partitions yet"):
            return _take_and_give_back(cluster, group, timeout_s)
    if found.group_type.lower() not in ("", "classic"):
        raise ToolError(
            f"group {group} is of the type {found.group_type}; only classic and consumer groups can be rebalanced"
        )
    described = classic_group(cluster, group)
    if not described.members:
        raise ToolError(f"group {group} has no members")
    with waiting_for(f"group {group} has not begun to rebalance yet"):
        _join_and_leave(cluster, described, timeout_s)
    return len(described.members)


def _join_and_leave(cluster: Cluster, described: ClassicGroup, timeout_s: float) -> None:
    """Join with the group's protocol and no topics, and leave when the rebalance has begun: it continues without this
    member.
    """
    group = described.group_id
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type=described.protocol_type,
        protocols=[
            JoinGroupRequestProtocol(
                name=described.protocol_data, metadata=Subscription(topics=()).encode(_SUBSCRIPTION)
            )
        ],
    )
    first = cluster.ask_coordinator(GROUP, group, "join_group", request)
    if first.error_code != ErrorCode.member_id_required:
        check(first.error_code, f"group {group}")
    request.member_id = first.member_id
    # The coordinator responds to JoinGroup when all members have joined, so it needs a separate connection.
    with cluster.another() as waiting, ThreadPoolExecutor(1) as executor:
        joined = executor.submit(waiting.ask_coordinator, GROUP, group, "join_group", request)
        try:
            _wait_for_begin(cluster, described, joined, timeout_s)
        finally:
            leaves = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=first.member_id)])
            cluster.ask_coordinator(GROUP, group, "leave_group", leaves)


_SUBSCRIPTION: Final = 0
"""Version of the subscription that the temporary member sends. Every consumer can parse this version."""


def _wait_for_begin(cluster: Cluster, described: ClassicGroup, joined: Future[Any], timeout_s: float) -> None:
    group, deadline, pause_s = described.group_id, time.monotonic() + timeout_s, FIRST_PAUSE_S
    while classic_group(cluster, group).group_state == "Stable":
        if joined.done():
            check(joined.result().error_code, f"group {group}")
            return
        if time.monotonic() > deadline:
            raise ToolError(f"group {group} did not begin to rebalance within {timeout_s:g} s")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, RETRY_PAUSE_S)


# -- the consumer protocol --------------------------------------------------------------------------------------


def _take_and_give_back(cluster: Cluster, group: str, timeout_s: float) -> int:
    """Join with the topics of the other members, and leave when the group is stable again."""
    described = consumer_group(cluster, group)
    if not described.members:
        raise ToolError(f"group {group} has no members")
    topics = sorted({name for member in described.members for name in member.subscribed_topic_names})
    regex = next(
        (each.subscribed_topic_regex for each in described.members if each.subscribed_topic_regex), None
    )
    beat = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=str(uuid4()),
        member_epoch=_JOINS,
        rebalance_timeout_ms=int(timeout_s * 1000),
        subscribed_topic_names=topics,
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            _take_in(beat, _heartbeat(cluster, beat))
            if consumer_group(cluster, group).group_state == "Stable":
                return len(described.members)
            if time.monotonic() > deadline:
                raise ToolError(
                    f"the members of group {group} did not release partitions within {timeout_s:g} s"
                )
            time.sleep(RETRY_PAUSE_S)
    finally:
        leaves = ConsumerGroupHeartbeatRequest(group_id=group, member_id=beat.member_id, member_epoch=_LEAVES)
        _heartbeat(cluster, leaves)


def _take_in(beat: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse) -> None:
    """Copy the epoch and the assigned partitions of the response into the next heartbeat."""
    beat.member_id, beat.member_epoch = response.member_id or beat.member_id, response.member_epoch
    if response.assignment is not None:
        beat.topic_partitions = [
            TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
            for each in response.assignment.topic_partitions
        ]


def _heartbeat(cluster: Cluster, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    response: ConsumerGroupHeartbeatResponse = cluster.ask_coordinator(
        GROUP, request.group_id, "consumer_group_heartbeat", request
    )
    check(response.error_code, f"group {request.group_id}", response.error_message)
    return response
