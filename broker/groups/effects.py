"""What a classic group wants done. Its shell does it, in this order: every effect of one list, from first to last.

An ``Append`` is a barrier: the answers that follow it in the list are given once the record is committed, or, if that
fails, as errors. Timers are not held back. A list holds at most one ``Append``.
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
    """What a timer of a group is about."""

    JOIN = "join"
    """The join phase, or the initial delay before it."""
    SYNC = "sync"
    """All members must have sent SyncGroup."""
    SESSION = "session"
    """A member, or a pending member id, must be heard of."""
    REBALANCE = "rebalance"
    """A member of a consumer group must have revoked what it shall give up."""
    REGEX = "regex"
    """The regular expressions of a consumer group are to be resolved."""


@slotted(frozen=True)
class Timer:
    """The name of a timer; arming it again moves it."""

    what: Timed
    member_id: str = ""


JOIN_TIMER = Timer(Timed.JOIN)
SYNC_TIMER = Timer(Timed.SYNC)
REGEX_TIMER = Timer(Timed.REGEX)


@slotted(frozen=True)
class Created:
    """The group's first record, with nothing in it."""


@slotted(frozen=True)
class Emptied:
    """The last member has gone."""


@slotted(frozen=True)
class Assigned:
    """The leader's assignments of one generation."""

    generation: int
    assignments: Mapping[str, bytes]


@slotted(frozen=True)
class Replaced:
    """A static member has come back under a new id, and the group need not rebalance (KIP-814)."""

    old: Member
    new_id: str
    old_leader: str | None
    api_version: int


@slotted(frozen=True)
class Append:
    """Write this value for the group; tell ``on_append_committed`` about it once it is committed or has failed."""

    value: GroupMetadataValue
    purpose: Created | Emptied | Assigned | Replaced


@slotted(frozen=True)
class Answer:
    """Give this response to the request behind the token."""

    token: object
    response: Response


@slotted(frozen=True)
class Arm:
    timer: Timer
    delay_ms: int
    member_epoch: int = -1
    """Of a REBALANCE timer: the epoch that the member must have left."""
    if_absent: bool = False
    """A timer that runs already is left as it is."""


@slotted(frozen=True)
class Cancel:
    timer: Timer


Effect = Append | Answer | Arm | Cancel
