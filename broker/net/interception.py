"""Shows a request to the interceptors before it is handled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from broker.net.calls import Call, CallEvent, CallInterceptor, ClientConnection
from broker.net.holds import CLOSED, HELD

if TYPE_CHECKING:
    from broker.net.routes import Route
    from broker.net.served_connection import ServedConnection
    from broker.node.context import RequestContext
    from protocol.frame import RequestHeader


def offer(
    connection: ServedConnection,
    header: RequestHeader,
    route: Route,
    frame: bytes | memoryview,
    request: Any,
    context: RequestContext,
) -> None:
    """Show the request to the interceptors, and handle it unless one of them holds it."""
    shared = connection._shared
    interceptors = cast(CallInterceptor, shared.calls.chain)
    kept = bytes(frame)
    if kept is not frame:  # interceptors may keep the request for longer than its buffer is valid
        request = route.decode(memoryview(kept), header.body_offset)
    call = Call(
        cast(ClientConnection, connection),
        context,
        route,
        header,
        kept,
        request,
        shared.cluster_ms(),
        interceptors,
    )
    connection._holds |= HELD
    if interceptors.arrived(call):
        connection._holds &= ~HELD
        connection._handle(route, header.correlation_id, request, context, call)
    elif connection._holds & HELD:
        call.note(CallEvent.GONE if connection._holds & CLOSED else CallEvent.HELD)
