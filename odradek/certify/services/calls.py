"""The requests of one run at one service, and the rules that inject faults at them.

A proxy reports each request with `Traffic.arrived`, and does what `Call.decided` returns. The certifier's threads add rules
and wait for their hits. A rule has the form of a fault rule of the broker: ``postgres:COMMIT nth=2 -> lose-answer``.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.certify.exchanges import Exchange
from odradek.errors import FaultNotHit

_RULE: Final = re.compile(r"(?P<on>\S.*) nth=(?P<nth>\d+) -> (?P<action>\S.*)")
_OVER: Final = frozenset({"answered", "answer_lost", "unanswered"})
HOLD: Final = "hold"


@dataclass(slots=True, eq=False)
class Call:
    """One request of the job at a service: a statement, an HTTP request, or a TCP connection."""

    number: int
    """Number of the request in this run, from 1."""
    peer: str
    """host:port of the client, which identifies the connection."""
    on: str
    """Service and request, as in rules: ``postgres:INSERT results``, ``http:POST /v1/payments``."""
    phase: str
    """``autocommit`` or ``transaction`` for a statement; empty if the service has no transactions."""
    request: Mapping[str, Any]
    line: str
    """The request as text, such as ``INSERT INTO results VALUES (1)``."""
    arrived_us: int
    is_write: bool
    """Whether the request may change the service's state."""
    _traffic: Traffic
    outcome: str = "in_progress"
    """As in the trace of the broker: in_progress, held, answered, answer_lost, or unanswered (the request was lost)."""
    answer: Mapping[str, Any] | None = None
    errors: tuple[str, ...] = ()
    """SQLSTATE or HTTP status, if the request failed."""
    answered_us: int = 0
    """Time at which the service had handled the request, in us since the epoch; 0 if it has not."""
    _rule: ServiceRule | None = None
    _action: str = ""
    _released: asyncio.Event | None = None

    async def decided(self) -> str:
        """The action of the rule that the request has hit, or "" if the proxy passes it on. Waits while it is held."""
        if self._action == HOLD and self._released is not None:
            self.outcome = "held"
            await self._released.wait()
            self.outcome = "in_progress"
        return "" if self._action == HOLD else self._action

    def answered(self, answer: Mapping[str, Any] | None = None, errors: Sequence[str] = ()) -> None:
        """The service has handled the request, and its response goes to the client."""
        self._end("answered", answer, errors)

    def lost(self, answer: Mapping[str, Any] | None = None, errors: Sequence[str] = ()) -> None:
        """The service has handled the request, and the client does not get the response."""
        self._end("answer_lost", answer, errors)

    def unanswered(self) -> None:
        """The service does not get the request, or the connection ended before its response."""
        if self.outcome not in _OVER:
            self.outcome = "unanswered"

    def _end(self, outcome: str, answer: Mapping[str, Any] | None, errors: Sequence[str]) -> None:
        self.answer, self.errors = answer, tuple(errors)
        self.answered_us = self._traffic.now_us()
        self.outcome = outcome

    @property
    def is_over(self) -> bool:
        return self.outcome in _OVER

    def exchange(self) -> Exchange:
        """The request in the form of the broker's trace."""
        result = ", ".join(self.errors) or {"answered": "ok"}.get(
            self.outcome, self.outcome.replace("_", " ")
        )
        return Exchange(
            api=self.on,
            version=0,
            client_id="",
            peer=self.peer,
            arrived_us=self.arrived_us,
            transactional_id=None,
            producer=None,
            group=None,
            topics=(),
            errors=self.errors,
            request={**self.request, "phase": self.phase, "is_write": self.is_write},
            answer=self.answer,
            outcome=self.outcome,
            line=f"{self.on.partition(':')[0]} {self.peer} {self.line} -> {result}",
            answered_us=self.answered_us,
        )


