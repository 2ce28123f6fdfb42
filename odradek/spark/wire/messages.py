"""Requests as bytes and answers as values, by kio's schema, at the versions this client speaks.

All are below transaction version 2 (KIP-890): with EndTxn 5 each end raises the epoch, and an end that is sent again
after a lost answer would not be the same one any more.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from struct import Struct
from typing import Any, NamedTuple

from odradek.spark.wire.errors import UnsupportedVersion
from odradek.spark.wire.schema import entity_reader, entity_writer

ANSWER_SIZE_BYTES_MAX = 64 * 1024 * 1024

_REQUEST_HEAD = Struct(">ihhih")
_CORRELATION = Struct(">i")
_API_RANGE = Struct(">hhh")
_ERROR_CODE = Struct(">h")
_FRAME_SIZE_BYTES = 4


class Api(NamedTuple):
    """One API, and the versions whose semantics this client needs, the highest first to be asked for."""

    name: str
    key: int
    lowest: int
    highest: int


PRODUCE = Api("produce", 0, 8, 9)
METADATA = Api("metadata", 3, 9, 12)
# require_stable is there since version 7 (KIP-447).
OFFSET_FETCH = Api("offset_fetch", 9, 7, 8)
FIND_COORDINATOR = Api("find_coordinator", 10, 3, 4)
SASL_HANDSHAKE = Api("sasl_handshake", 17, 1, 1)
API_VERSIONS = Api("api_versions", 18, 3, 3)
INIT_PRODUCER_ID = Api("init_producer_id", 22, 3, 4)
ADD_PARTITIONS_TO_TXN = Api("add_partitions_to_txn", 24, 2, 3)
ADD_OFFSETS_TO_TXN = Api("add_offsets_to_txn", 25, 2, 3)
END_TXN = Api("end_txn", 26, 2, 3)
TXN_OFFSET_COMMIT = Api("txn_offset_commit", 28, 3, 3)
SASL_AUTHENTICATE = Api("sasl_authenticate", 36, 1, 2)
# Since Kafka 3.0 (KIP-664).
LIST_TRANSACTIONS = Api("list_transactions", 66, 0, 0)

Versions = Mapping[int, tuple[int, int]]


def choose_version(api: Api, offered: Versions, broker: str) -> int:
    """The highest version that both sides have. ``UnsupportedVersion`` if there is none."""
    lowest, highest = offered.get(api.key, (0, -1))
    version = min(api.highest, highest)
    if version >= max(api.lowest, lowest):
        return version
    has = f"has versions {lowest} to {highest}" if highest >= 0 else "does not have it"
    raise UnsupportedVersion(
        "UNSUPPORTED_VERSION",
        f"{api.name} is needed in a version from {api.lowest} to {api.highest}, and the broker at {broker} {has}",
    )


@cache
def schema(api: Api, version: int) -> Any:
    """kio's module of a request: its class, and the classes of what is in it."""
    return import_module(f"kio.schema.{api.name}.v{version}.request")


@cache
def _codec(api: Api, version: int) -> tuple[Any, Any, bool, bool]:
    camel = "".join(part.capitalize() for part in api.name.split("_"))
    request = getattr(schema(api, version), f"{camel}Request")
    answer = getattr(import_module(f"kio.schema.{api.name}.v{version}.response"), f"{camel}Response")
    flexible = bool(request.__flexible__)
    # The header of an ApiVersions answer never has tags (KIP-511).
    return entity_writer(request), entity_reader(answer), flexible, flexible and api is not API_VERSIONS


def encode_request(api: Api, version: int, correlation_id: int, client_id: str, body: Any) -> bytes:
    """A frame, its size first."""
    write, _, flexible, _ = _codec(api, version)
    buffer = io.BytesIO()
    client = client_id.encode()
    buffer.write(_REQUEST_HEAD.pack(0, api.key, version, correlation_id, len(client)) + client)
    if flexible:
        buffer.write(b"\0")
    write(buffer, body)
    frame = buffer.getbuffer()
    _CORRELATION.pack_into(frame, 0, len(frame) - _FRAME_SIZE_BYTES)
    frame.release()
    return buffer.getvalue()


def correlation_of(frame: bytes) -> int:
    """Which request an answer (without its size) belongs to."""
    return int(_CORRELATION.unpack_from(frame)[0])


def decode_answer(api: Api, version: int, frame: bytes) -> Any:
    """An answer without its size. ``ValueError`` and the like if it does not parse."""
    _, read, _, tagged = _codec(api, version)
    position = _CORRELATION.size
    if tagged:
        if frame[position] != 0:
            raise ValueError("the header of an answer has tags that nobody knows")
        position += 1
    answer, _ = read(frame, position)
    return answer


def decode_api_versions(frame: bytes) -> tuple[int, Versions]:
    """Error code, and by API key the lowest and highest version that a broker has.

    By hand, because newer brokers add tagged fields to this one version, and with an error they answer in version 0."""
    position = _CORRELATION.size
    (error,) = _ERROR_CODE.unpack_from(frame, position)
    if error:
        return error, {}
    count, position = _unsigned_varint(frame, position + _ERROR_CODE.size)
    offered = {}
    for _ in range(count - 1):
        key, lowest, highest = _API_RANGE.unpack_from(frame, position)
        offered[key] = (lowest, highest)
        position = _skip_tags(frame, position + _API_RANGE.size)
    return 0, offered


def _unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def _skip_tags(data: bytes, position: int) -> int:
    count, position = _unsigned_varint(data, position)
    for _ in range(count):
        _, position = _unsigned_varint(data, position)
        size, position = _unsigned_varint(data, position)
        position += size
    return position
