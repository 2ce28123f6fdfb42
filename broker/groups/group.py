"""One classic group as a value: what it is, what its record says, and which moves between states are legal. Pure.

What happens to a group is in ``broker.groups.classic``; how a rebalance goes is in ``broker.groups.rebalance``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Final

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


# From which states a group may come into each. An unlisted move is a mistake of ours.
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
    """The broker's settings that the state machine depends on."""

    initial_rebalance_delay_ms: int = 3_000
    group_size_max: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    """How long a new member's JoinGroup may wait: its client may have gone, and cannot be heard."""
    pending_members_max: int = 10_000
    """Ids given out that have not come back yet (KIP-394). Kafka has no such bound; each lives one session."""


@slotted
class ClassicGroup:
    """One group. Members with their unanswered requests, pending ids and timers are not in the log; the rest is."""

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
    """Ids that were given out with MEMBER_ID_REQUIRED, in order."""
    pending_syncs: set[str] = field(default_factory=set)
    assigned_generation: int = -1
    """The generation whose assignments are in the log, or on their way there: the leader is heard once."""
    new_member_added: bool = False
    initial_delay_ms: int = 0
    initial_remaining_ms: int = 0
    subscriptions: tuple[bytes, ...] | None = None
    """What the members of this generation subscribe to, unparsed; None when that is not for us to know."""
    last_append: object | None = None
    """The last of its records that was to be written; None of a deleted group."""
    written: GroupMetadataValue | None = None
    """The last record of this group in the log: what a rebuilt memory would start from."""
    unwritten: bool = False
    """It is Empty, and the log does not say so: that record was refused. A restart brings its last members back."""

    def move_to(self, state: ClassicGroupState, now_ms: int) -> None:
        assert self.state in LEGAL_ORIGINS[state], f"{self.group_id}: {self.state} -> {state}"
        self.previous_state, self.state = self.state, state
        if state is not ClassicGroupState.STABLE:
            # The record of a Stable group is written before the group is Stable, with the time of the state before.
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
        """Made by nothing but commits."""
        return self.protocol_type is None and self.state is ClassicGroupState.EMPTY and not self.pending_joins

    @property
    def speaks_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    def supports(self, protocol_type: str, names: frozenset[str]) -> bool:
        """May a member with these protocols join? An empty group takes any."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        return self.protocol_type == protocol_type and self.members.support_any(names)

    def remove(self, member_id: str) -> Member | None:
        """Forget an id, a member's or a pending one. Without its leader the group has the next member as one."""
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
        """Remember what the members subscribe to under the protocol that was chosen."""
        if not self.speaks_consumer_protocol or (self.members and self.protocol_name is None):
            self.subscriptions = None
        else:
            self.subscriptions = tuple(member.metadata(self.protocol_name or "") for member in self.members)

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics of the current generation; None if they are unknown.

        Parsed only when a request needs them, and a subscription that does not parse makes them unknown: a member can write
        anything, and its bytes must not keep this group, let alone its partition, from loading.
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
        """Whether the offsets of this topic are in use. Unknown subscriptions count as being in use."""
        topics = self.subscribed_topics()
        return self.speaks_consumer_protocol if topics is None else topic in topics

    def record(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadataValue:
        """The group as its record says it, with the members' own assignments if none are given."""
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
        """A group as the log remembers it: with members it is Stable, without it is Empty."""
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
    """Every version of a subscription begins with the fields of version 0, and the topics are all that we need."""
    if record_version(subscription) < 0:
        raise MalformedRecord("a subscription of a negative version")
    return Subscription.decode_body(subscription, 0, 2)[0].topics
