"""The interface for interceptors of requests: an interceptor sees each request and its response as a `Call`.

The broker has one `CallInterceptors` for the connections of all its nodes. While there is no interceptor, the only cost for
a request is the test of one attribute (``python -m benchmarks.ports`` measures it).
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
    """The attributes and methods of a call's connection that an interceptor may use."""

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
    """An event in the processing of a call. The call's watchers are called with it."""

    HELD = "held"
    """An interceptor holds the request: it is not handled yet, and perhaps never."""
    DELAYED = "delayed"
    """The handler waits for data, replicas, the disk or group members."""
    HANDLED_ALONE = "handled alone"
    """The request was handled a second time, or after the connection closed: no client gets the response."""
    ANSWERED = "answered"
    UNANSWERED = "unanswered"
    """The request was handled. No response is sent, as the client asked (acks=0)."""
    KEPT_BACK = "kept back"
    """The request was handled, and an interceptor suppresses the response."""
    GONE = "gone"
    """The connection closed before the response was sent."""


@slotted(eq=False)
class Call:
    """One request on a connection, and its response. Created only while there is an interceptor."""

    connection: ClientConnection
    context: RequestContext
    route: Route
    header: RequestHeader
    frame: bytes
    """The request without its size field, as a copy."""
    received: Any
    """The argument of the handler: the decoded request, or on a proxy the undecoded one."""
    received_ms: int
    interceptor: CallInterceptor
    """The interceptor that was called with the request. It is called with the response too, even if it was removed."""
    answer: bytes | None = None
    """The response without its size field; None until there is one, and for requests without a response (acks=0)."""
    outcome: object = None
    """The handler's result, as changed by the ``outcome_hooks``, before it is encoded."""
    watchers: tuple[Watcher, ...] = ()
    """Functions that are called with each event of the call."""
    before_answer: list[Callable[[], bool]] | None = None
    """Functions that an interceptor adds on arrival. Each returns whether the response may be sent."""
    outcome_hooks: list[OutcomeHook] | None = None
    """Functions that an interceptor adds with `on_outcome` before the request is handled."""
    rule: int | None = None
    """Number of the fault rule that produced or changed the response; None if no rule did."""

    @property
    def request(self) -> Any:
        """The decoded request."""
        return self.route.request_of(self.received)

    @property
    def response(self) -> Any:
        """The decoded response, ``NO_RESPONSE``, or the exception that the handler raised; None while it is pending."""
        return None if self.outcome is None else self.route.response_of(self.outcome)

    def error_codes(self) -> Iterable[int]:
        """All error codes in the response, 0 included. UNKNOWN_SERVER_ERROR if the handler raised an exception."""
        response = self.response
        if response is None or response is NO_RESPONSE:
            return ()
        if isinstance(response, BaseException):
            return (ErrorCode.unknown_server_error,)
        return error_codes(at_version(self.route.api.key, self.route.version, "response"), response)

    @property
    def node(self) -> ServedNode:
        """The node that received the request, or its next life after `move_to`."""
        return self.context.node

    def move_to(self, node: ServedNode) -> None:
        """Set the node that will handle the request. Used if the node was restarted after the request arrived."""
        self.context.node = cast("Node", node)

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher`` with each event from now on. Interceptors that only watch call this on arrival."""
        self.watchers = (*self.watchers, watcher)

    def note(self, event: CallEvent) -> None:
        """Call the functions added by `watch` with ``event``."""
        for watcher in self.watchers:
            watcher(self, event)

    def on_outcome(self, hook: OutcomeHook) -> None:
        """Add a hook. It is called with the handler's result before encoding, and returns the result to encode.

        A result is a response, ``NO_RESPONSE``, or the exception that the handler raised.
        """
        if self.outcome_hooks is None:
            self.outcome_hooks = []
        self.outcome_hooks.append(hook)

    def hooked(self, outcome: Any) -> Any:
        """Pass the handler's result through all hooks, and return the result to encode."""
        if self.outcome_hooks is None:
            return outcome
        shown = seen = self.route.response_of(outcome)
        for hook in self.outcome_hooks:
            seen = hook(seen)
        return outcome if seen is shown else seen

    def proceed(self) -> None:
        """Handle a held request. The response is sent on the request's connection."""
        self.connection.proceed(self)

    def handle_without_response(self) -> None:
        """Handle the request again, or late, without sending the response. Does nothing if the node is dead."""
        if not self.node.life.alive:
            self.note(CallEvent.GONE)
            return
        self.note(CallEvent.HANDLED_ALONE)
        try:
            outcome = self.route.handler(self.received, self.context)
        except Exception as error:
            # Not kept in a local variable: its traceback refers to this frame, and the cycle would keep the request alive.
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
            log.info("request that no client waits for failed", api=self.route.api.name, error=repr(outcome))


class CallInterceptor(Protocol):
    """An object that is called with each request after decoding, and with each response before it is written."""

    def wants(self, api_key: int) -> bool:
        """Whether the interceptor is to be called with requests of this API. This is called for every request: be fast."""
        ...

    def arrived(self, call: Call) -> bool:
        """Called with each request of a wanted API. Returns True to handle the request now. On False, the connection waits
        until ``proceed`` or ``answer_held`` is called, possibly from within this method, or until it closes."""
        ...

    def answering(self, call: Call) -> bool:
        """Called when ``call.answer`` is complete. Returns whether to send the response.

        On False, the connection does not send it: the interceptor sends it later, or closes the connection, or does neither.
        """
        ...


@slotted(frozen=True)
class _Chain:
    """Several interceptors in order. When an interceptor holds a call, the later ones are not called with it."""

    interceptors: tuple[CallInterceptor, ...]

    def wants(self, api_key: int) -> bool:
        return any(each.wants(api_key) for each in self.interceptors)

    def arrived(self, call: Call) -> bool:
        return all(each.arrived(call) for each in self.interceptors if each.wants(call.context.api_key))

    def answering(self, call: Call) -> bool:
        return all(each.answering(call) for each in self.interceptors)


class CallInterceptors:
    """The installed interceptors of requests, in the order in which they are called."""

    __slots__ = ("_all", "chain")

    def __init__(self) -> None:
        self.chain: CallInterceptor | None = None
        """The interceptor that connections call, None if there is none."""
        self._all: tuple[CallInterceptor, ...] = ()

    def add(self, interceptor: CallInterceptor, *, first: bool = False) -> None:
        """Add an interceptor after the others. ``first``, for an interceptor that only watches, puts it before them."""
        self._all = (interceptor, *self._all) if first else (*self._all, interceptor)
        self._link()

    def remove(self, interceptor: CallInterceptor) -> None:
        """Remove an interceptor. It is called with no further request, but still with the responses to requests that it was
        called with.
        """
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
