"""What a connection answers to a request that it cannot answer as it was asked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.requests.api import CloseConnection
from protocol.frame import API_VERSIONS

TLS_HANDSHAKE: Final = 0x1603
"""A record of type handshake, of any version."""

if TYPE_CHECKING:
    from broker.net.routes import Route
    from broker.net.served_connection import ServedConnection


def refuse(connection: ServedConnection, api_key: int, api_version: int, correlation_id: int) -> None:
    """An API or a version that is not served: the end, but for ApiVersions, by which clients find out."""
    if api_key != API_VERSIONS:
        connection.close("API or version not served", api_key=api_key, api_version=api_version)
        return
    # Answered as version 0: the client cannot know the layout of versions that we do not.
    from broker.requests.error_answers import unsupported_version_response

    route = connection._shared.routes[API_VERSIONS << 16]
    assert route is not None, "ApiVersions v0 is always served"
    connection._answer(route, correlation_id, unsupported_version_response())


def bad_size(connection: ServedConnection, size: int) -> None:
    """The first four bytes of a frame are no size: most often they are those of another protocol."""
    if size >> 16 == TLS_HANDSHAKE:
        connection.close("bad request size", size=size, hint="the client begins a TLS handshake")
    else:
        connection.close("bad request size", size=size)


def failed(connection: ServedConnection, route: Route, error: BaseException) -> list[Any] | None:
    """The answer to a request that ended in an exception; None if there is none and the connection ends instead."""
    if isinstance(error, CloseConnection):
        if error.answer is None:
            connection.close(str(error), api=route.api.name, **error.facts)
            return None
        # Behind the answer, which is written in this turn.
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
