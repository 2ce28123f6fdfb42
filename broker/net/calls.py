"""The port for interceptors of requests: a request and its response as they see it.

``CallInterceptors`` belongs to the broker, and serves the connections of all its nodes. While there is no interceptor a
request costs one test of one attribute (``python -m benchmarks.ports``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, cast

from broker.logging import get_logger
from broker.loop.coroutines import start_in_background
from broker.net.routes import Route
from broker.node.context import RequestContext
from broker.node.served import ServedNode
from broker.requests.api import NO_RESPONSE
from protocol.error_codes import error_codes
from protocol.errors import ErrorCode
from protocol.frame import RequestHeader
from protocol.slotted import slotted
from protocol.versions import at_version

if TYPE_CHECKING:
    from broker.node import Node

log = get_logger()


OutcomeHook = Callable[[Any], Any]
Watcher = Callable[["Call", "CallEvent"], object]


class ClientConnection(Protocol):
    """The connection of a call, as an interceptor may use it."""

    host: str
    port: int
    address: tuple[str, int]

    @property
    def is_closed(self) -> bool: ...

    def proceed(self, call: Call) -> None: ...

    def answer_held(self, call: Call, response: object) -> None: ...

    def mute(self) -> None: ...

    def hang_up(self) -> None: ...

    def reset(self) -> None: ...


class CallEvent(Enum):
    """What happened to a call, for an interceptor that only watches."""

    HELD = "held"
    """An interceptor stopped the request on arrival: it is not handled, or not yet."""
    DELAYED = "delayed"
    """The handler waits: for data, for replicas, for the disk, for other members."""
    HANDLED_ALONE = "handled alone"
    """Handled again, or after its connection ended: no client gets the response."""
    ANSWERED = "answered"
    UNANSWERED = "unanswered"
    """Handled, and no response is sent, as the client asked (acks=0)."""
    KEPT_BACK = "kept back"
    """Handled, and an interceptor keeps the response back for good."""
    GONE = "gone"
    """The connection ended before there was a response."""


@slotted(eq=False)
class Call:
    """One request on a connection of a node, and its response. Made only while there is an interceptor."""

    connection: ClientConnection
    context: RequestContext
    route: Route
    header: RequestHeader
    frame: bytes
    """The request without its size field; a copy of its own."""
    received: Any
    """What the handler takes: the request, or what a proxy passes on."""
    received_ms: int
    interceptor: CallInterceptor
    """The interceptor that saw the request arrive; it sees the response too, even if it was removed meanwhile."""
    answer: bytes | None = None
    """The response without its size field; None until there is one, and for requests without a response (acks=0)."""
    outcome: object = None
    """What came of it, as the hooks have left it, before it is encoded."""
    watchers: tuple[Watcher, ...] = ()
    """Each is called with each event of the call."""
    before_answer: list[Callable[[], bool]] | None = None
    """Functions that an interceptor adds when the request arrives: each says whether the response may be sent."""
    outcome_hooks: list[OutcomeHook] | None = None
    """Functions that an interceptor adds before the request is handled: see ``on_outcome``."""
    rule: int | None = None
    """The rule, by its number, that has answered instead of the handler or altered its answer; None if none has."""

    @property
    def request(self) -> Any:
        """The request, decoded."""
        return self.route.request_of(self.received)

    @property
    def response(self) -> Any:
        """What came of it, decoded: a response, ``NO_RESPONSE``, the exception in which it ended, None while it is open."""
        return None if self.outcome is None else self.route.response_of(self.outcome)

    def error_codes(self) -> Iterable[int]:
        """Each error code of the response, 0 included; of a request that ended in an exception that of an unknown error."""
        response = self.response
        if response is None or response is NO_RESPONSE:
            return ()
        if isinstance(response, BaseException):
            return (ErrorCode.unknown_server_error,)
        return error_codes(at_version(self.route.api.key, self.route.version, "response"), response)

    @property
    def node(self) -> ServedNode:
        """The node at which it arrived, as interceptors may know it."""
        return self.context.node

    def move_to(self, node: ServedNode) -> None:
        """Another life of the node handles it."""
        self.context.node = cast("Node", node)

    def watch(self, watcher: Watcher) -> None:
        """Call it with each event from now on. An interceptor that only watches does so on arrival."""
        self.watchers = (*self.watchers, watcher)

    def note(self, event: CallEvent) -> None:
        """Tell the watchers."""
        for watcher in self.watchers:
            watcher(self, event)

    def on_outcome(self, hook: OutcomeHook) -> None:
        """Show ``hook`` what came of the request, before it is encoded: it returns what is encoded instead.

        That is a response, ``NO_RESPONSE``, or the exception in which the request ended.
        """
        if self.outcome_hooks is None:
            self.outcome_hooks = []
        self.outcome_hooks.append(hook)

    def hooked(self, outcome: Any) -> Any:
        """What came of the request, as the hooks leave it."""
        if self.outcome_hooks is None:
            return outcome
        shown = seen = self.route.response_of(outcome)
        for hook in self.outcome_hooks:
            seen = hook(seen)
        return outcome if seen is shown else seen

    def proceed(self) -> None:
        """Handle the request as if it had not been held. The answer goes out on its connection."""
        self.connection.proceed(self)

    def handle_without_response(self) -> None:
        """Handle the request once more, or late, without a client that gets the answer. A node that died handles nothing."""
        if not self.node.life.alive:
            self.note(CallEvent.GONE)
            return
        self.note(CallEvent.HANDLED_ALONE)
        try:
            outcome = self.route.handler(self.received, self.context)
        except Exception as error:
            # Not kept in a variable of this frame, to which its traceback leads: the two would keep the request.
            self._handled_alone(error)
            return
        if hasattr(outcome, "send"):  # a coroutine
            start_in_background(self._handle_alone(outcome), self.node.life)
        else:
            self._handled_alone(outcome)

    async def _handle_alone(self, outcome: Any) -> None:
        try:
            response = await outcome
        except Exception as error:
            self._handled_alone(error)
        else:
            self._handled_alone(response)

    def _handled_alone(self, outcome: object) -> None:
        self.hooked(outcome)
        if isinstance(outcome, Exception):
            log.info("request handled without a client failed", api=self.route.api.name, error=repr(outcome))


class CallInterceptor(Protocol):
    """Sees requests once they are decoded, and their answers before they are written."""

    def wants(self, api_key: int) -> bool:
        """Is it concerned with requests of this API at all? Asked of every request, so answered at once."""
        ...

    def arrived(self, call: Call) -> bool:
        """True: handle it now. False: the connection waits until ``proceed`` or ``answer_held``, which may be
        called from here already, or until it is closed."""
        ...

    def answering(self, call: Call) -> bool:
        """``call.answer`` is complete. False: it is never sent, and the interceptor decides about the connection."""
        ...


@slotted(frozen=True)
class _Chain:
    """Several interceptors. Those behind one that stops a call do not see it."""

    interceptors: tuple[CallInterceptor, ...]

    def wants(self, api_key: int) -> bool:
        return any(each.wants(api_key) for each in self.interceptors)

    def arrived(self, call: Call) -> bool:
        return all(each.arrived(call) for each in self.interceptors if each.wants(call.context.api_key))

    def answering(self, call: Call) -> bool:
        return all(each.answering(call) for each in self.interceptors)


class CallInterceptors:
    """Those that are in use, in their order."""

    __slots__ = ("_all", "chain")

    def __init__(self) -> None:
        self.chain: CallInterceptor | None = None
        """What connections ask; None while there is no interceptor."""
        self._all: tuple[CallInterceptor, ...] = ()

    def add(self, interceptor: CallInterceptor, *, first: bool = False) -> None:
        """Show it all calls from now on, after the others, or before them: what only watches stands first."""
        self._all = (interceptor, *self._all) if first else (*self._all, interceptor)
        self._link()

    def remove(self, interceptor: CallInterceptor) -> None:
        """Show it no further call. It still sees the responses of the calls that it saw."""
        self._all = tuple(each for each in self._all if each is not interceptor)
        self._link()

    def _link(self) -> None:
        match self._all:
            case ():
                self.chain = None
            case (only,):
                self.chain = only
            case several:
                self.chain = _Chain(several)
