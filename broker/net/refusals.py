"""Responses to requests that a connection cannot handle: not served, malformed, or failed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.requests.api import CloseConnection
from protocol.frame import API_VERSIONS, RequestHeader
from protocol.versions import message_name

_TLS_HANDSHAKE: Final = b"\x16\x03"
"""First bytes of a TLS record of type handshake, of any version."""
_FIRST_BYTES: Final = {
    **dict.fromkeys(
        (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC"),
        "an HTTP request: this port speaks Kafka's protocol, the control port is another one (--control-port)",
    ),
    b"PRI ": "an HTTP/2 request: this port speaks Kafka's protocol, the control port is another one (--control-port)",
    b"SSH-": "the client speaks SSH",
    b"AMQP": "the client speaks AMQP",
    b"PROX": "a PROXY protocol header: the load balancer before this listener must send none",
    b"\r\n\r\n": "a PROXY protocol header: the load balancer before this listener must send none",
}
"""First four bytes of other protocols, which would be read as the size of a request -> a hint for the log."""

_REMOVED: Final = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata", 7: "ControlledShutdown"}
"""APIs of ZooKeeper clusters. Kafka 4 has no messages for them, but their headers can still be read."""

if TYPE_CHECKING:
    from broker.net.routes import Route, Routes
    from broker.net.served_connection import ServedConnection


def refuse(connection: ServedConnection, header: RequestHeader, frame: bytes | memoryview) -> None:
    """Close the connection for an unsupported API or version. An unsupported version of ApiVersions gets a
    response instead (KIP-511)."""
    api_key, api_version = header.api_key, header.api_version
    if api_key != API_VERSIONS:
        facts = _unserved(connection._shared.routes, api_key, api_version)
        connection.close("API or version not served", api_key=api_key, api_version=api_version, **facts)
        return
    from protocol.messages.api_versions import ApiVersionsRequest

    # As in Kafka, handled as an empty request of version 0, as its layout is unknown (``RequestContext.parseRequest``).
    identity = API_VERSIONS << 16
    route = connection._shared.routes[identity]
    assert route is not None, "ApiVersions v0 is always served"
    as_version_0 = RequestHeader(api_key, 0, header.correlation_id, header.client_id, header.body_offset)
    context = connection._begin_context(as_version_0, identity)
    refusal = route.handled_by(_unsupported_version)
    connection._decoded(header, refusal, bytes(frame), context, ApiVersionsRequest())


def _unsupported_version(request: object, context: object) -> object:
    from broker.requests.error_answers import unsupported_version_response

    return unsupported_version_response()


def _unserved(routes: Routes, api_key: int, api_version: int) -> dict[str, str]:
    """Fields for the log: Kafka's name of the API, the served versions, and a hint for old clients."""
    from protocol.messages.index import APIS

    facts = {"api": message_name(APIS[api_key][0]) if api_key in APIS else _REMOVED[api_key]}
    api = routes.apis.get(api_key)
    if api is None:
        return facts
    first, last = min(api.versions), routes.unstable_versions.get(api_key, max(api.versions))
    facts["served"] = f"{first} to {last}"
    if 0 <= api_version < first:
        facts["hint"] = (
            "the client's protocol is older than Kafka 2.1's; Apache Kafka 4 refuses it too (KIP-896)"
        )
    return facts


def bad_size(connection: ServedConnection, size: int) -> None:
    """Close the connection because a frame's size is invalid, most often since the client speaks another protocol."""
    hint = _hint(size.to_bytes(4, "big", signed=True))
    connection.close("bad request size", size=size, **({"hint": hint} if hint else {}))


def _hint(first: bytes) -> str | None:
    if first.startswith(_TLS_HANDSHAKE):
        return "the client begins a TLS handshake"
    if first[:1] == b"*" and first[1:2].isdigit():
        return "the client speaks Redis's protocol"
    return _FIRST_BYTES.get(first)


def failed(connection: ServedConnection, route: Route, error: BaseException) -> list[Any] | None:
    """Response to a request whose handler raised an exception; None if the connection closes without one."""
    if isinstance(error, CloseConnection):
        if error.answer is None:
            connection.close(str(error), api=route.api.name, **error.facts)
            return None
        # Close after the response, which is written in this turn.
        close = partial(connection.close, str(error), api=route.api.name, **error.facts)
        connection._shared.loop.call_soon(close)
        return route.encode(error.answer)
    if not isinstance(error, Exception):
        raise error
    route.log_failure(connection.connection_id, error)
    substitute = route.encoded_failure()
    if substitute is None:
        connection.close("the request failed", api=route.api.name, api_version=route.version)
    return substitute
