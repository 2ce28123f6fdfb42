"""The effects of an event on a classic group. ``GroupShard.run`` carries out the effects of one list in order.

An ``Append`` is a barrier: the responses that follow it in the list are sent once the record is committed, or as errors if
the append fails. Timers are not delayed. A list has at most one ``Append``.
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
    """The join phase, or the initial delay before it."""
    SYNC = "sync"
    """The sync phase: all members must have sent SyncGroup by then."""
    SESSION = "session"
    """The session of a member, or of a pending member id."""
    REBALANCE = "rebalance"
    """The time in which a member of a consumer group must have revoked partitions."""
    REGEX = "regex"
    """The resolution of a consumer group's regular expressions."""


@slotted(frozen=True)
class Timer:
    """Identity of a timer within its group; arming a timer again reschedules it."""

    what: Timed
    member_id: str = ""


JOIN_TIMER = Timer(Timed.JOIN)
SYNC_TIMER = Timer(Timed.SYNC)
REGEX_TIMER = Timer(Timed.REGEX)


@slotted(frozen=True)
class Created:
    """The append is the group's first record, which is empty."""


@slotted(frozen=True)
class Emptied:
    """The append is the record of a group whose last member has left."""


@slotted(frozen=True)
class Assigned:
    """The append contains the leader's assignments of one generation."""

    generation: int
    assignments: Mapping[str, bytes]


@slotted(frozen=True)
class Replaced:
    """The append contains a static member that came back under a new id, in a group that need not rebalance (KIP-814)."""

    old: Member
    new_id: str
    old_leader: str | None
    api_version: int


@slotted(frozen=True)
class Append:
    """Write this value for the group, then call ``on_append_committed`` once the record is committed or has failed."""

    value: GroupMetadataValue
    purpose: Created | Emptied | Assigned | Replaced


@slotted(frozen=True)
class Answer:
    """Send this response to the waiting request that the token stands for."""

    token: object
    response: Response


@slotted(frozen=True)
class Arm:
    timer: Timer
    delay_ms: int
    member_epoch: int = -1
    """Only for a REBALANCE timer: the epoch that the member must have left by then."""
    if_absent: bool = False
    """True: do not reschedule a timer that is already running."""


@slotted(frozen=True)
class Cancel:
    timer: Timer


Effect = Append | Answer | Arm | Cancel
