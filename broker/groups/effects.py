"""What a classic group wants done. Its shell does it, in this order: every effect of one list, from first to last.

An ``Append`` is a barrier: the answers that follow it in the list are given once the record is committed, or, if that
fails, as errors. Timers are not held back. A list holds at most one ``Append``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from broker.groups.members import Member
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse
from protocol.messages.sync_group import SyncGroupResponse
from protocol.records.group_log import GroupMetadataValue

Response = JoinGroupResponse | SyncGroupResponse | LeaveGroupResponse


class Timed(Enum):
    """What a timer of a group is about."""

    JOIN = "join"
    """The join phase, or the initial delay before it."""
    SYNC = "sync"
    """All members must have sent SyncGroup."""
    SESSION = "session"
    """A member, or a pending member id, must be heard of."""


@dataclass(frozen=True, slots=True)
class Timer:
    """The name of a timer; arming it again moves it."""

    what: Timed
    member_id: str = ""


JOIN_TIMER = Timer(Timed.JOIN)
SYNC_TIMER = Timer(Timed.SYNC)


@dataclass(frozen=True, slots=True)
class Created:
    """The group's first record, with nothing in it."""


@dataclass(frozen=True, slots=True)
class Emptied:
    """The last member has gone."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The leader's assignments of one generation."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Replaced:
    """A static member has come back under a new id, and the group need not rebalance (KIP-814)."""

    old: Member
    new_id: str
    old_leader: str | None
    api_version: int


@dataclass(frozen=True, slots=True)
class Append:
    """Write this value for the group; tell ``on_append_committed`` about it once it is committed or has failed."""

    value: GroupMetadataValue
    purpose: Created | Emptied | Assigned | Replaced


@dataclass(frozen=True, slots=True)
class Answer:
    """Give this response to the request behind the token."""

    token: object
    response: Response


@dataclass(frozen=True, slots=True)
class Arm:
    timer: Timer
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Cancel:
    timer: Timer


Effect = Append | Answer | Arm | Cancel
