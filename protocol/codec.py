"""From bytes to messages and back, for one version of one API.

A broker reads requests and writes responses (``request_codec``); a client, and a node that speaks to
another, does the reverse (``client_codec``). Nothing of an API is imported or compiled before its first use.
"""

import struct
from functools import cache
from typing import Any

from protocol.decode import Decoder, MalformedRequest, compile_decoder
from protocol.encode import Encoder, compile_encoder
from protocol.versions import Side, UnknownVersion, at_version

__all__ = ["Codec", "MalformedRequest", "UnknownVersion", "client_codec", "request_codec"]


class Codec:
    """Decodes one message class and encodes another."""

    __slots__ = ("_decode", "encode")

    # Chunks, in order, that make up the message. ``records`` and long bytes are among them uncopied.
    encode: Encoder

    def __init__(self, key: int, version: int, decodes: Side, encodes: Side) -> None:
        self._decode: Decoder = compile_decoder(at_version(key, version, decodes))
        self.encode = compile_encoder(at_version(key, version, encodes))

    def decode(self, buffer: bytes | memoryview, offset: int = 0) -> Any:
        """The message at ``offset``; what follows it is ignored. ``MalformedRequest`` if there is none.

        If ``buffer`` is a memoryview, ``records`` is a view of it, else a copy.
        """
        try:
            return self._decode(buffer, offset)
        except (struct.error, IndexError) as error:
            raise MalformedRequest("the message ends too early") from error


@cache
def request_codec(key: int, version: int) -> Codec:
    """Decodes requests, encodes responses. ``UnknownVersion`` if there is no such version."""
    return Codec(key, version, "request", "response")


@cache
def client_codec(key: int, version: int) -> Codec:
    """Decodes responses, encodes requests."""
    return Codec(key, version, "response", "request")
