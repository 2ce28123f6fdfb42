"""One classic group as a value: its fields, its record, and the valid transitions between its states. Pure.

The events of a group are in ``broker.groups.classic``, its rebalance in ``broker.groups.rebalance``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import ClassVar, Final

from broker.groups.members import NO_ASSIGNMENT, Member, Members
from protocol.records.consumer_protocol import Subscription
from protocol.records.group_log import GroupMetadataValue, MemberMetadata
from protocol.schema import MalformedRecord, record_version
from protocol.slotted import slotted

CONSUMER_PROTOCOL: Final = "consumer"
NO_TIMESTAMP: Final = -1


class ClassicGroupState(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# Valid previous states of each state. Any other transition is a bug of the broker.
LEGAL_ORIGINS: Final = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.EMPTY, ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}


@slotted(frozen=True)
class ClassicGroupConfig:
    """The settings of the broker that the state machine of classic groups uses."""

    initial_rebalance_delay_ms: int = 3_000
    group_size_max: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    """Session timeout of a new member while its JoinGroup waits. It has no member id for heartbeats yet."""
    pending_members_max: int = 10_000
    """Maximum number of member ids that were assigned but have not joined yet (KIP-394).

    Kafka has no such limit. Each pending member id expires after the session timeout.
    """


@slotted
class ClassicGroup:
    """One classic group. Waiting requests, pending member ids and timers are not in the log, the other fields are."""

    type: ClassVar[str] = "classic"

    group_id: str
    config: ClassicGroupConfig
    state: ClassicGroupState = ClassicGroupState.EMPTY
    previous_state: ClassicGroupState = ClassicGroupState.DEAD
    state_since_ms: int = NO_TIMESTAMP
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: Members = field(default_factory=Members)
    pending_joins: dict[str, None] = field(default_factory=dict)
    """Member ids that clients got with MEMBER_ID_REQUIRED but have not joined with yet, oldest first."""
    pending_syncs: set[str] = field(default_factory=set)
    assigned_generation: int = -1
    """Last generation whose assignments are in the log or being appended; -1 if there is none.

    A second SyncGroup of the leader cannot change the assignments of this generation.
    """
    new_member_added: bool = False
    initial_delay_ms: int = 0
    initial_remaining_ms: int = 0
    subscriptions: tuple[bytes, ...] | None = None
    """The subscriptions of this generation's members, unparsed; None if the group does not use the consumer protocol."""
    last_append: object | None = None
    """The group's `Append` that was started last; None after the group was deleted."""
    written: GroupMetadataValue | None = None
    """Value of the group's last committed record, from which a new coordinator would rebuild the group."""
    unwritten: bool = False
    """True if the group became Empty, but the append of its record failed: a restart would restore its last members."""

    def move_to(self, state: ClassicGroupState, now_ms: int) -> None:
        assert self.state in LEGAL_ORIGINS[state], f"{self.group_id}: {self.state} -> {state}"
        self.previous_state, self.state = self.state, state
        if state is not ClassicGroupState.STABLE:
            # The record of a Stable group is written before the transition, with the timestamp of the previous state.
            self.state_since_ms = now_ms

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    @property
    def can_rebalance(self) -> bool:
        return self.state in LEGAL_ORIGINS[ClassicGroupState.PREPARING_REBALANCE]

    @property
    def all_have_joined(self) -> bool:
        return self.members.awaiting_join == len(self.members) and not self.pending_joins

    @property
    def is_simple(self) -> bool:
        """Whether the group was created by commits alone, without members."""
        return self.protocol_type is None and self.state is ClassicGroupState.EMPTY and not self.pending_joins

    @property
    def speaks_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    def supports(self, protocol_type: str, names: frozenset[str]) -> bool:
        """Whether a member with these protocols may join. An empty group accepts every protocol."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        return self.protocol_type == protocol_type and self.members.support_any(names)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending member id. If the member was the leader, the next member becomes the leader."""
        member = self.members.remove(member_id)
        if member_id == self.leader:
            self.leader = next((other.member_id for other in self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)
        return member

    def start_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.protocol_name = self.members.select_protocol() if self.members else None
        self.note_subscriptions()
        self.pending_syncs.clear()
        self.move_to(
            ClassicGroupState.COMPLETING_REBALANCE if self.members else ClassicGroupState.EMPTY, now_ms
        )

    def note_subscriptions(self) -> None:
        """Store the members' subscriptions for the selected protocol."""
        if not self.speaks_consumer_protocol or (self.members and self.protocol_name is None):
            self.subscriptions = None
        else:
            self.subscriptions = tuple(member.metadata(self.protocol_name or "") for member in self.members)

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics to which the current generation subscribes; None if they are unknown.

        Subscriptions are parsed only when a request needs them. If one cannot be parsed, the topics are unknown: a member
        can send any bytes, and they must not prevent this group, or its partition, from loading.
        """
        if self.subscriptions is None:
            return None
        topics: set[str] = set()
        for subscription in self.subscriptions:
            try:
                topics.update(_topics_of(subscription))
            except MalformedRecord:
                return None
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the group subscribes to the topic. True if it is a group of consumers with unknown subscriptions."""
        topics = self.subscribed_topics()
        return self.speaks_consumer_protocol if topics is None else topic in topics

    def record(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadataValue:
        """Return the value of the group's record, with ``assignments`` if given, else with the members' assignments."""
        members = []
        for member in self.members:
            assert self.protocol_name is not None
            given = (
                member.assignment if assignments is None else assignments.get(member.member_id, NO_ASSIGNMENT)
            )
            members.append(
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=given,
                )
            )
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp_ms=self.state_since_ms,
            members=tuple(members),
        )

    @classmethod
    def from_record(
        cls, group_id: str, config: ClassicGroupConfig, value: GroupMetadataValue
    ) -> ClassicGroup:
        """Build a group from its record: Stable if the record has members, otherwise Empty."""
        group = cls(
            group_id,
            config,
            state=ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY,
            state_since_ms=value.current_state_timestamp_ms,
            generation=value.generation,
            protocol_type=value.protocol_type or None,
            protocol_name=value.protocol,
            leader=value.leader,
            written=value,
        )
        for loaded in value.members:
            group.protocol_name = value.protocol or ""
            group.members.remove(loaded.member_id)
            if loaded.group_instance_id is not None:
                group.members.remove(group.members.static_id(loaded.group_instance_id) or "")
            group.members.add(
                Member(
                    member_id=loaded.member_id,
                    group_instance_id=loaded.group_instance_id,
                    client_id=loaded.client_id,
                    client_host=loaded.client_host,
                    # Values of version 0 have no rebalance timeout.
                    rebalance_timeout_ms=(
                        loaded.session_timeout_ms
                        if loaded.rebalance_timeout_ms == -1
                        else loaded.rebalance_timeout_ms
                    ),
                    session_timeout_ms=loaded.session_timeout_ms,
                    protocols=((group.protocol_name, loaded.subscription),),
                    assignment=loaded.assignment,
                )
            )
        if group.members and group.leader not in group.members:
            group.leader = next(member.member_id for member in group.members)
        group.note_subscriptions()
        return group


def _topics_of(subscription: bytes) -> Sequence[str]:
    """Return the topics of a subscription. Every version begins with the fields of version 0, which contain them."""
    if record_version(subscription) < 0:
        raise MalformedRecord("the version of a subscription must not be negative")
    return Subscription.decode_body(subscription, 0, 2)[0].topics
