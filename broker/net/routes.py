"""Maps the API key and version of a request to its codec and handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final

from broker.logging import get_logger
from broker.requests.api import Api, Handler
from protocol.codec import request_codec
from protocol.frame import response_header
from protocol.slotted import slotted
from protocol.versions import at_version

UNKNOWN_SERVER_ERROR: Final = -1
NO_VERSIONS: Final[Mapping[int, int]] = MappingProxyType({})

log = get_logger()


@slotted
class Route:
    """Codec and handler for one version of one API."""

    api: Api
    version: int
    handler: Handler = field(init=False)
    decode: Callable[[bytes | memoryview, int], Any] = field(init=False)
    encode: Callable[[Any], list[Any]] = field(init=False)
    decode_steps: Callable[[bytes | memoryview, int], Any] = field(init=False)
    encode_steps: Callable[[Any], Any] = field(init=False)
    header_tail: bytes = field(init=False)
    """The response header after the correlation id: an empty tag section, or nothing."""

    def __post_init__(self) -> None:
        codec = request_codec(self.api.key, self.version)
        self.handler = self.api.handler
        self.decode, self.encode = codec.decode, codec.encode
        self.decode_steps, self.encode_steps = codec.decode_steps, codec.encode_steps
        self.header_tail = response_header(self.api.key, self.version, 0)[4:]

    def handled_by(self, handler: Handler) -> Route:
        """Return a copy of this route with another handler."""
        route = Route(self.api, self.version)
        route.handler = handler
        return route

    def request_of(self, received: Any) -> Any:
        """The decoded request, from the result of ``decode``. On a proxy ``decode`` returns the undecoded request, which is
        decoded here.
        """
        return received

    def response_of(self, outcome: Any) -> Any:
        """The decoded response, from the result of a handler. On a proxy the handler returns the undecoded response, which
        is decoded here.
        """
        return outcome

    def log_failure(self, connection_id: int, error: Exception) -> None:
        """Log an unexpected exception of this route's handler."""
        facts = {"api": self.api.name, "api_version": self.version, "connection": connection_id}
        log.error("request failed", **facts, exc_info=error)

    def encoded_failure(self) -> list[Any] | None:
        """Encode a response with UNKNOWN_SERVER_ERROR; None if this version has no top-level error code.

        If the response has error codes only per topic or partition, no valid response can be built without the request. The
        connection is then closed, and the client retries.
        """
        response = at_version(self.api.key, self.version, "response")
        if all(wire.name != "error_code" for wire in response.__wire__):
            return None
        try:
            return self.encode(response.__union__(error_code=UNKNOWN_SERVER_ERROR))
        except (TypeError, ValueError, AttributeError):
            return None  # another field of this version has no usable default


class Routes(dict[int, Route | None]):
    """Routes by ``key << 16 | version``, each created at first use. For an API or version that is not served, the value is
    None.

    A None is not stored. A negative version makes the number negative, which has no route, since no API has a negative key.
    """

    def __init__(self, apis: Mapping[int, Api], unstable_versions: Mapping[int, int] = NO_VERSIONS) -> None:
        """``unstable_versions``: API key -> the one version that is served in addition to those of the API."""
        super().__init__()
        self.apis = apis
        self.unstable_versions = unstable_versions

    def __missing__(self, identity: int) -> Route | None:
        key, version = identity >> 16, identity & 0xFFFF
        api = self.apis.get(key)
        if api is None or not (version in api.versions or version == self.unstable_versions.get(key)):
            return None
        route = self[identity] = self.route(api, version)
        return route

    def route(self, api: Api, version: int) -> Route:
        """Create the route for this version of an API. `Routes` calls this at the first request."""
        return Route(api, version)
