"""A rule that was added, with its counters and the requests and steps that it holds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from broker.clock import Timer
from broker.peers.senders import comes_from
from lab.faults.declaration import Match
from lab.faults.match_counter import MatchCounter
from lab.faults.matching import subjects_meet
from lab.faults.released_requests import RELEASED_KEPT, ReleasedRequest
from lab.faults.request_subjects import RequestSubjects
from lab.faults.rules import Rule, matches, rule_to_json
from lab.faults.text import rule_to_text
from lab.faults.values import FaultError
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.injection.points import InjectionPoint
    from broker.net.calls import Call
    from protocol.errors import ErrorCode

PARTITIONS_SHOWN_MAX: Final = 64
"""Number of partitions of one held request that are listed."""


@slotted(eq=False)
class HeldItem:
    """A held request or step, or a detached request, whose connection is closed."""

    at: str
    """Name of the API, or of the injection point for a step inside the broker."""
    node_id: int
    go: Callable[[], object]
    """Callback that handles the request, or executes the step."""
    is_alive: Callable[[], bool]
    """Whether a release has an effect: the connection is open, or the step's node has not been restarted."""
    since_ms: int
    subjects: RequestSubjects = field(default_factory=RequestSubjects)
    """Topics, partitions, offsets, groups, members and transactional ids of the request or step."""
    client_id: str | None = None
    call: Call | None = None
    """The held request; None if a step inside the broker is held."""
    step: tuple[InjectionPoint, Callable[[], object], Callable[[ErrorCode], object]] | None = None
    """For a step to which another rule can apply: injection point, callbacks that execute and refuse the step."""
    connection_id: int | None = None
    bytes: int = 0
    detached: bool = False
    later_matches: int | None = None
    """For the action ``reorder``: number of later matches that are still to be handled before this request."""
    timer: Timer | None = None
    after: HeldItem | None = None
    """An earlier held step on the same log, which is executed before this one, whichever is released first."""
    behind: list[HeldItem] = field(default_factory=list)
    """Later held steps on the same log, which are executed after this one."""
    is_done: bool = False

    def meets(self, only: Match) -> bool:
        """Whether a release with the filter ``only`` applies to this item."""
        return (
            only.node in (None, self.node_id)
            and (only.client_id is None or matches(only.client_id, self.client_id))
            and (only.sender is None or comes_from(only.sender, self.client_id))
            and subjects_meet(only, self.subjects)
        )

    def to_json(self) -> dict[str, Any]:
        """JSON form. Topic, partition and ids are null if the item has none or several. ``partitions`` is bounded."""
        named = self.subjects.partitions
        return {
            "at": self.at,
            "node": self.node_id,
            "connection": self.connection_id,
            "client_id": self.client_id,
            "transactional_id": _only(self.subjects.transactional_ids),
            "group": _only(self.subjects.groups),
            "member": _only(self.subjects.members),
            "topic": _only({topic for topic, _ in named}),
            "partition": named[0][1] if len(named) == 1 else None,
            "partitions": [
                f"{topic}-{index}" for topic, index in named[:PARTITIONS_SHOWN_MAX] if index is not None
            ],
            "detached": self.detached,
            "since_ms": self.since_ms,
        }


def _only(names: set[str]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None


@slotted(eq=False)
class ActiveRule:
    """One rule that was added to a broker, with its hits and the requests and steps that it holds."""

    id: int
    rule: Rule
    expires_at_ms: int | None = None
    """Time of expiry, in milliseconds of the clock domain ``requests``; None if the rule does not expire."""
    removed: bool = False
    match_counter: MatchCounter = field(init=False)
    api_keys: frozenset[int] = field(init=False)
    points: frozenset[str] = field(init=False)
    held_things: list[HeldItem] = field(default_factory=list)
    released: deque[ReleasedRequest] = field(default_factory=lambda: deque(maxlen=RELEASED_KEPT))
    """Requests that were held or detached and then released, the oldest first."""
    told_of_no_room: bool = False
    expiry: Timer | None = None
    waiting: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)
    """Callers that wait for hits: (number of hits, future)."""

    def __post_init__(self) -> None:
        self.match_counter = MatchCounter(self.rule.when)
        self.api_keys, self.points = self.rule.api_keys, self.rule.points

    @property
    def matches(self) -> int:
        """Number of matches. A rule that is spent (can have no further hit) does not count matches any more."""
        return self.match_counter.matches

    @property
    def hits(self) -> int:
        return self.match_counter.hits

    @property
    def spent(self) -> bool:
        """Whether the rule can have no further hit. A spent rule stays listed until it is removed."""
        return self.match_counter.spent

    @property
    def held(self) -> tuple[HeldItem, ...]:
        """The requests and steps that the rule holds, the oldest first."""
        return tuple(each for each in self.held_things if each.is_alive())

    @property
    def looks(self) -> bool:
        """Whether further requests or steps must be matched against the rule."""
        return not self.removed and (not self.spent or self.has_reordered)

    @property
    def has_reordered(self) -> bool:
        return any(each.later_matches is not None for each in self.held_things)

    def count_match(self) -> bool:
        """Count a match, and return whether it is a hit.

        After a hit, callers that wait for this number of hits resume in the next turn of the event loop.
        """
        hit = self.match_counter.count_match()
        if hit:
            self._tell(lambda count: count <= self.hits, None)
        return hit

    def end(self) -> None:
        """End the rule after its removal: cancel its expiry, raise ``FaultError`` in waiting callers."""
        self.removed = True
        if self.expiry is not None:
            self.expiry.cancel()
        self._tell(lambda count: True, FaultError(f"rule {self.id} was removed after {self.hits} hits"))

    def _tell(self, concerns: Callable[[int], bool], error: Exception | None) -> None:
        left = []
        for count, future in self.waiting:
            if not concerns(count):
                left.append((count, future))
            elif not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
        self.waiting = left

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "rule": rule_to_json(self.rule),
            "text": rule_to_text(self.rule),
            "matches": self.matches,
            "hits": self.hits,
            "spent": self.spent,
            "expires_at_ms": self.expires_at_ms,
            "held": [each.to_json() for each in self.held],
            "released": [each.to_json() for each in self.released],
        }
