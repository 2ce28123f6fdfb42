"""A raw client: it sends prebuilt frames on a blocking socket, and decodes nothing during the measured time.

The client takes very little CPU time, so that the figures are the broker's.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from protocol.batch import build_batch
from protocol.codec import read_response, request_frame
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

SIZE: Final = struct.Struct(">i")
PRODUCE: Final = (0, 9)
FETCH: Final = (1, 12)
FIND_COORDINATOR: Final = (10, 4)
CREATE_TOPICS: Final = (19, 5)
INIT_PRODUCER_ID: Final = (22, 4)
TRANSACTIONAL_PRODUCE: Final = (0, 12)
"""First version of Produce in which the leader adds the partition to the transaction (KIP-890)."""
END_TXN: Final = (26, 5)
TXN_OFFSET_COMMIT: Final = (28, 5)
# The versions that librdkafka sends: a producer of transaction version 1.
ADD_PARTITIONS: Final = (24, 0)
ADD_OFFSETS: Final = (25, 0)
DECLARED_PRODUCE: Final = (0, 10)
DECLARED_OFFSETS: Final = (28, 3)
DECLARED_END: Final = (26, 1)
LARGE_BATCH_BYTES: Final = 1 << 20
"""Size in bytes of the batch in large requests: 1 MiB, the maximum with Kafka's default settings."""

READY_S: Final = 30.0

Api = tuple[int, int]
T = TypeVar("T")


class WrongResponse(Exception):
    """The target responded with an error or with unexpected data, so a figure would be meaningless."""


def until_ready(ask: Callable[[], T]) -> T:
    """Return the result of ``ask``. Retry after a `WrongResponse`, for `READY_S`: the target may not be ready yet."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            return ask()
        except WrongResponse:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def frame(api: Api, request: Any) -> bytes:
    return request_frame(*api, 1, "benchmark", request)


def parse(api: Api, answer: bytes | memoryview) -> Any:
    return read_response(*api, answer)


class Client:
    """One connection to a target."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = bytearray(LARGE_BATCH_BYTES * 2)
        self._view = memoryview(self._buffer)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> memoryview:
        """Read the next response. The next call reuses the buffer. For several responses at once use `in_flight`."""
        view, received = self._view, 0
        while received < SIZE.size:
            received += self._more(view[received:])
        end = SIZE.size + SIZE.unpack_from(view)[0]
        while received < end:
            received += self._more(view[received:end])
        return view[SIZE.size : end]

    def _more(self, into: memoryview) -> int:
        received = self.socket.recv_into(into)
        if not received:
            raise WrongResponse("the target closed the connection")
        return received

    def ask(self, api: Api, request: Any) -> Any:
        self.send(frame(api, request))
        return parse(api, bytes(self.receive()))

    def close(self) -> None:
        self.socket.close()


def large_batch() -> bytes:
    """A batch of one record with a size of exactly 1 MiB."""
    overhead = len(build_batch([(0, None, bytes(LARGE_BATCH_BYTES - 200))])) - (LARGE_BATCH_BYTES - 200)
    batch = build_batch([(now_ms(), None, bytes(LARGE_BATCH_BYTES - overhead))])
    assert len(batch) == LARGE_BATCH_BYTES
    return batch


def small_batch(producer_id: int = -1, sequence: int = -1) -> bytes:
    """A batch of one record with a value of 100 bytes."""
    return build_batch(
        [(now_ms(), None, bytes(100))],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


def produce_frame(
    topic: str, batch: bytes, indexes: Sequence[int] = (0,), transactional_id: str | None = None
) -> bytes:
    """A Produce request with the same batch for each of the partitions."""
    partitions = [PartitionProduceData(index=index, records=batch) for index in indexes]
    data = TopicProduceData(name=topic, partition_data=partitions)
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=[data])
    return frame(PRODUCE, request)


def transaction_frames(topic: str, transactional_id: str, producer_id: int, epoch: int) -> bytes:
    """A transaction with one record: Produce and EndTxn, which increments the producer epoch."""
    own = _producer(producer_id, epoch)
    produce = _produce_request(topic, [0], transactional_id, _batch(1, 0, own))
    return frame(TRANSACTIONAL_PRODUCE, produce) + frame(END_TXN, _end_request(transactional_id, own))


def whole_transaction_frames(
    topic: str, group: str, transactional_id: str, producer_id: int, epoch: int
) -> bytes:
    """A transaction of ten records in two partitions and an offset commit: Produce, TxnOffsetCommit, EndTxn."""
    own = _producer(producer_id, epoch)
    produce = _produce_request(topic, [0, 1], transactional_id, _batch(5, 0, own))
    offsets = _offsets_request(topic, group, transactional_id, epoch, own)
    end = _end_request(transactional_id, own)
    return frame(TRANSACTIONAL_PRODUCE, produce) + frame(TXN_OFFSET_COMMIT, offsets) + frame(END_TXN, end)