@dataclass(slots=True, eq=False)
class ServiceRule:
    """One rule at a service. It acts on the ``nth`` request of its kind since it was added, once."""

    text: str
    on: str
    nth: int
    action: str
    _traffic: Traffic
    matches: int = 0
    call: Call | None = None
    """The request that was hit; None before the hit."""

    @property
    def hits(self) -> int:
        return 0 if self.call is None else 1

    @property
    def held(self) -> list[Call]:
        """The request that the rule holds now, in a list; empty if there is none."""
        return [self.call] if self.call is not None and self.call.outcome == "held" else []

    def wait(self, hits: int = 1, timeout_s: float = 30.0) -> ServiceRule:
        """Wait until the rule is hit. Raises ``FaultNotHit`` after the timeout."""
        with self._traffic.changed:
            if not self._traffic.changed.wait_for(lambda: self.call is not None, timeout_s):
                raise FaultNotHit(f"{self.text}: not hit within {timeout_s:g} s")
        return self

    def release(self, to: ServiceRule | None = None) -> None:
        """Release the request that the rule holds. It then hits the rule ``to``, or is passed on."""
        call = self.call
        if call is None or call.outcome != "held":
            return
        if to is not None:
            to.call, call._rule, call._action = call, to, to.action
        if to is None or to.action != HOLD:
            self._traffic.release(call)

    def remove(self) -> None:
        self._traffic.remove(self)


class Traffic:
    """The requests of the current run at one service, and its rules. All methods may be called by any thread.

    ``loop`` runs the proxy, which calls `arrived`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.changed = threading.Condition()
        self._rules: list[ServiceRule] = []
        self._calls: list[Call] = []
        self.ahead_us = 0
        """How far the clock of the broker's trace is ahead of real time, in us."""
        self.requests = self.writes = self._handled = 0
        """Numbers of requests, and of requests that may change state, since the proxy was started. They only grow."""

    def begin(self) -> None:
        """Forget the requests and rules of the previous run."""
        with self.changed:
            self._handled = self.handled
            self._rules.clear()
            self._calls = []

    @property
    def handled(self) -> int:
        """Number of requests that may change state and that the service has handled, since the proxy was started."""
        return self._handled + sum(each.is_write and each.answered_us > 0 for each in self._calls)

    # -- the proxy -----------------------------------------------------------------------------------------------

    def arrived(
        self,
        on: str,
        phase: str,
        peer: str,
        line: str,
        request: Mapping[str, Any] | None = None,
        *,
        is_write: bool,
    ) -> Call:
        """Report a request that a client has sent. The proxy then awaits `Call.decided`."""
        with self.changed:
            number = len(self._calls) + 1
            call = Call(number, peer, on, phase, request or {}, line, self.now_us(), is_write, self)
            self._calls.append(call)
            self.requests += 1
            self.writes += is_write
            for rule in self._rules:
                if rule.on == on:
                    rule.matches += 1
                    if rule.matches == rule.nth and call._rule is None and rule.call is None:
                        self._hit(rule, call)
            return call

    def now_us(self) -> int:
        return time.time_ns() // 1000 + self.ahead_us

    def _hit(self, rule: ServiceRule, call: Call) -> None:
        call._rule, call._action, rule.call = rule, rule.action, call
        if rule.action == HOLD:
            call._released = asyncio.Event()
            call.outcome = "held"
        self.changed.notify_all()

    # -- the certifier -------------------------------------------------------------------------------------------

    def add(self, text: str) -> ServiceRule:
        """Add a rule. Raises ``ValueError`` if it has not the form ``ON nth=N -> ACTION``."""
        found = _RULE.fullmatch(text)
        if found is None:
            raise ValueError(f"not a rule of a service: {text!r}")
        rule = ServiceRule(text, found["on"], int(found["nth"]), found["action"], self)
        with self.changed:
            self._rules.append(rule)
        return rule

    def remove(self, rule: ServiceRule) -> None:
        with self.changed:
            if rule in self._rules:
                self._rules.remove(rule)
        rule.release()

    def release(self, call: Call) -> None:
        if call._released is not None:
            self._loop.call_soon_threadsafe(call._released.set)

    def calls(self, since: int = 0) -> list[Call]:
        """The requests of this run with a number above ``since``, by arrival."""
        with self.changed:
            return self._calls[since:]
