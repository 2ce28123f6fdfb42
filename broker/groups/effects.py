"""The effects of an event on a classic group. ``GroupShard.run`` carries out the effects of one list in order.

An ``Append`` is a barrier: the responses after it in the list are sent once its record is committed, or as errors if the
append fails. Timers after it do not wait. A list has at most one ``Append``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from broker.groups.members import Member
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse
from protocol.messages.sync_group import SyncGroupResponse
from protocol.records.group_log import GroupMetadataValue
from protocol.slotted import slotted

Response = JoinGroupResponse | SyncGroupResponse | LeaveGroupResponse


class Timed(Enum):
    """The purpose of a group's timer."""

    JOIN = "join"
    """The end of a classic group's join phase, or of the initial delay before it.

    In a consumer group: the time by which a member of the classic protocol must have sent JoinGroup again.
    """
    SYNC = "sync"
    """The time by which all members of a classic group, or one member of a consumer group, must have sent SyncGroup."""
    SESSION = "session"
    """The end of the session of a member, or of a pending member id."""
    REBALANCE = "rebalance"
    """The time by which a member of a consumer group must have revoked partitions."""
    REGEX = "regex"
    """The resolution of a consumer group's regular expressions."""


@slotted(frozen=True)
class Timer:
    """Identity of a timer within its group; starting a timer again reschedules it."""

    what: Timed
    member_id: str = ""


JOIN_TIMER = Timer(Timed.JOIN)
SYNC_TIMER = Timer(Timed.SYNC)
REGEX_TIMER = Timer(Timed.REGEX)


@slotted(frozen=True)
class Created:
    """Purpose of an append: the group's first record, for a group without members."""


@slotted(frozen=True)
class Emptied:
    """Purpose of an append: the record of a group whose last member has left."""


@slotted(frozen=True)
class Assigned:
    """Purpose of an append: a record with the leader's assignments of one generation."""

    generation: int
    assignments: Mapping[str, bytes]


@slotted(frozen=True)
class Replaced:
    """Purpose of an append: a static member has returned under a new id, in a group that does not rebalance (KIP-814)."""

    old: Member
    new_id: str
    old_leader: str | None
    api_version: int


@slotted(frozen=True)
class Append:
    """Effect: write ``value`` as the group's record, and call ``on_append_committed`` once it is committed or has failed."""

    value: GroupMetadataValue
    purpose: Created | Emptied | Assigned | Replaced


@slotted(frozen=True)
class Answer:
    """Effect: send ``response`` to the request that waits under ``token``."""

    token: object
    response: Response


@slotted(frozen=True)
class Arm:
    timer: Timer
    delay_ms: int
    member_epoch: int = -1
    """The member epoch for which a REBALANCE timer was started; -1 in other timers.

    The timer has no effect if the member has a later epoch when it fires.
    """
    if_absent: bool = False
    """Whether a timer that is already running stays unchanged, instead of being rescheduled."""


@slotted(frozen=True)
class Cancel:
    timer: Timer


Effect = Append | Answer | Arm | Cancel
