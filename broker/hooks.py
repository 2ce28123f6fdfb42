"""Where tests and tools hang themselves on the broker: on calls, on steps inside, and on the links between nodes.

One ``Hooks`` serves all nodes of a broker. What is not in use is None: a place that may be hung on costs one test of one
attribute. Who hangs there (`broker.faults`, `broker.trace`) is not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.links import Links
from broker.logging import get_logger
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.connection import Connection
    from broker.context import RequestContext
    from broker.routes import Route
    from protocol.frame import RequestHeader

POINTS: Final = frozenset(
    {
        "coordinator.load",
        "group.append",
        "log.fsync",
        "log.write",
        "replica.append",
        "txn.complete.append",
        "txn.marker",
        "txn.prepare.append",
    }
)
"""The steps inside the broker that a rule may name."""

log = get_logger()


class CallEvent(Enum):
    """What became of a call, for who only watches."""

    HELD = "held"
    """Somebody stopped it on arrival: it is not handled, or not yet."""
    HANDLED_ALONE = "handled alone"
    """Handled once more, or late, with nobody there to hear the answer."""
    ANSWERED = "answered"
    UNANSWERED = "unanswered"
    """Handled, and none is sent: the client wanted none (acks=0)."""
    KEPT_BACK = "kept back"
    """Handled, and its answer is never sent: a rule's doing."""
    GONE = "gone"
    """The connection ended before there was an answer."""


@dataclass(slots=True, eq=False)
class Call:
    """One request on a connection of a node, and its answer. Made only while somebody hangs on calls."""

    connection: Connection
    context: RequestContext
    route: Route
    header: RequestHeader
    frame: bytes
    """The request without its size field; nobody else writes to it."""
    request: Any
    received_ms: int
    hook: CallHook
    """Who saw it arrive hears its answer, also if nobody hangs on calls any more by then."""
    answer: bytes | None = None
    """The response without its size field, once there is one; None for ever where none is sent (acks=0)."""
    watcher: Callable[[Call, CallEvent], object] | None = None
    """Whoever wants to know what becomes of it; set on arrival."""
    before_answer: list[Callable[[], bool]] | None = None
    """What `broker.faults` decided for its answer when it arrived; each says whether it may be sent."""

    def note(self, event: CallEvent) -> None:
        """Tell who watches."""
        if self.watcher is not None:
            self.watcher(self, event)

    def proceed(self) -> None:
        """Handle the request as if nobody had held it. The answer goes out on its connection."""
        self.connection.proceed(self)

    def run_alone(self) -> None:
        """Handle the request once more, or late, with nobody there to hear the answer. A node that died handles nothing."""
        if not self.context.node.life.alive:
            self.note(CallEvent.GONE)
            return
        self.note(CallEvent.HANDLED_ALONE)
        try:
            outcome = self.route.handler(self.request, self.context)
        except Exception as error:
            log.info("request without a client failed", api=self.route.api.name, error=repr(error))
            return
        if hasattr(outcome, "__await__"):
            asyncio.ensure_future(_as_awaitable(outcome)).add_done_callback(self._forget)

    def _forget(self, future: asyncio.Future[object]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            log.info("request without a client failed", api=self.route.api.name, error=repr(error))


async def _as_awaitable(outcome: Awaitable[object]) -> object:
    return await outcome


class CallHook(Protocol):
    """Sees requests once they are decoded, and their answers before they are written."""

    def wants(self, api_key: int) -> bool:
        """Is it concerned with requests of this API at all? Asked of every request, so answered at once."""
        ...

    def arrived(self, call: Call) -> bool:
        """True: handle it now. False: the connection stands still until ``proceed`` or ``answer_held``, which may be
        called from here already, or until it is closed."""
        ...

    def answering(self, call: Call) -> bool:
        """``call.answer`` is complete. False: it is never sent; what becomes of the connection is the hook's affair."""
        ...


@dataclass(frozen=True, slots=True)
class _InTurn:
    """Several hang on calls. Who stands behind one that stops a call does not see it."""

    hooks: tuple[CallHook, ...]

    def wants(self, api_key: int) -> bool:
        return any(hook.wants(api_key) for hook in self.hooks)

    def arrived(self, call: Call) -> bool:
        return all(hook.arrived(call) for hook in self.hooks if hook.wants(call.context.api_key))

    def answering(self, call: Call) -> bool:
        return all(hook.answering(call) for hook in self.hooks)


@dataclass(slots=True)
class Passage:
    """A step inside the broker that is about to be taken."""

    point: str
    node_id: int
    topic: str = ""
    partition: int = -1
    transactional_id: str | None = None
    group_id: str | None = None


class PointHook(Protocol):
    """Stands at the steps inside. ``watches`` says whether a rule names the point at all."""

    def watches(self, point: str) -> bool: ...

    def reached(
        self, passage: Passage, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> None:
        """Call ``go_on``, now or later, or ``refuse`` with the error that the step ends in, or neither if it is lost."""
        ...


@dataclass(slots=True, eq=False)
class Hooks:
    """All that hangs on one broker."""

    calls: CallHook | None = None
    """What connections ask; set by ``hang_calls``."""
    points: PointHook | None = None
    links: Links = field(default_factory=Links)
    _calls: tuple[CallHook, ...] = ()

    def hang_calls(self, hook: CallHook, *, first: bool = False) -> None:
        """See calls from now on, behind all others who do, or before them: who only looks stands first."""
        self._calls = (hook, *self._calls) if first else (*self._calls, hook)
        self._take_turns()

    def unhang_calls(self, hook: CallHook) -> None:
        """See no further call. The answers that are still due of those that it saw it still hears."""
        self._calls = tuple(each for each in self._calls if each is not hook)
        self._take_turns()

    def _take_turns(self) -> None:
        match self._calls:
            case ():
                self.calls = None
            case (only,):
                self.calls = only
            case several:
                self.calls = _InTurn(several)

    def at_point(
        self, passage: Passage, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> None:
        """Take a step, unless somebody stands in its way."""
        if self.points is None or not self.points.watches(passage.point):
            go_on()
        else:
            self.points.reached(passage, go_on, refuse)
