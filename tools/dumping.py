"""Parse the files of a partition directory into rows, which `odradek dump` prints."""

from __future__ import annotations

import dataclasses
import mmap
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from protocol.batch import Record, RecordBatch, batches, parse_end_txn_marker
from protocol.compression import CODEC_NAMES
from protocol.record import CorruptBatch
from protocol.records import cluster_metadata, group_log, kraft, producer_snapshot, transaction_log
from protocol.schema import MalformedRecord
from storage.index import ABORTED_ENTRY, OFFSET_ENTRY, TIME_ENTRY
from tools.client.transactions import transaction_state
from tools.old_messages import OldMessage
from tools.text import text_of, time_text

Row = dict[str, Any]
Buffer = bytes | mmap.mmap
_LOG: Final = re.compile(r"(\d{20})(?:-\d{10})?\.(log|index|timeindex|txnindex|snapshot|checkpoint)")


class UnknownFile(Exception):
    """The file is not a log file of a known type."""


def rows_of(path: Path, *, records: bool) -> Iterator[Row]:
    """The content of a file, in order. ``records`` adds the records of each batch.

    Raises ``UnknownFile`` for other files.
    """
    match = _LOG.fullmatch(path.name)
    if path.name in ("leader-epoch-checkpoint", "partition.metadata"):
        yield from ({"line": line} for line in path.read_text().splitlines())
        return
    if match is None:
        raise UnknownFile(
            f"{path}: not a .log, .index, .timeindex, .txnindex, .snapshot or .checkpoint file of a segment"
        )
    base, kind = int(match[1]), match[2]
    if kind in ("log", "checkpoint"):
        yield from _batches(_mapped(path), _decoder(path.parent.name), records=records)
    elif kind == "snapshot":
        yield from _producers(path.read_bytes())
    else:
        yield from _entries(path.read_bytes(), base, kind)


def _mapped(path: Path) -> Buffer:
    """Map the file into memory instead of reading it: a segment may have a gigabyte."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""


# -- batches ----------------------------------------------------------------------------------------------------


def _batches(data: Buffer, decode: Callable[[Record], Row], *, records: bool) -> Iterator[Row]:
    view, position = memoryview(data), 0
    try:
        while position < len(view):
            if (message := OldMessage.parse(view, position)) is not None:
                yield _old_message(message, position, records=records)
                position += message.size
                continue
            batch = next(batches(view, position), None)
            if batch is None:
                yield {
                    "position": position,
                    "damaged": f"{len(view) - position} bytes at the end are not a complete batch",
                }
                return
            position = batch.start + batch.size
            yield _batch(batch)
            if records:
                yield from _records(batch, decode)
    except CorruptBatch as error:
        yield {"position": position, "damaged": str(error)}


def _old_message(message: OldMessage, position: int, *, records: bool) -> Row:
    row: Row = {
        "base_offset": message.offset,
        "last_offset": message.offset,
        "format": message.magic,
        "position": position,
        "size": message.size,
        "max_timestamp": message.timestamp,
        "compression": CODEC_NAMES[message.compression]
        if message.compression < len(CODEC_NAMES)
        else message.compression,
        "crc": message.crc,
        "crc_valid": message.crc_valid,
    }
    if records:
        row |= {"key": None if message.key is None else text_of(message.key), "value": text_of(message.value)}
    return row


def _batch(batch: RecordBatch) -> Row:
    row: Row = {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.record_count,
        "position": batch.start,
        "size": batch.size,
        "leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "compression": CODEC_NAMES[batch.compression]
        if batch.compression < len(CODEC_NAMES)
        else batch.compression,
        "max_timestamp": batch.max_timestamp,
        "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        "crc": batch.crc,
        "crc_valid": batch.has_valid_crc(),
    }
    if batch.delete_horizon_ms is not None:
        row["delete_horizon_ms"] = batch.delete_horizon_ms
    return row


def _records(batch: RecordBatch, decode: Callable[[Record], Row]) -> Iterator[Row]:
    try:
        for record in batch.records():
            row: Row = {"offset": record.offset, "timestamp": record.timestamp}
            if record.sequence >= 0:
                row["sequence"] = record.sequence
            row |= _control(batch, record) if batch.is_control else decode(record)
            if record.headers:
                row["headers"] = [[name, text_of(value)] for name, value in record.headers]
            yield row
    except CorruptBatch as error:
        yield {"position": batch.start, "damaged": str(error)}


def _control(batch: RecordBatch, record: Record) -> Row:
    marker = parse_end_txn_marker(batch)
    if marker is not None:
        return {
            "marker": "COMMIT" if marker.committed else "ABORT",
            "coordinator_epoch": marker.coordinator_epoch,
        }
    return {"value": _named(kraft.decode_control_record(record.key, record.value))}


def _decoder(directory: str) -> Callable[[Record], Row]:
    """The decoder for the records of a partition, chosen by the topic in its directory's name."""
    topic = directory.rpartition("-")[0]
    known: dict[str, Callable[[Record], Row]] = {
        "__consumer_offsets": _group_record,
        "__transaction_state": _transaction_record,
        "__share_group_state": _share_record,
        "__cluster_metadata": _metadata_record,
    }
    decode = known.get(topic)
    if decode is None:
        return _plain

    def guarded(record: Record) -> Row:
        assert decode is not None
        try:
            return decode(record)
        except MalformedRecord as error:
            return {**_plain(record), "damaged": str(error)}

    return guarded


