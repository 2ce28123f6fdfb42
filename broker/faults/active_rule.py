"""A rule that was added: its counts, and the requests and steps that it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.clock import Timer
from broker.faults.json_form import rule_to_json
from broker.faults.match_counter import MatchCounter
from broker.faults.rules import FaultError, Rule
from broker.faults.text import rule_to_text


@dataclass(slots=True, eq=False)
class HeldItem:
    """A held request or step, or a detached request, whose connection is closed."""

    at: str
    """The API, or the point."""
    node_id: int
    go: Callable[[], object]
    """Let it happen."""
    is_alive: Callable[[], bool]
    """Is the connection, or the node's life, still there for which it would happen?"""
    since_ms: int
    connection_id: int | None = None
    bytes: int = 0
    detached: bool = False
    later_matches: int | None = None
    """Of a reorder: how many go first."""
    timer: Timer | None = None
    after: HeldItem | None = None
    """A step on the same log that was held before: this one happens after it, whatever is released first."""
    behind: list[HeldItem] = field(default_factory=list)
    """Those that wait for this one."""
    is_done: bool = False

    def to_json(self) -> dict[str, Any]:
        place = {} if self.connection_id is None else {"connection": self.connection_id}
        return {
            "at": self.at,
            "node": self.node_id,
            **place,
            "detached": self.detached,
            "since_ms": self.since_ms,
        }


@dataclass(slots=True, eq=False)
class ActiveRule:
    """One rule that was added."""

    id: int
    rule: Rule
    expires_at_ms: int | None = None
    """By the clock's domain ``requests``."""
    removed: bool = False
    match_counter: MatchCounter = field(init=False)
    api_keys: frozenset[int] = field(init=False)
    points: frozenset[str] = field(init=False)
    held_things: list[HeldItem] = field(default_factory=list)
    told_of_no_room: bool = False
    expiry: Timer | None = None
    waiting: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)
    """Those who wait for so many hits."""

    def __post_init__(self) -> None:
        self.match_counter = MatchCounter(self.rule.when)
        self.api_keys, self.points = self.rule.api_keys, self.rule.points

    @property
    def matches(self) -> int:
        """How often something came by that the rule looks for; not counted any more once it is spent."""
        return self.match_counter.matches

    @property
    def hits(self) -> int:
        return self.match_counter.hits

    @property
    def spent(self) -> bool:
        """It can have no further hit. It stays listed, with its counts and what it holds, until it is removed."""
        return self.match_counter.spent

    @property
    def held(self) -> tuple[HeldItem, ...]:
        """The requests and steps that it holds, the oldest first."""
        return tuple(each for each in self.held_things if each.is_alive())

    @property
    def looks(self) -> bool:
        """Whether it must see further requests or steps."""
        return not self.removed and (not self.spent or self.has_reordered)

    @property
    def has_reordered(self) -> bool:
        return any(each.later_matches is not None for each in self.held_things)

    def count_match(self) -> bool:
        """Count a match; True if it is a hit. Waiting callers return on the loop's next turn."""
        hit = self.match_counter.count_match()
        if hit:
            self._tell(lambda count: count <= self.hits, None)
        return hit

    def end(self) -> None:
        """It is removed."""
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
        }
