"""One consumer group (KIP-848) as built from its records. Pure.

Only records change a group: a decision (see `broker.groups.consumer.heartbeat`) lists the records to write, and
`broker.groups.consumer.records.apply` applies them to the group, both after their append and when the log is loaded.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final
from uuid import UUID

from broker.groups.consumer.assignments import NO_TARGET, AssignedPartitions, TargetAssignment
from broker.groups.consumer.member import ConsumerGroupMember, MemberState
from broker.groups.consumer.modern_group import ModernGroup
from broker.groups.consumer.resolved import ResolvedRegex
from protocol.hashing import hash_map_order

UNOWNED: Final = -1
"""Owner epoch of a partition that is assigned to no member."""


class ConsumerGroupState(StrEnum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup(ModernGroup[ConsumerGroupMember]):
    """A group of the consumer protocol: its members, their target assignments and their current assignments."""

    type = "consumer"
    protocol_type: Final = "consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}
        """Instance id -> member id, of each static member."""
        self.resolved: dict[str, ResolvedRegex] = {}
        self.classic_members = 0
        self.has_obsolete_metadata = False
        """Whether the log has partition metadata (obsolete record type 4). A tombstone is written with the next epoch."""
        self._owner_epochs: dict[UUID, dict[int, int]] = {}
        self._assignors: dict[str, int] = {}
        self._classic_protocols: dict[str, int] = {}

    # -- members ------------------------------------------------------------------------------------------------

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members.get(member_id)

    def update_member(self, member: ConsumerGroupMember) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is not None and old.instance_id is not None:
            self.static_members.pop(old.instance_id, None)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._replace(old, member)

    def remove_member(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is None:
            return
        if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
            del self.static_members[old.instance_id]
        self._replace(old, None)

    def _replace(self, old: ConsumerGroupMember | None, new: ConsumerGroupMember | None) -> None:
        if (
            old is None
            or new is None
            or (old.subscribed_topic_names, old.regex) != (new.subscribed_topic_names, new.regex)
        ):
            self.subscriptions.replace_member(old, new)
        if old is not None:
            self._disown(old.assigned, old.member_epoch)
            self._disown(old.pending_revocation, old.member_epoch)
            self._count(old, -1)
        if new is not None:
            self._own(new.assigned, new.member_epoch)
            self._own(new.pending_revocation, new.member_epoch)
            self._count(new, 1)

    def _count(self, member: ConsumerGroupMember, difference: int) -> None:
        if member.server_assignor is not None:
            _add(self._assignors, member.server_assignor, difference)
        if member.classic is not None:
            self.classic_members += difference
            for protocol in member.classic_protocols:
                _add(self._classic_protocols, protocol.name, difference)

    def _own(self, assigned: AssignedPartitions, epoch: int) -> None:
        for topic_id, partitions in assigned.items():
            of_topic = self._owner_epochs.setdefault(topic_id, {})
            for partition in partitions:
                of_topic[partition] = epoch

    def _disown(self, assigned: AssignedPartitions, epoch: int) -> None:
        """Remove the owner epoch of each partition, unless it differs from ``epoch`` because a new owner has set it."""
        for topic_id, partitions in assigned.items():
            of_topic = self._owner_epochs.get(topic_id, {})
            for partition in partitions:
                if of_topic.get(partition) == epoch:
                    del of_topic[partition]
            if not of_topic:
                self._owner_epochs.pop(topic_id, None)

    def owner_epoch(self, topic_id: UUID, partition: int) -> int:
        """Epoch of the member that has the partition, assigned or pending revocation; `UNOWNED` if no member has it."""
        return self._owner_epochs.get(topic_id, {}).get(partition, UNOWNED)

    # -- targets ------------------------------------------------------------------------------------------------

    def target_of(self, member_id: str, instance_id: str | None = None) -> TargetAssignment:
        """Target assignment of a member; a static member under a new member id inherits the one of its old member id."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, "")
        return self.targets.get(member_id, NO_TARGET)

    # -- regular expressions ------------------------------------------------------------------------------------

    def resolve(self, regex: str, resolved: ResolvedRegex | None) -> None:
        old = self.resolved.pop(regex, None)
        if resolved is not None:
            self.resolved[regex] = resolved
        self.subscriptions.replace_resolved(old, resolved)

    @property
    def regexes_resolved_at_ms(self) -> int | None:
        """Time of the last resolution of the regular expressions, which are resolved together; None if there was none."""
        return next((each.timestamp_ms for each in self.resolved.values()), None)

    @property
    def regexes_resolved_in(self) -> int:
        """Metadata version at the last resolution of the regular expressions; 0 if there was none."""
        return next((each.version for each in self.resolved.values()), 0)

    # -- queries ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions.topics

    def preferred_assignor(
        self, old: ConsumerGroupMember | None = None, new: ConsumerGroupMember | None = None
    ) -> str | None:
        """The assignor that most members request, after ``new`` has replaced ``old``; None if no member requests one."""
        counts = dict(self._assignors)
        if old is not None and old.server_assignor is not None:
            _add(counts, old.server_assignor, -1)
        if new is not None and new.server_assignor is not None:
            _add(counts, new.server_assignor, 1)
        # In a tie, the first one in the order of Kafka's hash map is used.
        return max(hash_map_order(counts), key=lambda name: counts[name], default=None)

    def supports_classic(self, protocol_type: str, names: frozenset[str]) -> bool:
        """Whether a member with these classic protocols may join: all classic members must have one protocol in common."""
        if protocol_type != "consumer":
            return False
        if not self.members:
            return bool(names)
        return any(self._classic_protocols.get(name, 0) == self.classic_members for name in names)

    def waits_for_unreleased(self, member: ConsumerGroupMember) -> bool:
        """Whether the member waits, in UnreleasedPartitions, for a partition of its target that another member still has."""
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            partition not in member.assigned.get(topic_id, ())
            and self.owner_epoch(topic_id, partition) != UNOWNED
            for topic_id, partitions in self.target_of(member.member_id).items()
            for partition in partitions
        )

    def image(self) -> dict[str, object]:
        return super().image() | {
            "static": dict(sorted(self.static_members.items())),
            "resolved": dict(sorted(self.resolved.items())),
            "regexes": dict(sorted(self.subscriptions.regexes.items())),
            "owners": {topic_id: dict(sorted(of.items())) for topic_id, of in self._owner_epochs.items()},
            "assignors": dict(sorted(self._assignors.items())),
            "classic": (self.classic_members, dict(sorted(self._classic_protocols.items()))),
            "obsolete": self.has_obsolete_metadata,
        }


def _add(counts: dict[str, int], key: str, difference: int) -> None:
    count = counts.get(key, 0) + difference
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
