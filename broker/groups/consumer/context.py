"""Input and output of decisions about a consumer group; the output of those about a share group, too. Pure.

A decision lists the records to append, the timers to start or cancel, and the response. Only records change the group,
so a decision that is not carried out has no effect. If a fault rule delays the append, the decision is made again
after the delay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.modern_group import M, ModernGroup
from broker.groups.consumer.topics import TopicsImage
from broker.groups.effects import Arm, Cancel, Timed, Timer
from broker.groups.group import ClassicGroup
from broker.groups.records import LogRecord
from protocol.errors import ErrorCode
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.share.state import Initialization

R = TypeVar("R")
G = TypeVar("G", bound=ModernGroup[Any])
MayDescribe = Callable[[str], bool]
"""Topic name -> whether the client may describe the topic (ACLs)."""


class Refused(Exception):
    """The coordinator refuses the request: the response has ``error`` and Kafka's ``message``."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


def refused(error: ErrorCode, message: str | None = None) -> Refused:
    return Refused(error, message)


class MigrationPolicy(StrEnum):
    """Value of ``group.consumer.migration.policy``: the conversions that are allowed while the group has members."""

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
    """The settings of one group: the group's own value of each setting, otherwise the broker's."""

    assignors: tuple[str, ...] = ("uniform", "range")
    """Names of the enabled assignors; the first is the default."""
    assignment_interval_ms: int = 1_000
    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    group_size_max: int = 2**31 - 1
    classic_group_size_max: int = 2**31 - 1
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000


@slotted(frozen=True)
class Context:
    """The input of every decision: the topics, the group's settings and the time."""

    topics: TopicsImage
    settings: ConsumerGroupSettings
    now_ms: int


@slotted(frozen=True)
class Client:
    """The client that sent a request."""

    client_id: str
    client_host: str
    may_describe: MayDescribe | None = None
    """Topic name -> whether the client may describe the topic; None if it may describe every topic."""


@slotted
class Decision(Generic[R]):
    """The decision on a request or timer: the records to append, the timers to set, the response after the commit."""

    response: R
    records: list[LogRecord] = field(default_factory=list)
    timers: list[Arm | Cancel] = field(default_factory=list)
    is_refreshed: bool = False
    """Whether this decision has compared the group's metadata hash with the hash of the present topics."""
    regexes: frozenset[str] = frozenset()
    """Regular expressions to resolve in another turn of the event loop."""
    may_describe: MayDescribe | None = None
    """Topic name -> whether the client may describe the topic; ``regexes`` match only such topics. None: all topics."""
    becomes: ClassicGroup | None = None
    """The classic group into which this decision downgrades the group; None without a downgrade."""
    rebalances: bool = False
    """Whether the members of the downgraded group must join again."""
    initialize: Sequence[Initialization] = ()
    """Partitions of a share group that the share coordinator must initialize after the response."""


def session_timer(member_id: str) -> Timer:
    return Timer(Timed.SESSION, member_id)


def rebalance_timer(member_id: str) -> Timer:
    return Timer(Timed.REBALANCE, member_id)


def join_timer(member_id: str) -> Timer:
    """Timer that removes a member of the classic protocol that has not joined again in time."""
    return Timer(Timed.JOIN, member_id)


def sync_timer(member_id: str) -> Timer:
    return Timer(Timed.SYNC, member_id)


def cancel_timers(member_ids: Sequence[str]) -> list[Arm | Cancel]:
    of_member = (session_timer, rebalance_timer, join_timer, sync_timer)
    return [Cancel(name(member_id)) for member_id in member_ids for name in of_member]


def group_of_type(kind: type[G], group: object | None, group_id: str) -> G:
    """Return the group if it is of this type; otherwise raise `Refused` with Kafka's message."""
    if group is None:
        raise refused(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
    if not isinstance(group, kind):
        raise refused(ErrorCode.group_id_not_found, f"Group {group_id} is not a {kind.type} group.")
    return group


live_group = partial(group_of_type, ConsumerGroup)


def member_of(group: ModernGroup[M], member_id: str) -> M:
    member = group.members.get(member_id)
    if member is None:
        message = f"Member {member_id} is not a member of group {group.group_id}."
        raise refused(ErrorCode.unknown_member_id, message)
    return member
