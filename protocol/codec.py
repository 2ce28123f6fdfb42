"""Decodes and encodes the messages of one version of one API.

A broker reads requests and writes responses (``request_codec``). A client, or a node that sends a request to another, does
the reverse (``client_codec``). The modules of an API are imported and compiled at its first use.

A message with many elements takes long. For such a message ``decode_steps`` and ``encode_steps`` return a generator that
yields after each slice, so that the event loop can serve other connections in between.
"""

import struct
from collections.abc import Generator
from functools import cache
from typing import Any

from .decode import (
    Decoder,
    MalformedRequest,
    SlicedDecoder,
    compile_sliced_decoder,
)
from .encode import Encoder, SlicedEncoder, compile_sliced_encoder
from .errors import ErrorCode
from .frame import API_VERSIONS, SIZE, request_header, response_body_offset
from .messages import Chunk
from .program import decoder_of, encoder_of
from .source import LongMessage
from .versions import Side, UnknownVersion, at_version
from .wire_types import ARRAY_ELEMENTS_MAX

__all__ = [
    "Codec",
    "MalformedRequest",
    "UnknownVersion",
    "client_codec",
    "read_response",
    "request_codec",
    "request_frame",
    "version_of_response",
]

ELEMENTS_MAX = ARRAY_ELEMENTS_MAX
"""Largest number of elements of all arrays in a request together. Kafka limits each array, but not their sum."""
_NO_BOUND = 1 << 62


class Codec:
    """Decodes one message class and encodes another: the request and the response of one version, or the reverse."""

    __slots__ = ("_decode", "_decoded", "_encode", "_encoded", "_sliced_decoder", "_sliced_encoder")

    def __init__(self, key: int, version: int, decodes: Side, encodes: Side) -> None:
        self._decoded, self._encoded = at_version(key, version, decodes), at_version(key, version, encodes)
        self._decode: Decoder = decoder_of(self._decoded)
        self._encode: Encoder = encoder_of(self._encoded)
        self._sliced_decoder: SlicedDecoder | None = None
        self._sliced_encoder: SlicedEncoder | None = None

    def decode(self, buffer: bytes | memoryview, offset: int = 0) -> Any:
        """Decode the message at ``offset``, and ignore what follows it. Raises ``MalformedRequest``.

        A field of type records is a view of ``buffer`` if ``buffer`` is a memoryview, else a copy.
        """
        try:
            return self._decode(buffer, offset)
        except LongMessage:
            return _run(self._decode_sliced(buffer, offset, _NO_BOUND))
        except (struct.error, IndexError) as error:
            raise MalformedRequest("the message ends too early") from error

    def decode_steps(
        self, buffer: bytes | memoryview, offset: int = 0, elements_max: int = ELEMENTS_MAX
    ) -> Any | Generator[None, None, Any]:
        """Like ``decode``, but for a message with many elements returns a generator whose value is the message.

        The generator raises ``MalformedRequest`` for a message with more than ``elements_max`` elements.
        """
        try:
            return self._decode(buffer, offset)
        except LongMessage:
            return self._decode_sliced(memoryview(buffer), offset, elements_max)
        except (struct.error, IndexError) as error:
            raise MalformedRequest("the message ends too early") from error

    def encode(self, message: Any) -> list[Chunk]:
        """Encode a message to chunks. Records and long values of type bytes are chunks of their own, and not copied."""
        try:
            return self._encode(message)
        except LongMessage:
            return _run(self._encode_sliced(message))  # type: ignore[no-any-return]

    def encode_steps(self, message: Any) -> list[Chunk] | Generator[None, None, list[Chunk]]:
        """Like ``encode``, but for a message with many elements returns a generator, whose return value is the list of
        chunks.
        """
        try:
            return self._encode(message)
        except LongMessage:
            return self._encode_sliced(message)

    def _decode_sliced(
        self, buffer: bytes | memoryview, offset: int, elements_max: int
    ) -> Generator[None, None, Any]:
        if self._sliced_decoder is None:
            self._sliced_decoder = compile_sliced_decoder(self._decoded)
        try:
            return (yield from self._sliced_decoder(buffer, offset, elements_max))
        except (struct.error, IndexError) as error:
            raise MalformedRequest("the message ends too early") from error

    def _encode_sliced(self, message: Any) -> Generator[None, None, list[Chunk]]:
        if self._sliced_encoder is None:
            self._sliced_encoder = compile_sliced_encoder(self._encoded)
        return (yield from self._sliced_encoder(message))


def _run(steps: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@cache
def request_codec(key: int, version: int) -> Codec:
    """The codec of a broker: decodes requests, encodes responses. Raises ``UnknownVersion``."""
    return Codec(key, version, "request", "response")


@cache
def client_codec(key: int, version: int) -> Codec:
    """The codec of a client: decodes responses, encodes requests."""
    return Codec(key, version, "response", "request")


def request_frame(key: int, version: int, correlation_id: int, client_id: str | None, request: Any) -> bytes:
    """A client's request as a frame: size, header, message. Records are copied once."""
    header = request_header(key, version, correlation_id, client_id)
    body = client_codec(key, version).encode(request)
    return b"".join((SIZE.pack(len(header) + sum(map(len, body))), header, *body))


def version_of_response(key: int, version: int, frame: bytes | memoryview) -> int:
    """The version of the response to a request of ``version``.

    A broker that does not support the version of an ApiVersions request responds in version 0 (KIP-511).
    """
    return 0 if key == API_VERSIONS and frame[4:6] == _UNSUPPORTED_VERSION else version


def read_response(key: int, version: int, frame: bytes | memoryview) -> Any:
    """Decode the response to a request of ``version``, from a frame without its size. Raises ``MalformedRequest``."""
    version = version_of_response(key, version, frame)
    return client_codec(key, version).decode(frame, response_body_offset(key, version, frame))


_UNSUPPORTED_VERSION = int(ErrorCode.unsupported_version).to_bytes(2, "big")
