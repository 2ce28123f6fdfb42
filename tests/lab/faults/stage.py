"""A broker of test handlers with fault rules: real connections without sockets, and a manual clock."""

from __future__ import annotations

from typing import Any

from broker.injection.points import FaultInjection, InjectionPoint
from broker.requests.api import Handler
from lab.faults import ActiveRule, Faults, parse_rule
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.broker.net.test_connection import HEARTBEAT, Broker, Peer
from tests.support.clock import FakeClock


class Counting:
    """A handler that records how often it was called, and by which clients."""

    def __init__(self) -> None:
        self.members: list[str] = []

    def __call__(self, message: HeartbeatRequest, context: Any) -> HeartbeatResponse:
        self.members.append(message.member_id)
        return HeartbeatResponse(throttle_time_ms=len(self.members))


class Stage:
    """The rules, connections and injection points of one broker."""

    def __init__(self, handlers: dict[int, Handler] | None = None, **powers: Any) -> None:
        self.heartbeats = Counting()
        self.broker = Broker(handlers or {HEARTBEAT: self.heartbeats})
        self.injection, self.calls = FaultInjection(), self.broker.connections.calls
        self.clock = FakeClock()
        self.faults = Faults(self.injection, self.calls, self.clock, **powers)
        self.steps: list[str] = []

    def add(self, text: str) -> ActiveRule:
        return self.faults.add(parse_rule(text))

    def connect(self) -> Peer:
        return self.broker.connect()

    def step(self, name: str, at: InjectionPoint) -> None:
        """Reach an injection point. Appends the name to ``steps`` when the step is executed, or the name and the error
        if a rule refuses the step.
        """

        def refuse(code: ErrorCode) -> None:
            self.steps.append(f"{name} {code.name}")

        self.injection.intercept(at, lambda: self.steps.append(name), refuse)