def declared_transaction_frames(
    topic: str, group: str, transactional_id: str, producer_id: int, number: int
) -> bytes:
    """The transaction of `whole_transaction_frames` by a producer of transaction version 1 (librdkafka).

    The frames add the partitions by AddPartitionsToTxn and AddOffsetsToTxn.
    """
    own = _producer(producer_id, 0)
    declared = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0, 1])],
    )
    batch = _batch(5, number * 5, own)
    group_declared = AddOffsetsToTxnRequest(transactional_id=transactional_id, group_id=group, **own)
    offsets = _offsets_request(topic, group, transactional_id, number, own)
    return b"".join(
        (
            frame(ADD_PARTITIONS, declared),
            *(
                frame(DECLARED_PRODUCE, _produce_request(topic, [index], transactional_id, batch))
                for index in (0, 1)
            ),
            frame(ADD_OFFSETS, group_declared),
            frame(DECLARED_OFFSETS, offsets),
            frame(DECLARED_END, _end_request(transactional_id, own)),
        )
    )


def _producer(producer_id: int, epoch: int) -> dict[str, Any]:
    return {"producer_id": producer_id, "producer_epoch": epoch}


def _batch(records: int, sequence: int, producer: dict[str, Any]) -> bytes:
    made = [(now_ms(), None, bytes(100))] * records
    return build_batch(made, base_sequence=sequence, transactional=True, **producer)


def _produce_request(
    topic: str, partitions: Iterable[int], transactional_id: str, batch: bytes
) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=topics)


def _offsets_request(
    topic: str, group: str, transactional_id: str, offset: int, producer: dict[str, Any]
) -> TxnOffsetCommitRequest:
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)]
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id, group_id=group, topics=topics, **producer
    )


def _end_request(transactional_id: str, producer: dict[str, Any]) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=transactional_id, committed=True, **producer)


def check_committed(answer: bytes, epoch: int) -> None:
    """Check the response to the last EndTxn. A different producer epoch means that an earlier EndTxn has failed."""
    ended = parse(END_TXN, answer)
    if ended.error_code or ended.producer_epoch != epoch:
        raise WrongResponse(f"EndTxn: error {ended.error_code}, epoch {ended.producer_epoch}, not {epoch}")


def check_ended(answer: bytes) -> None:
    """Check the response to the last EndTxn of a producer of transaction version 1."""
    if error := parse(DECLARED_END, answer).error_code:
        raise WrongResponse(f"EndTxn: error {error}")


def check_produced(answers: Iterable[bytes]) -> None:
    for answer in answers:
        (topic,) = parse(PRODUCE, answer).responses
        for partition in topic.partition_responses:
            if partition.error_code:
                raise WrongResponse(f"Produce: error {partition.error_code}")


def fetch_frame(topic: str, offset: int) -> bytes:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=LARGE_BATCH_BYTES)
    topics = [FetchTopic(topic=topic, partitions=[asked])]
    return frame(
        FETCH, FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=LARGE_BATCH_BYTES, topics=topics)
    )


def create_topic_frame(name: str, partitions: int = 1) -> bytes:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return frame(CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))


def create_topic(client: Client, name: str, partitions: int = 1) -> None:
    client.send(create_topic_frame(name, partitions))
    answer = parse(CREATE_TOPICS, bytes(client.receive()))
    if answer.topics[0].error_code:
        raise WrongResponse(f"CreateTopics: error {answer.topics[0].error_code}")


def init_producer_id_frame(transactional_id: str | None = None) -> bytes:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return frame(INIT_PRODUCER_ID, request)


def init_producer_id(client: Client, transactional_id: str | None = None) -> int:
    """Request a producer id. The first request with a transactional id makes the broker create ``__transaction_state``."""

    def asked() -> int:
        client.send(init_producer_id_frame(transactional_id))
        answer = parse(INIT_PRODUCER_ID, bytes(client.receive()))
        if answer.error_code:
            raise WrongResponse(f"InitProducerId: error {answer.error_code}")
        return int(answer.producer_id)

    return until_ready(asked)


def find_coordinator_frame(key: str, key_type: int = 1) -> bytes:
    """The FindCoordinator request for a group (``key_type`` 0) or a transactional id (1)."""
    return frame(FIND_COORDINATOR, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))


def find_group_coordinator(client: Client, group: str) -> None:
    """Find the coordinator of a group. The request makes the broker create ``__consumer_offsets``."""
    for key_type, key in ((0, group), (1, group)):
        until_ready(partial(_find_coordinator, client, key, key_type))


def _find_coordinator(client: Client, key: str, key_type: int) -> None:
    client.send(find_coordinator_frame(key, key_type))
    if error := parse(FIND_COORDINATOR, bytes(client.receive())).coordinators[0].error_code:
        raise WrongResponse(f"FindCoordinator: error {error}")


def in_turn(client: Client, frames: Sequence[bytes]) -> list[bytes]:
    """Send each frame after the response to the one before it, and return the responses."""
    send, receive = client.socket.sendall, client.receive
    answers: list[bytes] = []
    for each in frames:
        send(each)
        answers.append(bytes(receive()))
    return answers


def in_flight(client: Client, frames: Sequence[bytes], count: int | None = None) -> list[bytes]:
    """Send all frames at once and return the responses: one per frame, or ``count`` if frames hold several requests."""
    client.send(b"".join(frames))
    with client.socket.makefile("rb") as stream:
        return [
            stream.read(*SIZE.unpack(stream.read(SIZE.size)))
            for _ in range(len(frames) if count is None else count)
        ]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
