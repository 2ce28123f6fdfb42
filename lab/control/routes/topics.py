"""Operations on topics: list them, create one (with a generated name if wanted), read records."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal
from uuid import uuid4

import msgspec
from msgspec import Meta

from broker.metadata import ApiError, NewTopic
from broker.metadata.internal_topics import creatable_topic
from broker.metadata.topics import CLUSTER_METADATA
from broker.replicas.partition import Partition
from lab.control.errors import HttpError
from lab.control.forms import Given, View
from lab.control.operations import operation
from lab.control.ports import Control, topic_of
from protocol.batch import CorruptBatch, RecordBatch, batches
from protocol.record import Header, Record
from storage.aborted import AbortedTransaction
from storage.files import StorageError

NAME_CHARACTERS_MAX: Final = 249
RECORDS_MAX: Final = 10_000
READ_BYTES: Final = 1024 * 1024
"""Largest number of bytes of the log that one call reads, except that a larger batch is read whole."""
RESPONSE_BYTES: Final = 8 * 1024 * 1024
"""Largest size of keys, values and headers in one response, except that a single larger record is returned, too."""
UNIQUE_CHARACTERS: Final = 12
WANTED_CHARACTERS_MAX: Final = 4096

Wanted = Annotated[str, Meta(max_length=WANTED_CHARACTERS_MAX)]
TopicName = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX, description="The name of the topic.")]


class OpenTransactionView(View):
    producer_id: int
    first_offset: int


class PartitionView(View):
    partition: int
    leader: int | None
    """The node that leads the partition; null, and the offsets -1, if no running node leads it."""
    log_start_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    open_transactions: list[OpenTransactionView] = msgspec.field(default_factory=list)
    """Transactions without a marker in this partition, by first offset. read_committed readers wait for them."""


class TopicView(View):
    name: str
    topic_id: str
    partitions: list[PartitionView]


class TopicsView(View):
    topics: list[TopicView]


class TopicForm(Given):
    name: (
        Annotated[
            str,
            Meta(max_length=NAME_CHARACTERS_MAX, description="If left out, the broker generates a name."),
        ]
        | None
    ) = None
    prefix: Annotated[
        str, Meta(max_length=NAME_CHARACTERS_MAX, description="Prefix of a generated name.")
    ] = "topic"
    partitions: Annotated[int, Meta(ge=-1, le=2**31 - 1, description="-1: the broker's default.")] = -1
    replication_factor: Annotated[
        int, Meta(ge=-1, le=2**15 - 1, description="-1: the broker's default.")
    ] = -1
    configs: Annotated[dict[str, str], Meta(description="Settings of the topic, such as cleanup.policy.")] = (
        msgspec.field(default_factory=dict)
    )


class CreatedTopicView(View):
    name: str
    topic_id: str
    partitions: int
    replication_factor: int


class RecordView(View):
    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    key_base64: str | None
    """The key as base64, if it is not UTF-8; ``key`` is null then. ``value`` and ``value_base64`` are alike."""
    value: str | None
    value_base64: str | None
    headers: list[tuple[str, str | None]]
    """In the record's order. Bytes of a value that are not UTF-8 are written as ``\\xff``."""
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    outcome: str | None
    """State of the record's transaction: committed, aborted or open; null without a transaction."""


class RecordsView(View):
    records: list[RecordView]
    partitions: int
    """Number of partitions of the topic."""
    next_offset: int
    """Offset from which the next call of this operation reads on."""
    end_offset: int
    """Last stable offset, or high watermark for read_uncommitted. If ``next_offset`` is equal, all records are read."""
    high_watermark: int
    """High watermark. Above ``end_offset`` there are records that wait for the end of a transaction."""


class RecordsForm(Given):
    topic: TopicName
    isolation: Annotated[
        Literal["read_committed", "read_uncommitted"],
        Meta(description="read_uncommitted returns records of open and aborted transactions too."),
    ] = "read_committed"
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    offset: (
        Annotated[int, Meta(ge=0, le=2**63 - 1, description="If left out: the log start offset.")] | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=RECORDS_MAX)] = 1000
    time_ms: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=2**63 - 1,
                description="Instead of offset: begin with the first record at or after this time.",
            ),
        ]
        | None
    ) = None
    key: Annotated[Wanted | None, Meta(description="Only records with this key.")] = None
    header: (
        Annotated[Wanted, Meta(description="Only records with this header: NAME, or NAME=VALUE.")] | None
    ) = None
    contains: (
        Annotated[
            Wanted,
            Meta(description="Only records with this text in key, value or a header's value, ignoring case."),
        ]
        | None
    ) = None


