"""Conversion of a group with live members (KIP-848): from classic to consumer group, and back. Pure.

The first ConsumerGroupHeartbeat upgrades a classic group. A group is downgraded when its last consumer protocol member
leaves. A classic group treats the subscriptions and assignments of ``ConsumerProtocol`` as opaque bytes; this module decodes
and encodes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final
from uuid import UUID

from broker.groups.consumer import records
from broker.groups.consumer.assignments import TargetAssignment, at_epoch
from broker.groups.consumer.context import Context, Decision, cancel_timers, refused, session_timer
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from broker.groups.consumer.topics import TopicsImage, metadata_hash
from broker.groups.effects import Arm
from broker.groups.group import CONSUMER_PROTOCOL, ClassicGroup, ClassicGroupConfig, ClassicGroupState
from broker.groups.members import Member
from broker.groups.records import GROUP_METADATA_VERSION, LogRecord
from protocol.errors import ErrorCode
from protocol.records.consumer_protocol import Assignment, Subscription, TopicPartitions
from protocol.records.group_log import ClassicMemberMetadata, ClassicProtocol, GroupMetadataKey
from protocol.schema import MalformedRecord, record_version

NEWEST_PROTOCOL_VERSION: Final = Assignment.VERSIONS[-1]

# -- ConsumerProtocol ---------------------------------------------------------------------------------------------


def encode_assignment(topics: TopicsImage, target: TargetAssignment, subscription: bytes) -> bytes:
    """Encode a target assignment, in the ConsumerProtocol version of the member's encoded ``subscription``."""
    named = [
        TopicPartitions(topic=name, partitions=sorted(indexes))
        for topic_id, indexes in target.items()
        if (name := topics.topic_name(topic_id)) is not None
    ]
    try:
        version = min(max(record_version(subscription), 0), NEWEST_PROTOCOL_VERSION)
    except MalformedRecord:
        version = 0
    return Assignment(assigned_partitions=named).encode(version)


def partitions_by_id(topics: TopicsImage, named: Iterable[TopicPartitions]) -> dict[UUID, frozenset[int]]:
    """Convert partitions by topic name to partitions by topic id. Topics that do not exist are left out."""
    return {
        topic_id: frozenset(topic.partitions)
        for topic in named
        if (topic_id := topics.topic_id(topic.topic)) is not None
    }


# -- to a consumer group ------------------------------------------------------------------------------------------


def check_upgrade(context: Context, group: ClassicGroup) -> None:
    settings = context.settings
    reason = None
    if not settings.migration_policy.upgrades:
        reason = "online upgrade is disabled"
    elif not group.speaks_consumer_protocol:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > settings.group_size_max:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _cannot_upgrade(group, f"{reason}.")


def _cannot_upgrade(group: ClassicGroup, reason: str) -> Exception:
    return refused(
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}",
    )


def upgrade(context: Context, classic: ClassicGroup) -> tuple[ConsumerGroup, list[LogRecord], list[Arm]]:
    """Convert a classic group: returns (consumer group, its records, its members' session timers). Raises `Refused`."""
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.assignment_epoch = classic.generation
    # In the join phase of its first generation a group has not selected a protocol yet. Kafka fails in this case.
    protocol = classic.protocol_name
    if protocol is None and classic.members:
        protocol = classic.members.select_protocol()
    try:
        for member in classic.members:
            _adopt(context, group, member, protocol or "")
    except (MalformedRecord, KeyError):
        raise _cannot_upgrade(classic, "the embedded consumer protocol is malformed.") from None
    except _CustomAssignor:
        raise _cannot_upgrade(
            classic,
            "an unsupported custom assignor is in use. "
            "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade.",
        ) from None
    group.metadata_hash = metadata_hash(context.topics, group.subscriptions.topics)
    written = [LogRecord(GroupMetadataKey(classic.group_id)), *records.group_records(group)]
    sessions = [Arm(session_timer(member.member_id), member.session_timeout_ms) for member in classic.members]
    return group, written, sessions


class _CustomAssignor(Exception):
    """A member's assignment has user data of a custom assignor, which the conversion would lose."""


