"""Builds record batches, valid or with defects, and decodes batches for comparison."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import cramjam
import google_crc32c

from tests.support.batches import CHECKED_AT, Batch, whole_batches

CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    offset_delta: int,
    value: bytes | None = b"v",
    key: bytes | None = b"k",
    ts_delta: int = 0,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    body = (
        b"\x00" + varint(ts_delta) + varint(offset_delta) + _sized(key) + _sized(value) + varint(len(headers))
    )
    for name, content in headers:
        body += _sized(name) + _sized(content)
    return varint(len(body)) + body


def compress(codec: int, data: bytes) -> bytes:
    if codec == 1:
        return bytes(cramjam.gzip.compress(data))
    if codec == 2:
        block = bytes(cramjam.snappy.compress_raw(data))
        return XERIAL + struct.pack(">i", len(block)) + block
    if codec == 3:
        return lz4_frame(data)
    if codec == 4:
        return bytes(cramjam.zstd.compress(data))
    return data


def lz4_frame(data: bytes) -> bytes:
    """An LZ4 frame with one independent block. Kafka refuses dependent blocks, which cramjam makes."""
    block = bytes(cramjam.lz4.compress_block(data, store_size=False))
    size = len(block)
    if size >= len(data):
        block, size = data, len(data) | 1 << 31
    return b"\x04\x22\x4d\x18\x60\x40\x82" + struct.pack("<I", size) + block + bytes(4)


def decompress(codec: int, data: bytes) -> bytes:
    if codec == 1:
        return bytes(cramjam.gzip.decompress(data))
    if codec == 2:
        return _unsnappy(data)
    if codec == 3:
        return bytes(cramjam.lz4.decompress(data))
    if codec == 4:
        return bytes(cramjam.zstd.decompress(data))
    return data


def _unsnappy(data: bytes) -> bytes:
    if not data.startswith(b"\x82SNAPPY\x00"):
        return bytes(cramjam.snappy.decompress_raw(data))
    at, out = 16, b""
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return out


def batch(
    values: int | Sequence[bytes | None] = 1,
    *,
    ts: int,
    pid: int = -1,
    epoch: int = -1,
    seq: int = -1,
    txn: bool = False,
    codec: int = 0,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    keys: Sequence[bytes | None] | None = None,
    ts_deltas: Sequence[int] | None = None,
    max_ts: int | None = None,
    last_delta: int | None = None,
    count: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    records: bytes | None = None,
    crc: int | None = None,
    length: int | None = None,
) -> bytes:
    """Build a v2 batch. `values` is a number of records or their values; every other argument overrides one field."""
    contents = [b"v%d" % i for i in range(values)] if isinstance(values, int) else list(values)
    size = len(contents)
    deltas = list(ts_deltas) if ts_deltas is not None else [0] * size
    if records is None:
        records = b"".join(
            record(
                offset_deltas[i] if offset_deltas is not None else i,
                contents[i],
                keys[i] if keys is not None else b"k%d" % i,
                deltas[i],
                headers,
            )
            for i in range(size)
        )
        records = compress(codec, records) if codec in CODECS else records
    top = ts + max(deltas, default=0) if max_ts is None else max_ts
    tail = struct.pack(
        ">hiqqqhii",
        attributes | codec | (0x10 if txn else 0),
        size - 1 if last_delta is None else last_delta,
        ts,
        top,
        pid,
        epoch,
        seq,
        size if count is None else count,
    )
    tail += records
    checksum = google_crc32c.value(tail) if crc is None else crc
    head = struct.pack(
        ">qiibI",
        base_offset,
        len(tail) + 9 if length is None else length,
        leader_epoch,
        magic,
        checksum,
    )
    return head + tail


def old_message(magic: int, ts: int) -> bytes:
    """One message of format 0 or 1."""
    import zlib

    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", ts) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", 1) + b"v"
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def sized(self) -> str | None:
        size = self.varint()
        if size < 0:
            return None
        self.at += size
        return text(self.data[self.at - size : self.at])


def text(data: bytes) -> str:
    return data.decode() if data.isascii() and data.decode().isprintable() and len(data) < 60 else _long(data)


def _long(data: bytes) -> str:
    return "0x" + data.hex() if len(data) < 60 else f"{len(data)} bytes, crc {google_crc32c.value(data):08x}"


def _records(data: bytes, count: int) -> list[Any]:
    cursor, out = _Cursor(data), []
    for _ in range(count):
        cursor.varint()
        cursor.at += 1
        ts_delta, offset_delta = cursor.varint(), cursor.varint()
        key, value = cursor.sized(), cursor.sized()
        headers = [[cursor.sized(), cursor.sized()] for _ in range(cursor.varint())]
        out.append([offset_delta, ts_delta, key, value, *([headers] if headers else [])])
    return out


def read_batches(data: bytes) -> list[Mapping[str, Any]]:
    """The fields of every batch in a Fetch response. A truncated last batch is `partial`."""
    out: list[Mapping[str, Any]] = []
    at = 0
    for each in whole_batches(data):
        out.append(_fields(each, data[at + CHECKED_AT : at + each.size]))
        at += each.size
    if at < len(data):
        out.append({"partial": len(data) - at})
    return out


def _fields(batch: Batch, checked: bytes) -> Mapping[str, Any]:
    codec = batch.attributes & 7
    try:
        records: Any = _records(decompress(codec, batch.records), batch.record_count)
    except Exception as error:
        records = f"unreadable: {type(error).__name__}"
    if batch.is_control and isinstance(records, list):
        records = [batch.records.hex()]
    return {
        "base_offset": batch.base_offset,
        "size": "compressed" if codec else batch.size,
        "leader_epoch": batch.leader_epoch,
        "magic": batch.magic,
        "crc": "right" if batch.crc == google_crc32c.value(checked) else "wrong",
        "attributes": batch.attributes,
        "last_delta": batch.last_offset_delta,
        "base_timestamp": batch.base_timestamp_ms,
        "max_timestamp": batch.max_timestamp_ms,
        "producer_id": batch.producer_id,
        "epoch": batch.producer_epoch,
        "sequence": batch.base_sequence,
        "count": batch.record_count,
        "records": records,
    }
