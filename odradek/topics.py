"""The topics of a running broker and their records, through the control port."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.control_client import ControlClient, in_path
from odradek.errors import HIDDEN_IN_TRACEBACKS
from odradek.words import Isolation, Outcome

__tracebackhide__ = HIDDEN_IN_TRACEBACKS

_RECORDS_AT_ONCE: Final = 1000


class TopicOperations:
    """The topic methods of `odradek.Broker` and of the object that `odradek.connect` returns."""

    def _control_client(self) -> ControlClient:
        raise NotImplementedError

    def create_topic(
        self, name: str | None = None, partitions: int = -1, *, prefix: str = "topic", **settings: object
    ) -> str:
        """Create a topic and return its name. Without ``name``, the name is unique and begins with ``prefix``.

        ``partitions`` -1 is the broker's default. Settings are Kafka's topic settings with underscores for dots, as text,
        numbers or booleans: ``cleanup_policy="compact"``. Raises ``ControlRefused`` with the reason if the topic cannot be
        created.
        """
        form = {"name": name, "prefix": prefix, "partitions": partitions}
        configs = {key.replace("_", "."): _config(value) for key, value in settings.items()}
        return str(self._control_client().post("/v1/topics", {**form, "configs": configs})["name"])


def _config(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Record:
    """One record in the leader's log. Key and value are str if they are UTF-8, else bytes."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str | bytes | None
    value: str | bytes | None
    headers: tuple[tuple[str, str | None], ...]
    producer_id: int
    """Producer id of the record. It and the epoch are -1 for a producer without idempotence."""
    producer_epoch: int
    is_transactional: bool
    outcome: Outcome | None
    """Outcome of the record's transaction: "committed", "aborted" or "open"; None for a record outside transactions."""

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition} @{self.offset}"


@dataclass(slots=True)
class ReadRecords:
    """The result of reading a topic."""

    records: list[Record]
    """The records, ordered by partition and offset."""
    held_from: dict[int, int]
    """Partition -> last stable offset, for each partition whose last stable offset is below the high watermark."""


def read_records(
    client: ControlClient, topic: str, isolation: Isolation = "read_committed", partition: int | None = None
) -> ReadRecords:
    """Read the records of a topic, or of one partition. Raises ``NotFound`` if the topic or partition does not exist."""
    read = ReadRecords([], {})
    partitions = _read_partition(client, topic, isolation, partition or 0, read)
    if partition is None:
        for index in range(1, partitions):
            _read_partition(client, topic, isolation, index, read)
    return read


def read_behind(client: ControlClient, topic: str, held_from: Mapping[int, int]) -> list[Record]:
    """Read the records from the offsets ``held_from`` (by partition) to the log end.

    The records are ordered by partition and offset.
    """
    read = ReadRecords([], {})
    for partition, offset in held_from.items():
        _read_partition(client, topic, "read_uncommitted", partition, read, offset)
    return read.records


def _read_partition(
    client: ControlClient,
    topic: str,
    isolation: Isolation,
    partition: int,
    read: ReadRecords,
    offset: int | None = None,
) -> int:
    """Read one partition up to its current end offset, and append the records to ``read``.

    Returns the topic's number of partitions.
    """
    path = f"/v1/topics/{in_path(topic)}/records"
    query: dict[str, object] = {"isolation": isolation, "partition": partition, "limit": _RECORDS_AT_ONCE}
    query["offset"] = offset
    end_offset: int | None = None
    while True:
        page = client.get(path, query)
        if end_offset is None:
            end_offset = page["end_offset"]
            if end_offset < page["high_watermark"]:
                read.held_from[partition] = end_offset
        read.records += (_record(topic, each) for each in page["records"] if each["offset"] < end_offset)
        if page["next_offset"] >= end_offset:
            return int(page["partitions"])
        query["offset"] = page["next_offset"]


def _record(topic: str, view: dict[str, Any]) -> Record:
    return Record(
        topic=topic,
        partition=view["partition"],
        offset=view["offset"],
        timestamp_ms=view["timestamp_ms"],
        key=_data(view["key"], view["key_base64"]),
        value=_data(view["value"], view["value_base64"]),
        headers=tuple((name, value) for name, value in view["headers"]),
        producer_id=view["producer_id"],
        producer_epoch=view["producer_epoch"],
        is_transactional=view["is_transactional"],
        outcome=view["outcome"],
    )


def _data(text: str | None, base64: str | None) -> str | bytes | None:
    return b64decode(base64) if base64 is not None else text
