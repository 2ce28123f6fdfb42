"""What decisions about a consumer group are made from, and what they come to. Pure.

A decision says which records to append, which timers to move and what to answer; the group changes only by its records. So a
decision that is not carried out leaves nothing behind, and one that waits is made anew when its time comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Generic, TypeVar

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.topics import TopicsImage
from broker.groups.effects import Arm, Cancel, Timed, Timer
from broker.groups.group import ClassicGroup
from broker.groups.records import LogRecord
from protocol.errors import ErrorCode
from protocol.slotted import slotted

R = TypeVar("R")
MayDescribe = Callable[[str], bool]
"""May a client know of a topic?"""


class Refused(Exception):
    """A request that is answered with an error; ``message`` is Kafka's."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


def refused(error: ErrorCode, message: str | None = None) -> Refused:
    return Refused(error, message)


class MigrationPolicy(StrEnum):
    """``group.consumer.migration.policy``: which conversions are made while members are live."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@slotted(frozen=True)
class ConsumerGroupSettings:
    """The settings that hold for one group: the broker's, or its own."""

    assignors: tuple[str, ...] = ("uniform", "range")
    """By name; the first is the default."""
    assignment_interval_ms: int = 1_000
    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    group_size_max: int = 2**31 - 1
    classic_group_size_max: int = 2**31 - 1
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000


@slotted(frozen=True)
class Context:
    """What every decision may ask."""

    topics: TopicsImage
    settings: ConsumerGroupSettings
    now_ms: int


@slotted(frozen=True)
class Client:
    """Who sends a request."""

    client_id: str
    client_host: str
    may_describe: MayDescribe | None = None
    """None: it may know of every topic."""


@slotted
class Decision(Generic[R]):
    """What is to be done: append, then everything else; the response waits until the records are committed."""

    response: R
    records: list[LogRecord] = field(default_factory=list)
    timers: list[Arm | Cancel] = field(default_factory=list)
    is_refreshed: bool = False
    """The metadata hash was compared with the topics as they are."""
    regexes: frozenset[str] = frozenset()
    """To be resolved, in a turn of its own."""
    may_describe: MayDescribe | None = None
    """What they are resolved to: topics that the client knows of whose request they are resolved for. None: all topics."""
    becomes: ClassicGroup | None = None
    """The group that a downgrade makes."""
    rebalances: bool = False
    """Its members must join anew."""


def session_timer(member_id: str) -> Timer:
    return Timer(Timed.SESSION, member_id)


def rebalance_timer(member_id: str) -> Timer:
    return Timer(Timed.REBALANCE, member_id)


def join_timer(member_id: str) -> Timer:
    """A member that speaks the classic protocol must join again by then."""
    return Timer(Timed.JOIN, member_id)


def sync_timer(member_id: str) -> Timer:
    return Timer(Timed.SYNC, member_id)


def cancel_timers(member_ids: Sequence[str]) -> list[Arm | Cancel]:
    of_member = (session_timer, rebalance_timer, join_timer, sync_timer)
    return [Cancel(name(member_id)) for member_id in member_ids for name in of_member]


def live_group(group: ConsumerGroup | ClassicGroup | None, group_id: str) -> ConsumerGroup:
    """The consumer group, or `Refused` with what Kafka says of a group that is missing or of another kind."""
    if group is None:
        raise refused(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
    if isinstance(group, ClassicGroup):
        raise refused(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
    return group
