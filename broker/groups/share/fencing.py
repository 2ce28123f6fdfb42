"""Removal of a member from a share group: it leaves, or its session has expired. Pure."""

from __future__ import annotations

from broker.groups.consumer.context import Decision, R, session_timer
from broker.groups.consumer.topics import metadata_hash
from broker.groups.effects import Cancel
from broker.groups.share import records
from broker.groups.share.context import ShareContext
from broker.groups.share.group import ShareGroup
from broker.groups.share.member import ShareGroupMember


def fence(context: ShareContext, group: ShareGroup, member: ShareGroupMember, response: R) -> Decision[R]:
    """Return the decision that removes ``member`` from the group; ``response`` is its response."""
    epoch, after = group.epoch + 1, group.subscriptions.without([member], {})
    decision = Decision(response, records.member_tombstones(group.group_id, member.member_id))
    found_hash = metadata_hash(context.topics, after.topics)
    decision.records.append(records.group_epoch(group.group_id, epoch, found_hash))
    if len(group.members) == 1:
        # Time 0: the next member that joins gets its assignment at once, not after the assignment interval (KIP-1263).
        decision.records.append(records.target_assignment_metadata(group.group_id, epoch, 0))
    decision.timers.append(Cancel(session_timer(member.member_id)))
    return decision


def expired(context: ShareContext, group: ShareGroup, member_id: str) -> Decision[None]:
    """Remove the member whose session timer has fired."""
    member = group.members.get(member_id)
    return Decision(None) if member is None else fence(context, group, member, None)
