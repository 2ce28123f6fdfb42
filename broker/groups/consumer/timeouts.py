"""Expiry of a consumer group member's timers: its session, and its time to revoke partitions. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.groups.consumer.context import Context, Decision, rebalance_timer
from broker.groups.consumer.fencing import fence
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember, MemberState
from broker.groups.effects import Arm, Timed, Timer
from broker.groups.group import ClassicGroupConfig


def expired(
    context: Context, group: ConsumerGroup, config: ClassicGroupConfig, timer: Timer, member_epoch: int
) -> Decision[None]:
    """Remove the member whose timer has fired, unless it is a REBALANCE timer of an earlier member epoch."""
    member = group.members.get(timer.member_id)
    if member is None or (timer.what is Timed.REBALANCE and member.member_epoch != member_epoch):
        return Decision(None)
    return fence(context, group, config, [member], None)


def loaded(context: Context, group: ConsumerGroup) -> Iterable[Arm]:
    """Yield the timers of a group that was loaded from the log.

    Each member gets a full session, and a full rebalance timeout if it has to revoke partitions.
    """
    for member in group.members.values():
        yield Arm(Timer(Timed.SESSION, member.member_id), context.settings.session_timeout_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            yield revoke_by(member)


def revoke_by(member: ConsumerGroupMember) -> Arm:
    """Return the timer that removes the member if it has not revoked its partitions in time."""
    return Arm(
        rebalance_timer(member.member_id), member.rebalance_timeout_ms, member_epoch=member.member_epoch
    )