def _plain(record: Record) -> Row:
    return {"key": None if record.key is None else text_of(record.key), "value": text_of(record.value)}


def _group_record(record: Record) -> Row:
    key = group_log.decode_key(record.key or b"")
    if isinstance(key, group_log.UnknownKey):
        return _plain(record)
    return {"key": _named(key), "value": _named(group_log.decode_value(key, record.value))}


def _transaction_record(record: Record) -> Row:
    key = transaction_log.TransactionLogKey.decode(record.key or b"")
    if record.value is None:
        return {"key": _named(key), "value": None}
    value = transaction_log.TransactionLogValue.decode(record.value)
    return {"key": _named(key), "state": transaction_state(value.transaction_status), "value": _named(value)}


def _share_record(record: Record) -> Row:
    from protocol.records.share_state_log import decode_record  # rarely used

    found = decode_record(record.key or b"", record.value)
    if found is None:
        return _plain(record)
    key, value = found
    return {"key": _named(key), "value": _named(value)}


def _metadata_record(record: Record) -> Row:
    return {"value": _named(cluster_metadata.decode_metadata_record(record.value or b""))}


def _named(value: Any) -> Any:
    """A decoded structure as plain values, with the name of its class."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: _named(getattr(value, each.name)) for each in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    if isinstance(value, bytes | memoryview):
        return text_of(bytes(value))
    return str(value) if isinstance(value, UUID) else value


# -- indexes and snapshots --------------------------------------------------------------------------------------


def _entries(data: bytes, base: int, kind: str) -> Iterator[Row]:
    entry = {"index": OFFSET_ENTRY, "timeindex": TIME_ENTRY, "txnindex": ABORTED_ENTRY}[kind]
    whole = len(data) // entry.size * entry.size
    for number, values in enumerate(entry.iter_unpack(data[:whole])):
        if kind == "index":
            yield {"entry": number, "offset": base + values[0], "position": values[1]}
        elif kind == "timeindex":
            yield {"entry": number, "timestamp": values[0], "offset": base + values[1]}
        else:
            _, producer_id, first, last, stable = values
            yield {
                "entry": number,
                "producer_id": producer_id,
                "first_offset": first,
                "last_offset": last,
                "last_stable_offset": stable,
            }
    if whole < len(data):
        yield {"position": whole, "damaged": f"{len(data) - whole} bytes at the end are not a complete entry"}


def _producers(data: bytes) -> Iterator[Row]:
    try:
        for each in producer_snapshot.decode(data):
            yield each._asdict()
    except producer_snapshot.MalformedSnapshot as error:
        yield {"position": 0, "damaged": str(error)}


# -- as text ----------------------------------------------------------------------------------------------------


def line_of(row: Row) -> str:
    """A row as text: a batch without indentation, its records indented below it."""
    if "damaged" in row and "base_offset" not in row:
        return f"DAMAGED at {row.get('position', '?')}: {row['damaged']}"
    if "base_offset" in row:
        return _batch_line(row)
    if "line" in row:
        return str(row["line"])
    indent = "    " if "offset" in row and "entry" not in row else ""
    parts = [
        f"{name}={_brief(value)}" for name, value in row.items() if name not in ("timestamp", "sequence")
    ]
    if "timestamp" in row:
        parts.insert(1, time_text(row["timestamp"]))
    return indent + "  ".join(parts)


def _batch_line(row: Row) -> str:
    crc = f"crc {row['crc']:#010x}" if row["crc_valid"] else f"DAMAGED: crc {row['crc']:#010x} is wrong"
    if "format" in row:
        parts = [
            f"{row['base_offset']}-{row['last_offset']}",
            f"a message of format {row['format']}",
            f"at {row['position']}, {row['size']} bytes",
            time_text(row["max_timestamp"]),
            str(row["compression"]),
            crc,
        ]
        return "  ".join(
            [*parts, *(f"{name}={_brief(row[name])}" for name in ("key", "value") if name in row)]
        )
    marks = [name for name in ("transactional", "control") if row[name]]
    producer = (
        f"producer {row['producer_id']} epoch {row['producer_epoch']}"
        if row["producer_id"] >= 0
        else "no producer id"
    )
    if row["base_sequence"] >= 0:
        producer += f" sequence {row['base_sequence']}-{row['last_sequence']}"
    return "  ".join(
        [
            f"{row['base_offset']}-{row['last_offset']}",
            f"{row['count']} record{'s' * (row['count'] != 1)}",
            f"at {row['position']}, {row['size']} bytes",
            f"epoch {row['leader_epoch']}",
            producer,
            time_text(row["max_timestamp"]),
            str(row["compression"]),
            crc,
            *marks,
        ]
    )


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{name}={_brief(each)}" for name, each in value.items() if name != "type")
        return f"{value.get('type', '')}({inner})"
    if isinstance(value, list):
        return "[" + ", ".join(map(_brief, value)) + "]"
    return "null" if value is None else str(value)
