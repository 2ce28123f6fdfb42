"""Read from ``__cluster_metadata`` which topics and partitions exist, and which topics are compacted.

The driver reads the log, not the snapshots. If a snapshot has replaced the beginning of the log, the cluster is unknown.
Record types are those of Kafka's ``metadata`` module (TopicRecord.json and others); only the first fields of each record
are read, which all versions have.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from odradek.spark.segments import Segments

TOPIC: Final = "__cluster_metadata"
_TOPIC_RECORD: Final = 2
_PARTITION_RECORD: Final = 3
_CONFIG_RECORD: Final = 4
_REMOVE_TOPIC_RECORD: Final = 9
_REGISTER_BROKER_RECORD: Final = 0
_LOG_DIRS_SINCE: Final = 3
_LOG_DIRS_TAG: Final = 0
_TOPIC_RESOURCE: Final = 2
_COLUMNS: Final = "offset,timestamp,value,control,error"

Key = tuple[str, int]


@dataclass
class ClusterMetadata:
    """The cluster as of the end of its metadata log. Times are in milliseconds since the epoch."""

    complete: bool = False
    """Whether the metadata log starts at offset 0 and could be read completely."""
    end_offset: int = 0
    """Offset after the last record in the metadata log."""
    broker_ids: set[int] = field(default_factory=set)
    log_dir_ids: dict[int, set[uuid.UUID]] = field(default_factory=dict)
    """Ids of the log directories of each broker, from its newest registration; empty before Kafka 3.7 (KIP-858)."""
    created_ms: dict[Key, int] = field(default_factory=dict)
    """The existing partitions as (topic, partition), with the time at which each was created."""
    compacted: set[str] = field(default_factory=set)
    """Topics whose ``cleanup.policy`` has ever included ``compact``."""


def read(log_dirs: list[str]) -> ClusterMetadata:
    """Read the copy of the metadata log with the highest end offset: the others may lack the latest topic deletions."""
    known = [_read(Path(path)) for path in log_dirs if (Path(path) / f"{TOPIC}-0").is_dir()]
    last = max(known, key=lambda each: (each.end_offset, each.complete), default=ClusterMetadata())
    return replace(last, compacted=set().union(*(each.compacted for each in known)))


def _read(log_dir: Path) -> ClusterMetadata:
    reading = Reading()
    rows = _rows(log_dir)
    for row in rows:
        if row["error"] is not None or not reading.follows(row):
            ends = (row["offset"] + 1 for row in rows if row["offset"] is not None)
            return ClusterMetadata(end_offset=max(ends, default=0))
    return reading.cluster


def _rows(log_dir: Path) -> list[dict[str, Any]]:
    source = Segments({"path": str(log_dir), "table": "records", "topics": TOPIC, "columns": _COLUMNS})
    reader = source.reader(source.schema())
    batches = (batch for task in reader.partitions() for batch in reader.read(task))
    rows = pa.Table.from_batches(batches, to_arrow_schema(source.schema(), timezone="UTC")).to_pylist()
    return sorted(rows, key=lambda row: -1 if row["offset"] is None else row["offset"])


class Reading:
    """State of the cluster while its metadata records are read in order."""

    def __init__(self) -> None:
        self.cluster = ClusterMetadata()
        self._next_offset = 0
        self._names: dict[uuid.UUID, str] = {}

    def follows(self, row: dict[str, Any]) -> bool:
        """Apply one record. Return False if a record before it is missing, or if the record cannot be parsed."""
        if row["offset"] != self._next_offset:
            return False
        self._next_offset += 1
        self.cluster.complete, self.cluster.end_offset = True, self._next_offset
        if row["control"] or row["value"] is None:
            return True
        try:
            self._take(
                _Bytes(row["value"]), int(row["timestamp"].timestamp() * 1000) if row["timestamp"] else 0
            )
        except (struct.error, UnicodeDecodeError, ValueError):
            return False
        return True

    def _take(self, value: _Bytes, at_ms: int) -> None:
        _frame_version, kind, version = value.varint(), value.varint(), value.varint()
        if kind == _TOPIC_RECORD:
            name = value.string()
            self._names[value.uuid()] = name
        elif kind == _PARTITION_RECORD:
            index = value.int32()
            name = self._names.get(value.uuid(), "")
            self.cluster.created_ms[name, index] = at_ms
        elif kind == _REMOVE_TOPIC_RECORD:
            gone = self._names.pop(value.uuid(), None)
            self.cluster.created_ms = {
                key: ms for key, ms in self.cluster.created_ms.items() if key[0] != gone
            }
        elif kind == _CONFIG_RECORD:
            resource, name, config, setting = value.int8(), value.string(), value.string(), value.string()
            if resource == _TOPIC_RESOURCE and config == "cleanup.policy" and "compact" in setting:
                self.cluster.compacted.add(name)
        elif kind == _REGISTER_BROKER_RECORD:
            broker_id = value.int32()
            self.cluster.broker_ids.add(broker_id)
            self.cluster.log_dir_ids[broker_id] = _log_dir_ids(value, version)


def _log_dir_ids(value: _Bytes, version: int) -> set[uuid.UUID]:
    """The directory ids in a RegisterBrokerRecord, from the bytes after the broker id."""
    if version < _LOG_DIRS_SINCE:
        return set()
    value.skip(1 + 16 + 8)  # IsMigratingZkBroker, IncarnationId, BrokerEpoch
    for _ in range(value.varint() - 1):  # EndPoints
        value.string(), value.string()
        value.skip(2 + 2 + 1)  # Port, SecurityProtocol, no tags
    for _ in range(value.varint() - 1):  # Features
        value.string()
        value.skip(2 + 2 + 1)  # MinSupportedVersion, MaxSupportedVersion, no tags
    value.string()  # Rack
    value.skip(1 + 1)  # Fenced, InControlledShutdown
    for _ in range(value.varint()):
        tag, size = value.varint(), value.varint()
        if tag == _LOG_DIRS_TAG:
            return {value.uuid() for _ in range(value.varint() - 1)}
        value.skip(size)
    return set()


class _Bytes:
    """Reader of Kafka's flexible encoding (KIP-482). Raises ``struct.error`` or ``ValueError`` if bytes are missing."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def int8(self) -> int:
        return self._number(">b")

    def int32(self) -> int:
        return self._number(">i")

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._take(16))

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._number(">B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def skip(self, length: int) -> None:
        self._take(length)

    def string(self) -> str:
        """Read a string; null is read as an empty string."""
        return self._take(max(self.varint() - 1, 0)).decode()

    def _take(self, length: int) -> bytes:
        taken = self._data[self._at : self._at + length]
        if len(taken) < length:
            raise ValueError("the record ends within a field")
        self._at += length
        return taken