_RECORD: Final[dict[str, Any]] = {
    "partition": 0,
    "offset": 7,
    "timestamp_ms": 1795291007000,
    "key": "42",
    "key_base64": None,
    "value": "paid",
    "value_base64": None,
    "headers": [["source", "till"]],
    "producer_id": 1000,
    "producer_epoch": 4,
    "is_transactional": True,
    "outcome": "committed",
}
_PARTITION: Final[dict[str, Any]] = {
    "partition": 0,
    "leader": 1,
    "log_start_offset": 0,
    "high_watermark": 9,
    "last_stable_offset": 8,
    "open_transactions": [{"producer_id": 1000, "first_offset": 8}],
}
_TOPIC_ID: Final = "6b1a0b5e-5d55-4b0e-9d0b-0f6a3a1f7c11"
_CREATED: Final[dict[str, Any]] = {
    "name": "orders",
    "topic_id": _TOPIC_ID,
    "partitions": 4,
    "replication_factor": 1,
}


@operation(
    "GET",
    "/v1/topics",
    answer_example={"topics": [{"name": "orders", "topic_id": _TOPIC_ID, "partitions": [_PARTITION]}]},
    may_wait=True,
)
async def list_topics(control: Control) -> TopicsView:
    """List the topics with the offsets and the open transactions of their partitions."""
    found = []
    for name in sorted(control.cluster.metadata.topics):
        topic = control.cluster.metadata.topic(name)
        if topic is None or name == CLUSTER_METADATA:
            continue  # deleted in another turn of the event loop
        partitions = [_partition_view(control, name, state.index) for state in topic.partitions]
        found.append(TopicView(name=name, topic_id=str(topic.topic_id), partitions=partitions))
        await asyncio.sleep(0)
    return TopicsView(topics=found)


@operation(
    "POST",
    "/v1/topics",
    body_example={"prefix": "orders", "partitions": 4, "configs": {"cleanup.policy": "compact"}},
    answer_example=_CREATED,
    may_wait=True,
)
async def create_topic(control: Control, body: TopicForm) -> CreatedTopicView:
    """Create a topic. Without a name the broker generates one that no other topic has or had."""
    name = body.name or f"{body.prefix}-{uuid4().hex[:UNIQUE_CHARACTERS]}"
    wanted = NewTopic(name, body.partitions, body.replication_factor, configs=dict(body.configs))
    wanted = creatable_topic(wanted, control.cluster.settings.config)
    try:
        async with control.cluster.lifecycle.call():
            [result] = await control.cluster.metadata.replication_control.create_topics([wanted])
    except ApiError as refusal:
        raise HttpError(400, str(refusal)) from None
    if isinstance(result, ApiError):
        raise HttpError(400, f"{name}: {result}")
    return CreatedTopicView(
        name=result.name,
        topic_id=str(result.topic_id),
        partitions=result.partitions,
        replication_factor=result.replication_factor,
    )


@operation(
    "GET",
    "/v1/topics/{topic}/records",
    answer_example={
        "records": [_RECORD],
        "partitions": 4,
        "next_offset": 8,
        "end_offset": 8,
        "high_watermark": 9,
    },
    may_wait=True,
)
async def read_records(control: Control, params: RecordsForm) -> RecordsView:
    """Read the records of a partition as a consumer gets them: up to the last stable offset, without aborted records.

    With isolation=read_uncommitted: up to the high watermark, with aborted and open records. Control records are never
    returned. A call returns ``limit`` records at most, and may return fewer, or none. Continue at next_offset while it is
    below end_offset. An offset below the log start counts as the log start, one above the end is an error. A search (key,
    header, contains) reads 1 MiB of the log per call.
    """
    topic = topic_of(control.cluster.metadata, params.topic)
    state = topic.partition(params.partition)
    if state is None:
        raise HttpError(404, f"there is no partition {params.topic}-{params.partition}")
    partition = _leader(control, params.topic, params.partition)
    if partition is None:
        from lab.control.node_requests import no_leader  # rarely used

        raise no_leader(control.cluster, params.topic, state)
    if params.time_ms is not None:
        params = msgspec.structs.replace(
            params, offset=await _first_at(control, partition, params), time_ms=None
        )
    first, end = partition.log_start_offset, partition.high_watermark
    if params.offset is not None and params.offset > end:
        raise HttpError(
            400,
            f"{params.topic}-{params.partition}: offset {params.offset} is out of range: the log begins at {first} "
            f"and ends at {end}",
        )
    try:
        read = _Read(partition, params)
        # Decompressing takes longer than a turn of the event loop may. The bytes that were read do not change any more.
        records, next_offset = await asyncio.to_thread(read.records)
    except (StorageError, CorruptBatch) as error:
        raise HttpError(409, f"{params.topic}-{params.partition} cannot be read: {error}") from None
    return RecordsView(
        records=records,
        partitions=len(topic.partitions),
        next_offset=next_offset,
        end_offset=read.end_offset,
        high_watermark=read.high_watermark,
    )