def _adopt(context: Context, group: ConsumerGroup, member: Member, protocol: str) -> None:
    target: dict[UUID, frozenset[int]] = {}
    if member.assignment:
        assignment = Assignment.decode(member.assignment)
        if assignment.user_data:
            raise _CustomAssignor
        target = partitions_by_id(context.topics, assignment.assigned_partitions)
    subscription = Subscription.decode(member.metadata(protocol))
    protocols = tuple(ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols)
    group.targets[member.member_id] = {topic_id: indexes for topic_id, indexes in target.items() if indexes}
    group.update_member(
        ConsumerGroupMember(
            member_id=member.member_id,
            member_epoch=group.epoch,
            previous_member_epoch=group.epoch,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=frozenset(subscription.topics),
            assigned=at_epoch(group.targets[member.member_id], group.epoch),
            classic=ClassicMemberMetadata(
                session_timeout_ms=member.session_timeout_ms, supported_protocols=protocols
            ),
        )
    )


# -- to a classic group -------------------------------------------------------------------------------------------


def is_downgraded_without(
    context: Context, group: ConsumerGroup, leaving: Collection[ConsumerGroupMember]
) -> bool:
    """Whether only classic members remain when ``leaving`` leave, and the settings allow a downgrade."""
    left = len(group.members) - len(leaving)
    classic = group.classic_members - sum(member.uses_classic_protocol for member in leaving)
    settings = context.settings
    return (
        left > 0
        and classic == left
        and settings.migration_policy.downgrades
        and left <= settings.classic_group_size_max
    )


def is_downgraded_by_replacing(
    context: Context, group: ConsumerGroup, replaced: ConsumerGroupMember | None
) -> bool:
    """Whether the group can be downgraded when a static classic member replaces ``replaced``.

    True if ``replaced`` is the only member of the consumer protocol, and the settings allow a downgrade.
    """
    settings = context.settings
    return (
        replaced is not None
        and not replaced.uses_classic_protocol
        and group.classic_members == len(group.members) - 1
        and settings.migration_policy.downgrades
        and len(group.members) <= settings.classic_group_size_max
    )


def downgrade(
    context: Context,
    group: ConsumerGroup,
    config: ClassicGroupConfig,
    decision: Decision[Any],
    *,
    leaving: Collection[ConsumerGroupMember] = (),
    joining: ConsumerGroupMember | None = None,
    rebalance: bool,
) -> None:
    """Add to ``decision`` the conversion into a classic group without the members ``leaving``.

    ``joining`` is the new incarnation of a static member, and replaces the old one. ``rebalance``: whether the classic
    group then starts a rebalance.
    """
    replaced = group.static_member(joining.instance_id) if joining is not None else None
    renamed = {replaced.member_id: joining.member_id} if replaced is not None and joining is not None else {}
    classic = ClassicGroup(
        group.group_id,
        config,
        state=ClassicGroupState.STABLE,
        state_since_ms=context.now_ms,
        generation=group.epoch,
        protocol_type=CONSUMER_PROTOCOL,
    )
    gone = {member.member_id for member in leaving} | renamed.keys()
    staying = [member for name, member in group.members.items() if name not in gone]
    for member in (*staying, *(() if joining is None else (joining,))):
        classic.members.add(_classic_member(member))
    classic.leader = next((member.member_id for member in classic.members), None)
    classic.protocol_name = classic.members.select_protocol()
    classic.note_subscriptions()
    former = {new: old for old, new in renamed.items()}
    for classic_member in classic.members:
        target = group.target_of(former.get(classic_member.member_id, classic_member.member_id))
        metadata = classic_member.metadata(classic.protocol_name)
        classic_member.assignment = encode_assignment(context.topics, target, metadata)
    classic.assigned_generation = classic.generation
    value = classic.record()
    decision.records += records.group_tombstones(group, renamed)
    decision.records.append(LogRecord(GroupMetadataKey(group.group_id), value, GROUP_METADATA_VERSION))
    classic.written = value
    decision.timers += cancel_timers([*group.members, *renamed.values()])
    decision.timers += (
        Arm(session_timer(member.member_id), member.session_timeout_ms) for member in classic.members
    )
    decision.becomes, decision.rebalances = classic, rebalance


def _classic_member(member: ConsumerGroupMember) -> Member:
    assert member.classic is not None
    return Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=tuple((each.name, each.metadata) for each in member.classic_protocols),
    )
