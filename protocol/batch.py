"""Record batches of format 2: producers send them, logs store them, consumers fetch them.

A `RecordBatch` is a view: the 61 bytes of the header are unpacked once, the records stay where they are. The CRC does not
cover the base offset and the leader epoch, so a broker sets both without changing the rest. Kafka's `DefaultRecordBatch`
and `DefaultRecord` describe the format.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import Self

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from . import compression as codecs
from .core import compiled, mirrored
from .named_tuple import NamedTuple
from .record import NO_SEQUENCE as NO_SEQUENCE  # exported here, because it belongs to batches
from .record import SEQUENCE_MASK, decode_only_record
from .record import CorruptBatch as CorruptBatch
from .record import Header as Header
from .record import Reason as Reason
from .record import Record as Record
from .record import decode_records as decode_records
from .record import encode_record as encode_record

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
# Bytes that `batchLength` does not include: the base offset and the length itself.
LOG_OVERHEAD_BYTES = 12
MAGIC = 2
MARKER_BYTES = 78
PATCHED_BYTES = 16
"""Size of the part of a header that a broker rewrites: base offset, length, leader epoch."""
ONE_PIECE_BYTES = 4096

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_LEADER_EPOCH = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
_KNOWN_ATTRIBUTES = 0x7F

# base offset, length, leader epoch, magic, crc | attributes, last offset delta, base and max timestamp,
# producer id, producer epoch, base sequence, record count. The CRC covers the second half and the records.
_HEADER = Struct(">qiibIhiqqqhii")
_HEAD = Struct(">qiibI")
_TAIL = Struct(">hiqqqhii")
_PATCH = Struct(">qii")
_LENGTH = Struct(">i")
_CRC_START = 21
_CRC_PIECE_BYTES = 64 * 1024
_TAIL_END_BYTES = HEADER_BYTES - LOG_OVERHEAD_BYTES

_unpack_header = _HEADER.unpack_from


class EndTxnMarker(NamedTuple):
    """Content of the marker that ends a transaction in a partition."""

    committed: bool
    coordinator_epoch: int


RecordLike = tuple[int, bytes | None, bytes | None] | tuple[int, bytes | None, bytes | None, Iterable[Header]]


class RecordBatch:
    """A view of one batch in a buffer. The buffer must not change while the view is in use."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
        "start",
    )

    buffer: Buffer
    start: int
    size: int
    base_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @classmethod
    @mirrored("parse_batch")
    def parse(cls, buffer: Buffer, start: int = 0) -> Self:
        """The batch that begins at `start`. Neither its CRC nor its records are checked."""
        batch = cls()
        try:
            (
                batch.base_offset,
                length,
                batch.partition_leader_epoch,
                batch.magic,
                batch.crc,
                batch.attributes,
                batch.last_offset_delta,
                batch.base_timestamp,
                batch.max_timestamp,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.record_count,
            ) = _unpack_header(buffer, start)
        except StructError:
            raise _corrupt_header(buffer, start) from None
        batch.size = size = length + LOG_OVERHEAD_BYTES
        if batch.magic != MAGIC or size < HEADER_BYTES or start + size > len(buffer):
            raise _corrupt_header(buffer, start)
        batch.buffer = buffer
        batch.start = start
        return batch

    @classmethod
    def parse_header(cls, header: bytes) -> Self:
        """A batch without its records, from the bytes of its header. Only the fields of the header may be used."""
        length = int.from_bytes(header[8:LOG_OVERHEAD_BYTES], "big", signed=True)
        batch = cls.parse(
            header[:8] + _LENGTH.pack(HEADER_BYTES - LOG_OVERHEAD_BYTES) + header[LOG_OVERHEAD_BYTES:]
        )
        batch.size = length + LOG_OVERHEAD_BYTES
        if batch.size < HEADER_BYTES:
            raise _corrupt_header(header, 0)
        return batch

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets {self.base_offset}-{self.last_offset}, {self.size} bytes, "
            f"attributes {self.attributes:#x}, producer {self.producer_id}/{self.producer_epoch}, "
            f"sequence {self.base_sequence})"
        )

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; 2^31-1 is followed by 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MASK

    @property
    def compression(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time from which compaction may remove this batch's tombstones and marker (KIP-534); None if it has no horizon."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def data(self) -> memoryview:
        """The bytes of the whole batch, not copied."""
        return memoryview(self.buffer)[self.start : self.start + self.size]

    @property
    def body(self) -> memoryview:
        """The records as they are stored, compressed or not."""
        return memoryview(self.buffer)[self.start + HEADER_BYTES : self.start + self.size]

    @mirrored("stored_at")
    def stored_at(self, base_offset: int, leader_epoch: int) -> tuple[Buffer, ...]:
        """The bytes of the batch with this base offset and leader epoch, as chunks for a log to write.

        A small batch is one chunk, a copy. A larger batch is two chunks: its first 16 bytes, which are new, and a
        view of all others.
        """
        buffer, start, size = self.buffer, self.start, self.size
        head = patched_header(buffer, base_offset, leader_epoch, start)
        if size <= ONE_PIECE_BYTES:
            return (head + buffer[start + PATCHED_BYTES : start + size],)
        return (head, memoryview(buffer)[start + PATCHED_BYTES : start + size])

    @mirrored("has_valid_crc")
    def has_valid_crc(self) -> bool:
        # The library only takes `bytes`. Copies of moderate pieces stay in the processor's cache, and need no new megabyte
        # from the allocator.
        buffer, position, end = self.buffer, self.start + _CRC_START, self.start + self.size
        crc = crc32c(bytes(buffer[position : min(position + _CRC_PIECE_BYTES, end)]))
        for at in range(position + _CRC_PIECE_BYTES, end, _CRC_PIECE_BYTES):
            crc = crc32c_extend(crc, bytes(buffer[at : min(at + _CRC_PIECE_BYTES, end)]))
        return bool(crc == self.crc)

    def plain_body(self, limit: int = codecs.DECOMPRESSED_BYTES_MAX) -> bytes:
        """The encoded records, decompressed if necessary. Raises `CorruptBatch` if they cannot be, or exceed ``limit``."""
        try:
            return codecs.decompress(self.attributes & CODEC_MASK, self.body, limit)
        except codecs.CompressionError as error:
            raise CorruptBatch(Reason.COMPRESSION, str(error)) from None

    def records(self) -> Iterator[Record]:
        """The records in order. Raises `CorruptBatch` when the iteration reaches a malformed record."""
        return decode_records(
            self.plain_body(),
            self.record_count,
            base_offset=self.base_offset,
            base_timestamp=self.base_timestamp,
            base_sequence=self.base_sequence,
            log_append_time_ms=self.max_timestamp if self.attributes & LOG_APPEND_TIME else None,
        )

    def keys_and_values(self) -> Iterable[tuple[bytes | None, bytes | None]]:
        """Keys and values of the records. Faster than `records` for a batch with one record, such as a coordinator's."""
        buffer = self.buffer
        if self.record_count == 1 and not self.attributes & CODEC_MASK and isinstance(buffer, bytes):
            return (decode_only_record(buffer, self.start + HEADER_BYTES, self.start + self.size),)
        return ((record.key, record.value) for record in self.records())


def _corrupt_header(buffer: Buffer, start: int) -> CorruptBatch:
    available = len(buffer) - start
    if available <= 16:
        return CorruptBatch(Reason.SHORT, f"a batch cannot fit into {available} bytes")
    magic = buffer[start + 16]
    if magic != MAGIC:
        return CorruptBatch(Reason.MAGIC, f"magic {magic} is not a record format that is kept here")
    size = _LENGTH.unpack_from(buffer, start + 8)[0] + LOG_OVERHEAD_BYTES
    if size < HEADER_BYTES:
        return CorruptBatch(Reason.SIZE, f"a batch of {size} bytes is smaller than its header")
    return CorruptBatch(Reason.SHORT, f"a batch of {size} bytes cannot fit into {available} bytes")


if compiled is not None:
    compiled.set_up_batches(
        batch=RecordBatch, corrupt_header=_corrupt_header, one_piece_bytes=ONE_PIECE_BYTES
    )


def batches(buffer: Buffer, start: int = 0, end: int | None = None) -> Iterator[RecordBatch]:
    """The complete batches between `start` and `end`. An incomplete batch at the end is left out."""
    limit = len(buffer) if end is None else end
    parse = RecordBatch.parse
    while start < limit:
        try:
            batch = parse(buffer, start)
        except CorruptBatch as error:
            if error.reason is Reason.SHORT:
                return
            raise
        start += batch.size
        if start > limit:
            return
        yield batch


@mirrored("build_batch")
def build_batch(
    records: Sequence[RecordLike],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    compression: int = codecs.NONE,
    compression_level: int | None = None,
    log_append_time_ms: int | None = None,
) -> bytes:
    """Build a batch of `(timestamp_ms, key, value)` or `(timestamp_ms, key, value, headers)` with consecutive offsets."""
    base_timestamp = records[0][0] if records else NO_TIMESTAMP
    if len(records) == 1:
        # The common case, a coordinator's state record, without a list and a maximum.
        body = encode_record(0, 0, *records[0][1:])
        max_timestamp = base_timestamp
    else:
        encoded = [
            encode_record(delta, record[0] - base_timestamp, *record[1:])
            for delta, record in enumerate(records)
        ]
        body = b"".join(encoded)
        max_timestamp = max((record[0] for record in records), default=NO_TIMESTAMP)
    attributes = TRANSACTIONAL if transactional else 0
    if control:
        attributes |= CONTROL
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = log_append_time_ms
    if compression:
        attributes |= compression
        body = codecs.compress(compression, body, compression_level)
    tail = _TAIL.pack(
        attributes,
        max(len(records) - 1, 0),
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return _assemble(base_offset, leader_epoch, tail, body)


def _assemble(base_offset: int, leader_epoch: int, tail: bytes, body: bytes) -> bytes:
    """Build a batch from the first 21 bytes of the header, with a new CRC, the other 40 bytes (``tail``) and the records
    (``body``).
    """
    crc = crc32c_extend(crc32c(tail), body)
    head = _HEAD.pack(base_offset, _TAIL_END_BYTES + len(body), leader_epoch, MAGIC, crc)
    return b"".join((head, tail, body))


# Transaction markers (KIP-98): a control record, key {version 0, type}, value {version 0, coordinator epoch}

_MARKER_ATTRIBUTES = TRANSACTIONAL | CONTROL
_MARKER_RECORD_START = bytes.fromhex("20 00 00 00 08 0000")
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_MARKER_ABORT, _MARKER_COMMIT = 0, 1


@mirrored("end_txn_marker")
def end_txn_marker(
    producer_id: int,
    producer_epoch: int,
    *,
    committed: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The marker that ends a transaction in one partition: a batch of 78 bytes."""
    tail = _TAIL.pack(
        _MARKER_ATTRIBUTES, 0, timestamp_ms, timestamp_ms, producer_id, producer_epoch, NO_SEQUENCE, 1
    )
    kind = b"\0\1\x0c\0\0" if committed else b"\0\0\x0c\0\0"
    record = _MARKER_RECORD_START + kind + _LENGTH.pack(coordinator_epoch) + b"\0"
    return _assemble(base_offset, leader_epoch, tail, record)


def parse_end_txn_marker(batch: RecordBatch) -> EndTxnMarker | None:
    """Content of a control batch; None if it has no record, or is of another type than a transaction marker."""
    for record in batch.records():
        if record.key is None or len(record.key) < _MARKER_KEY.size:
            raise CorruptBatch(Reason.RECORDS, "the key of a control record is too short")
        version, kind = _MARKER_KEY.unpack_from(record.key)
        if version < 0:
            raise CorruptBatch(Reason.RECORDS, f"a control record has the invalid version {version}")
        if kind not in (_MARKER_ABORT, _MARKER_COMMIT):
            return None
        if record.value is None or len(record.value) < _MARKER_VALUE.size:
            raise CorruptBatch(Reason.RECORDS, "the value of a transaction marker is too short")
        version, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
        if version < 0:
            raise CorruptBatch(Reason.RECORDS, f"a transaction marker has the invalid version {version}")
        return EndTxnMarker(kind == _MARKER_COMMIT, coordinator_epoch)
    return None


# Changes to existing batches.


@mirrored("patched_header")
def patched_header(batch: Buffer, base_offset: int, leader_epoch: int, start: int = 0) -> bytes:
    """The first 16 bytes of a batch with a new base offset and leader epoch.

    `writev((patched_header(…), memoryview(batch)[16:]))` writes the whole batch.
    """
    return _PATCH.pack(base_offset, _LENGTH.unpack_from(batch, start + 8)[0], leader_epoch)


def with_log_append_time(batch: RecordBatch, now_ms: int) -> bytes:
    """A copy of the batch with LogAppendTime: all its records have the timestamp `now_ms`."""
    return _with(batch, batch.attributes | LOG_APPEND_TIME, now_ms)


def with_max_timestamp(batch: RecordBatch, max_timestamp: int) -> bytes:
    """A copy of the batch with CreateTime, whose header has ``max_timestamp``, the largest timestamp of the records."""
    return _with(batch, batch.attributes & ~LOG_APPEND_TIME, max_timestamp)


def with_body(batch: RecordBatch, compression: int, body: bytes) -> bytes:
    """A copy of the batch with ``body`` as its records, which are compressed with ``compression``."""
    return _with(batch, batch.attributes & ~CODEC_MASK | compression, batch.max_timestamp, body)


def _with(batch: RecordBatch, attributes: int, max_timestamp: int, body: bytes | None = None) -> bytes:
    tail = _TAIL.pack(
        attributes,
        batch.last_offset_delta,
        batch.base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.record_count,
    )
    records = bytes(batch.body) if body is None else body
    return _assemble(batch.base_offset, batch.partition_leader_epoch, tail, records)


def retain(batch: RecordBatch, kept: Sequence[Record], delete_horizon_ms: int | None = None) -> bytes:
    """A copy of the batch with only the records `kept`, for compaction. The other header fields do not change.

    The base offset and last offset delta, and so the sequences, do not change even if no record is kept: the last batch of a
    producer is needed to recognise duplicates. Records are compressed with the batch's codec. Their timestamps are relative
    to the delete horizon, if the batch has or gets one, otherwise to the first record that is kept
    (`MemoryRecords.filterTo`).
    """
    attributes = batch.attributes & _KNOWN_ATTRIBUTES
    max_timestamp = batch.max_timestamp
    if kept:
        if delete_horizon_ms is None:
            delete_horizon_ms = batch.delete_horizon_ms
        if delete_horizon_ms is None:
            base_timestamp = kept[0].timestamp
        else:
            base_timestamp = delete_horizon_ms
            attributes |= DELETE_HORIZON
        plain = b"".join(
            encode_record(
                r.offset - batch.base_offset, r.timestamp - base_timestamp, r.key, r.value, r.headers
            )
            for r in kept
        )
        body = codecs.compress(batch.compression, plain)
        if not batch.is_log_append_time:
            max_timestamp = max(r.timestamp for r in kept)
    else:
        attributes &= ~(CODEC_MASK | DELETE_HORIZON)
        base_timestamp = NO_TIMESTAMP
        body = b""
    tail = _TAIL.pack(
        attributes,
        batch.last_offset_delta,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(kept),
    )
    return _assemble(batch.base_offset, batch.partition_leader_epoch, tail, body)
