"""Routes that forward requests and responses as bytes. A message is decoded only if an interceptor wants its API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from types import GeneratorType
from typing import Any, Final

from broker.net.routes import Route, Routes
from broker.requests.api import Api, CloseConnection, Handler
from protocol.codec import MalformedRequest, client_codec
from protocol.frame import response_body_offset
from protocol.messages.index import APIS
from protocol.slotted import slotted
from protocol.varint import read_unsigned_varint
from protocol.versions import versions_of
from proxy.wire import Frame
from storage.steps import Steps

FRAMES: Final = (bytes, memoryview)
PRODUCE: Final = 0
SASL: Final = frozenset({17, 36})
"""APIs that concern only the connection on which a client sends them. The proxy's own requests use other connections."""
RESPONSE_ELEMENTS_MAX: Final = 5_000_000
"""Largest number of elements in all arrays of a response together, as in the metadata of a large cluster."""
FIRST_FLEXIBLE_PRODUCE: Final = 9


class Received:
    """A request that arrived. ``message`` is None until it is decoded."""

    __slots__ = ("frame", "message", "offset")

    def __init__(self, frame: memoryview, offset: int, message: Any = None) -> None:
        self.frame = frame
        self.offset = offset
        self.message = message


@slotted
class ForwardRoute(Route):
    """A route whose handler takes a `Received`, and returns a response, as a frame or decoded."""

    is_looked_at: Callable[[int], bool]
    """Function that returns whether an interceptor currently wants the decoded requests of an API."""
    _decode: Callable[[Frame, int], Any] = field(init=False)
    _decode_steps: Callable[[Frame, int], Any] = field(init=False)
    _encode_steps: Callable[[Any], Any] = field(init=False)

    def __post_init__(self) -> None:
        Route.__post_init__(self)
        self._decode, self._decode_steps, self._encode_steps = (
            self.decode,
            self.decode_steps,
            self.encode_steps,
        )
        self.decode, self.decode_steps, self.encode_steps = self._receive, self._receive_steps, self._pass_on

    def _receive(self, frame: Frame, offset: int) -> Received:
        view = memoryview(frame)
        return Received(view, offset, self._decode(view, offset))

    def _receive_steps(self, frame: Frame, offset: int) -> Received | Steps[Received]:
        # A new view, because the connection's view ends with this call.
        received = Received(memoryview(frame), offset)
        if not self.is_looked_at(self.api.key):
            return received
        message = self._decode_steps(received.frame, offset)
        if isinstance(message, GeneratorType):
            return _completed(received, message)
        received.message = message
        return received

    def _pass_on(self, outcome: Any) -> Any:
        if not isinstance(outcome, FRAMES):
            return self._encode_steps(outcome)
        return [memoryview(outcome)[response_body_offset(self.api.key, self.version, outcome) :]]

    def request_of(self, received: Any) -> Any:
        if received.message is None:
            received.message = self._decode(received.frame, received.offset)
        return received.message

    def response_of(self, outcome: Any) -> Any:
        if not isinstance(outcome, FRAMES):
            return outcome
        try:
            return read_response(self.api.key, self.version, outcome)
        except MalformedRequest as error:  # the client still gets the bytes that the upstream has sent
            return CloseConnection("the response cannot be read", error=str(error))


def _completed(received: Received, steps: Steps[Any]) -> Steps[Received]:
    received.message = yield from steps
    return received


class ForwardRoutes(Routes):
    """A route for every API version that can be decoded."""

    def __init__(self, handler: Handler, is_looked_at: Callable[[int], bool]) -> None:
        super().__init__(served_apis(handler))
        self._is_looked_at = is_looked_at

    def route(self, api: Api, version: int) -> Route:
        return ForwardRoute(api, version, self._is_looked_at)


def served_apis(handler: Handler) -> Mapping[int, Api]:
    """Every API that can be decoded, except those of SASL."""
    found = {}
    for key, (name, *_) in APIS.items():
        versions = versions_of(key)
        if key not in SASL:
            served = range(versions[0], versions[-1] + 1)
            found[key] = Api(key, name, served, served, handler)
    return found


def read_response(key: int, version: int, frame: Frame) -> Any:
    """Decode a response frame. Raises ``MalformedRequest`` if it is invalid. Records are views of the frame."""
    view = memoryview(frame)
    return client_codec(key, version).decode(view, response_body_offset(key, version, view))


def response_steps(key: int, version: int, frame: Frame) -> Steps[Any]:
    """As `read_response`, but as a generator that yields between the slices of a large response."""
    view = memoryview(frame)
    offset = response_body_offset(key, version, view)
    message = client_codec(key, version).decode_steps(view, offset, RESPONSE_ELEMENTS_MAX)
    if isinstance(message, GeneratorType):
        message = yield from message
    return message


def acks_of(received: Received, version: int) -> int:
    """``acks`` of a Produce, read from its bytes behind the transactional id."""
    if received.message is not None:
        return int(received.message.acks)
    frame, at = received.frame, received.offset
    if version >= FIRST_FLEXIBLE_PRODUCE:
        length, at = read_unsigned_varint(frame, at)
        at += max(0, length - 1)
    else:
        length = int.from_bytes(frame[at : at + 2], "big", signed=True)
        at += 2 + max(0, length)
    return int.from_bytes(frame[at : at + 2], "big", signed=True)


def encoded_request(key: int, version: int, request: Any, header: bytes) -> bytes:
    """The frame of one of the proxy's own requests, which begins with ``header``."""
    return b"".join((header, *client_codec(key, version).encode(request)))