def _leader(control: Control, topic: str, index: int) -> Partition | None:
    for node in control.cluster.running_nodes():
        partition = node.replicas.leader(topic, index)
        if isinstance(partition, Partition):
            return partition
    return None


async def _first_at(control: Control, partition: Partition, params: RecordsForm) -> int:
    from lab.control.node_requests import first_at  # rarely used

    assert params.time_ms is not None
    node = control.cluster.nodes[partition.leader_id].node
    committed = params.isolation == "read_committed"
    return await first_at(node, partition, params.time_ms, read_committed=committed)


def _partition_view(control: Control, topic: str, index: int) -> PartitionView:
    partition = _leader(control, topic, index)
    if partition is None:
        return PartitionView(partition=index, leader=None)
    return PartitionView(
        partition=index,
        leader=partition.leader_id,
        log_start_offset=partition.log_start_offset,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        open_transactions=[
            OpenTransactionView(producer_id=producer_id, first_offset=offset)
            for offset, producer_id in partition.log.producers.open_transactions()
        ],
    )


class _Read:
    """The bytes that one call has read in one turn of the event loop, and the state of the transactions in them."""

    def __init__(self, partition: Partition, params: RecordsForm) -> None:
        self._params = params
        self._committed = params.isolation == "read_committed"
        log = partition.log
        self.high_watermark = partition.high_watermark
        self.end_offset = partition.last_stable_offset if self._committed else self.high_watermark
        start = log.log_start_offset
        self._offset = max(start, start if params.offset is None else params.offset)
        span = log.read(self._offset, self.end_offset, READ_BYTES, whole_first_batch=True)
        self._bytes = b"" if span is None else span.bytes()
        self._aborted = [] if span is None else log.aborted_transactions(self._offset, span)
        self._open = {producer_id: offset for offset, producer_id in log.producers.open_transactions()}

    def records(self) -> tuple[list[RecordView], int]:
        """Return (records, offset at which the next call continues).

        The offset is the end offset if the log has no further records for the reader.
        """
        found: list[RecordView] = []
        offset, size = self._offset, 0
        for batch in batches(self._bytes):
            if batch.base_offset >= self.end_offset:
                break
            for view in self._views(batch):
                if len(found) == self._params.limit or size > RESPONSE_BYTES:
                    return found, offset
                found.append(view)
                offset = view.offset + 1
                size += _size(view)
            offset = batch.next_offset
        return found, offset if offset > self._offset else max(offset, self.end_offset)

    def _views(self, batch: RecordBatch) -> Iterator[RecordView]:
        if batch.is_control:
            return
        for record in batch.records():
            outcome = self._outcome(batch, record.offset)
            if record.offset < self._offset or (self._committed and outcome == "aborted"):
                continue
            if not self._is_wanted(record):
                continue
            key, key_base64 = _text(record.key)
            value, value_base64 = _text(record.value)
            yield RecordView(
                partition=self._params.partition,
                offset=record.offset,
                timestamp_ms=record.timestamp,
                key=key,
                key_base64=key_base64,
                value=value,
                value_base64=value_base64,
                headers=[
                    (name, None if data is None else data.decode("utf-8", "backslashreplace"))
                    for name, data in record.headers
                ],
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                is_transactional=batch.is_transactional,
                outcome=outcome,
            )

    def _is_wanted(self, record: Record) -> bool:
        wanted = self._params
        return (
            (wanted.key is None or record.key == wanted.key.encode())
            and (wanted.header is None or any(_is_header(wanted.header, each) for each in record.headers))
            and (wanted.contains is None or _contains(record, wanted.contains.casefold()))
        )

    def _outcome(self, batch: RecordBatch, offset: int) -> str | None:
        if not batch.is_transactional:
            return None
        if any(_is_in(entry, batch.producer_id, offset) for entry in self._aborted):
            return "aborted"
        first_open = self._open.get(batch.producer_id)
        return "open" if first_open is not None and first_open <= offset else "committed"


def _is_in(aborted: AbortedTransaction, producer_id: int, offset: int) -> bool:
    return aborted.producer_id == producer_id and aborted.first_offset <= offset <= aborted.last_offset


def _is_header(wanted: str, header: Header) -> bool:
    name, separator, value = wanted.partition("=")
    return header[0] == name and (not separator or header[1] == value.encode())


def _contains(record: Record, wanted: str) -> bool:
    texts = (record.key, record.value, *(value for _, value in record.headers))
    return any(wanted in text.decode("utf-8", "replace").casefold() for text in texts if text)


def _text(data: bytes | None) -> tuple[str | None, str | None]:
    """(text, None), or (None, base64) for bytes that are not UTF-8."""
    if data is None:
        return None, None
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, b64encode(data).decode()


def _size(view: RecordView) -> int:
    texts = (view.key, view.key_base64, view.value, view.value_base64)
    return sum(map(len, filter(None, texts))) + sum(
        len(name) + len(value or "") for name, value in view.headers
    )
