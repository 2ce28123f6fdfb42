"""A transactional producer made of raw requests: it can use both transaction protocols and delay its requests.

    producer = ProducerByHand(broker.host, broker.port, "orders", new=False)
    producer.send("orders", ["a"])
    lingering = producer.sending("orders", ["b"])     # sent by the producer, not yet received by the broker
    producer.end(committed=False)
    lingering.arrive()                                # the error code of the response

A real client does not delay single requests by itself; a network does. All requests go to one address, so use one node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.differential.batches import batch
from tests.support import raw
from tests.support.deadlines import HANG_S, Deadline

Body = dict[str, Any]
RETRIABLE = {3, 14, 15, 16, 51}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Versions:
    """Versions of the requests whose version selects the transaction protocol (KIP-890)."""

    produce: int
    end_txn: int
    txn_offset_commit: int


OLD = Versions(produce=11, end_txn=4, txn_offset_commit=4)
NEW = Versions(produce=12, end_txn=5, txn_offset_commit=5)


def ask(host: str, port: int, api: str, version: int, body: Body) -> Body:
    """Send one request on a new connection and return the decoded response."""
    wire = raw.Wire(host, port, timeout=HANG_S)
    try:
        wire.send_frame(raw.encode_request(api, version, body, 7))
        return raw.decode_response(api, version, wire.receive_frame())[1]
    finally:
        wire.close()


@dataclass(frozen=True)
class Lingering:
    """A request that the network delays until `arrive` is called."""

    deliver: Callable[[], Body]

    def arrive(self) -> int:
        """Deliver the request and return the first error code of the response other than NONE, or NONE."""
        codes = raw.error_codes(self.deliver())
        return next((code for code in codes if code), 0)


class ProducerByHand:
    """A transactional producer: its id, epoch and sequence numbers, and its requests. Each call returns the response's error
    code."""

    def __init__(
        self, host: str, port: int, transactional_id: str, *, new: bool = True, timeout_ms: int = 60_000
    ) -> None:
        self.host, self.port = host, port
        self.transactional_id = transactional_id
        self.versions = NEW if new else OLD
        self.timeout_ms = timeout_ms
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}
        self.joined: set[tuple[str, int]] = set()

    @property
    def is_new(self) -> bool:
        return self.versions is NEW

    def _ask(self, api: str, version: int, body: Body) -> Body:
        """Send the request, and again while the response has a retriable error; return the last response."""
        deadline = Deadline()
        while True:
            answer = ask(self.host, self.port, api, version, body)
            if not RETRIABLE & set(raw.error_codes(answer)) or deadline.is_over:
                return answer
            time.sleep(0.01)

    def _who(self) -> Body:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def init(self) -> ProducerByHand:
        """Find the coordinator, which creates `__transaction_state`, and get a producer id and epoch."""
        self._ask("find_coordinator", 3, {"key": self.transactional_id, "key_type": 1})
        body = {"transactional_id": self.transactional_id, "transaction_timeout": self.timeout_ms}
        answer = self._ask("init_producer_id", 5, body)
        assert answer["error_code"] == 0, answer
        self._become(answer["producer_id"], answer["producer_epoch"])
        return self

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def add(self, topic: str, partition: int = 0) -> int:
        """Send AddPartitionsToTxn. Transaction version 2 (KIP-890) does not need it."""
        rows = [{"name": topic, "partitions": [partition]}]
        body = {f"v3_and_below_{name}": value for name, value in self._who().items()}
        answer = self._ask("add_partitions_to_txn", 3, body | {"v3_and_below_topics": rows})
        self.joined.add((topic, partition))
        return next(iter(raw.error_codes(answer)))

    def sending(
        self, topic: str, values: Sequence[str], partition: int = 0, *, at_ms: int | None = None
    ) -> Lingering:
        """Create a delayed Produce request. The producer already counts the request's sequence numbers as used."""
        key = (topic, partition)
        sequence = self.sequences.get(key, 0)
        self.sequences[key] = sequence + len(values)
        records = batch(
            [value.encode() for value in values],
            ts=now_ms() if at_ms is None else at_ms,
            pid=self.producer_id,
            epoch=self.epoch,
            seq=sequence,
            txn=True,
        )
        rows = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        body = {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout": 10_000,
            "topic_data": rows,
        }
        return Lingering(lambda: self._ask("produce", self.versions.produce, body))

    def send(self, topic: str, values: Sequence[str], partition: int = 0, *, at_ms: int | None = None) -> int:
        """Produce one batch. With transaction version 1, add the partition to the transaction first."""
        if not self.is_new and (topic, partition) not in self.joined:
            error = self.add(topic, partition)
            if error:
                return error
        return self.sending(topic, values, partition, at_ms=at_ms).arrive()

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> int:
        if not self.is_new:
            answer = self._ask("add_offsets_to_txn", 3, self._who() | {"group_id": group})
            if answer["error_code"]:
                return int(answer["error_code"])
        self._ask("find_coordinator", 3, {"key": group, "key_type": 0})
        topics = [
            {"name": topic, "partitions": [{"partition_index": partition, "committed_offset": offset}]}
            for (topic, partition), offset in offsets.items()
        ]
        body = self._who() | {"group_id": group, "topics": topics}
        answer = self._ask("txn_offset_commit", self.versions.txn_offset_commit, body)
        return next((code for code in raw.error_codes(answer) if code), 0)

    def end(self, *, committed: bool) -> int:
        answer = self._ask("end_txn", self.versions.end_txn, self._who() | {"committed": committed})
        if not answer["error_code"]:
            self.joined.clear()
            if self.is_new:
                self._become(answer["producer_id"], answer["producer_epoch"])
        return int(answer["error_code"])

    def marker(self, topic: str, partition: int = 0, *, committed: bool) -> Lingering:
        """The delayed WriteTxnMarkers request of the coordinator, for the transaction that is open now.

        With transaction version 2 the marker has the next producer epoch, and the request has that transaction version.
        """
        row = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch + (1 if self.is_new else 0),
            "transaction_result": committed,
            "topics": [{"name": topic, "partition_indexes": [partition]}],
            "coordinator_epoch": 0,
            "transaction_version": 2 if self.is_new else 0,
        }
        return Lingering(
            lambda: ask(
                self.host, self.port, "write_txn_markers", 2 if self.is_new else 1, {"markers": [row]}
            )
        )


def last_stable_offset(host: str, port: int, topic: str, partition: int = 0) -> int:
    """Last stable offset: the end of what a read_committed consumer reads."""
    rows = [{"partition_index": partition, "timestamp": -1}]
    body = {"replica_id": -1, "isolation_level": 1, "topics": [{"name": topic, "partitions": rows}]}
    answer = ask(host, port, "list_offsets", 6, body)
    return int(answer["topics"][0]["partitions"][0]["offset"])
