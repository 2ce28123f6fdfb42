"""The operation that writes a record, outside or inside of a transaction."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from broker.metadata.topics import NAME_CHARACTERS_MAX
from lab.control.errors import HttpError
from lab.control.forms import Given, View
from lab.control.operations import operation
from lab.control.ports import Control, topic_of
from protocol.hashing import partition_of_key

TEXT_CHARACTERS_MAX: Final = 256 * 1024
HEADERS_MAX: Final = 64
ID_CHARACTERS_MAX: Final = 2**15 - 1

Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]
HeaderForm = tuple[Text, Text | None]


class OneTopic(Given):
    topic: Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX, description="The name of the topic.")]


class NewRecord(Given):
    """Key and value are text; null is Kafka's null."""

    partition: Annotated[
        Annotated[int, Meta(ge=0, le=2**31 - 1)] | None,
        Meta(description="If left out: chosen by the key, or 0 without a key."),
    ] = None
    key: Text | None = None
    value: Text | None = None
    headers: Annotated[list[HeaderForm], Meta(max_length=HEADERS_MAX)] = msgspec.field(default_factory=list)
    transactional_id: Annotated[
        Annotated[str, Meta(min_length=1, max_length=ID_CHARACTERS_MAX)] | None,
        Meta(description="Write the record in a transaction of this id."),
    ] = None
    end: Annotated[
        Literal["commit", "abort", "none"] | None,
        Meta(description="How that transaction ends. If left out: commit. none leaves it open."),
    ] = None


class WrittenView(View):
    topic: str
    partition: int
    offset: int
    transactional_id: str | None
    producer_id: int
    """Producer id of the transaction; -1 without a transaction."""
    producer_epoch: int


_EXAMPLE: Final[dict[str, Any]] = {
    "topic": "orders",
    "partition": 0,
    "offset": 12,
    "transactional_id": "payments",
    "producer_id": 1000,
    "producer_epoch": 4,
}


@operation(
    "POST",
    "/v1/topics/{topic}/records",
    body_example={
        "partition": 0,
        "key": "42",
        "value": "paid",
        "headers": [["source", "till"]],
        "transactional_id": "payments",
        "end": "commit",
    },
    answer_example=_EXAMPLE,
    may_wait=True,
)
async def produce_record(control: Control, params: OneTopic, body: NewRecord) -> WrittenView:
    """Write one record with acks=all: outside of any transaction, or in one that is committed, aborted or left open.

    Each call with a transactional id begins a transaction of its own. It fences the id's earlier producer, and aborts
    the transaction that this producer, or a call with end none, has left open. If that transaction does not end within
    10 s, the response is 409. The response to a commit comes when the commit is decided, before the markers are
    written. Rules for Produce do not apply, because the record does not come over the network.
    """
    from lab.control import node_requests  # rarely used

    topic = topic_of(control.cluster.metadata, params.topic)
    if body.transactional_id is None and body.end is not None:
        raise HttpError(
            400, f"end {body.end} needs a transactional_id: without it the record is in no transaction"
        )
    key = None if body.key is None else body.key.encode()
    index = body.partition
    if index is None:
        index = 0 if key is None else partition_of_key(key, len(topic.partitions))
    record = (
        control.clock.now_ms(),
        key,
        None if body.value is None else body.value.encode(),
        [(name, None if value is None else value.encode()) for name, value in body.headers],
    )
    producer = (-1, -1)
    if body.transactional_id is None:
        offset = await node_requests.produce(control.cluster, params.topic, index, record)
    else:
        offset, producer = await node_requests.produce_in_transaction(
            control, params.topic, index, record, body.transactional_id, body.end or "commit"
        )
    return WrittenView(
        topic=params.topic,
        partition=index,
        offset=offset,
        transactional_id=body.transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )
