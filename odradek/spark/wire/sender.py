"""Send batches to the leaders of their partitions, repeatedly until each batch is acknowledged."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from odradek._protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.spark.records.encode import Batch
from odradek.spark.wire.connection import Call
from odradek.spark.wire.errors import (
    DUPLICATE_SEQUENCE_NUMBER,
    LEADER_MOVED,
    MESSAGE_TOO_LARGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    RETRIABLE,
    Retriable,
    gave_up,
    refused,
)
from odradek.spark.wire.messages import PRODUCE
from odradek.spark.wire.metadata import Metadata
from odradek.spark.wire.network import Network, backoff_seconds
from odradek.spark.wire.outbox import Outbox, OutgoingBatch
from odradek.spark.wire.producer import Partition
from odradek.spark.wire.settings import ClientSettings

IN_FLIGHT_MAX = 5

_NETWORK_EXCEPTION = 13
_LEADER_NOT_AVAILABLE = 5
_ALL_IN_SYNC_REPLICAS = -1
_WAIT_SECONDS_MAX = 1.0


class _Request(NamedTuple):
    node_id: int
    call: Call
    batches: dict[Partition, OutgoingBatch]


class Sender:
    """The sender of the Produce requests of one transactional id."""

    def __init__(
        self, settings: ClientSettings, network: Network, metadata: Metadata, transactional_id: str
    ) -> None:
        self._settings = settings
        self._network = network
        self._metadata = metadata
        self._transactional_id = transactional_id
        self._outboxes: dict[Partition, Outbox] = {}
        # By topic: the largest batch to send, after the broker has rejected a larger batch.
        self.batch_sizes_bytes: dict[str, int] = {}
        # By partition: the node to which its batches were sent. A new leader gets no batch before the old leader has
        # responded.
        self._nodes: dict[Partition, int] = {}
        self._requests: list[_Request] = []
        self._stale: set[str] = set()
        self._refresh_due = 0.0
        self._refresh_failures = 0

    @property
    def bytes(self) -> int:
        """Size of the unacknowledged batches."""
        return sum(outbox.bytes for outbox in self._outboxes.values())

    def append(self, partition: Partition, batches: Iterable[Batch]) -> None:
        """Queue batches of a partition behind those of earlier calls."""
        outbox = self._outboxes.setdefault(partition, Outbox())
        deadline = time.monotonic() + self._settings.delivery_timeout_ms / 1000
        for batch in batches:
            outbox.append(OutgoingBatch(batch, deadline))

    def work(self, *, wait: bool) -> None:
        """Send all batches that may be sent now, and handle the responses that have arrived.

        With ``wait``, block until a response, a timer, or for at most a second. Raises the first final error, after which
        nothing more can be sent.
        """
        now = time.monotonic()
        self._check_deadlines(now)
        self._refresh(now)
        self._send(now)
        self._network.pump(self._patience(now) if wait else 0)
        self._receive()

    def _patience(self, now: float) -> float:
        """Seconds to wait for a response: until the next timer of this sender, 0 if a response is already there."""
        moments = [outbox.due for outbox in self._outboxes.values() if len(outbox) and not outbox.sent]
        if self._stale:
            moments.append(self._refresh_due)
        if any(request.call.done for request in self._requests):
            return 0
        return max(0.0, min([_WAIT_SECONDS_MAX, *(moment - now for moment in moments if moment > now)]))

    def _check_deadlines(self, now: float) -> None:
        for (topic, index), outbox in self._outboxes.items():
            oldest = outbox.oldest
            if oldest is not None and now >= oldest.deadline:
                code = oldest.code or _NETWORK_EXCEPTION
                timeout_ms = self._settings.delivery_timeout_ms
                raise gave_up(code, f"writing to {topic}-{index}", timeout_ms, oldest.why)

    # -- leaders ------------------------------------------------------------------------------------------------

    def _refresh(self, now: float) -> None:
        if not self._stale or now < self._refresh_due:
            return
        try:
            self._metadata.refresh(self._stale)
            self._stale.clear()
            self._refresh_failures = 0
        except Retriable:
            self._refresh_failures += 1
        self._refresh_due = time.monotonic() + self._backoff(self._refresh_failures)

    def _backoff(self, failures: int) -> float:
        settings = self._settings
        return backoff_seconds(settings.retry_backoff_ms, settings.retry_backoff_max_ms, max(failures, 1))

    # -- sending ------------------------------------------------------------------------------------------------

    def _send(self, now: float) -> None:
        progress = True
        while progress:
            progress = False
            for node_id, partitions in self._ready(now).items():
                if self._network.outstanding(node_id) < IN_FLIGHT_MAX:
                    self._send_request(node_id, self._gather(partitions))
                    progress = True

    def _ready(self, now: float) -> dict[int, list[Partition]]:
        """Partitions with a batch that may be sent now, by leader."""
        ready: dict[int, list[Partition]] = {}
        for partition, outbox in self._outboxes.items():
            if outbox.due > now or outbox.next_batch() is None:
                continue
            leader = self._metadata.leader(*partition)
            if leader is None:
                self._postpone(partition, _LEADER_NOT_AVAILABLE)
            elif not outbox.sent or self._nodes[partition] == leader:
                ready.setdefault(leader, []).append(partition)
        return ready

    def _gather(self, partitions: list[Partition]) -> dict[Partition, OutgoingBatch]:
        """One batch of each partition, as many as fit into a request; the partitions that have waited longest come first."""
        room = self._settings.max_request_size_bytes
        batches: dict[Partition, OutgoingBatch] = {}
        for partition in partitions:
            batch = self._outboxes[partition].next_batch()
            assert batch is not None
            if batches and len(batch.data) > room:
                break
            room -= len(batch.data)
            batches[partition] = batch
        # Move these partitions to the end of the order, so that other partitions come first next time.
        for partition in batches:
            self._outboxes[partition] = self._outboxes.pop(partition)
        return batches

    def _send_request(self, node_id: int, batches: dict[Partition, OutgoingBatch]) -> None:
        for partition, batch in batches.items():
            self._outboxes[partition].sending(batch)
            self._nodes[partition] = node_id
        try:
            call = self._network.submit(node_id, PRODUCE, self._request(batches))
        except Retriable as error:
            for partition, batch in batches.items():
                self._failed(partition, batch, _NETWORK_EXCEPTION, error.sentence)
            return
        self._requests.append(_Request(node_id, call, batches))

    def _request(self, batches: dict[Partition, OutgoingBatch]) -> Any:
        topics: dict[str, list[Any]] = {}
        for (topic, index), batch in batches.items():
            data = PartitionProduceData(index=index, records=batch.data)
            topics.setdefault(topic, []).append(data)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=_ALL_IN_SYNC_REPLICAS,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=data) for topic, data in topics.items()],
        )

    # -- responses ----------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        done = [request for request in self._requests if request.call.done]
        if not done:
            return
        self._requests = [request for request in self._requests if not request.call.done]
        for request in done:
            error = request.call.error
            if error is not None and not isinstance(error, Retriable):
                raise error
            if error is not None:
                for partition, batch in request.batches.items():
                    self._failed(partition, batch, _NETWORK_EXCEPTION, error.sentence)
                continue
            missing = dict(request.batches)
            for topic in request.call.answer.responses:
                for each in topic.partition_responses:
                    partition = (topic.name, each.index)
                    if partition in missing:
                        batch = missing.pop(partition)
                        self._answered(partition, batch, int(each.error_code), each.error_message)
            for partition, batch in missing.items():
                self._failed(partition, batch, _NETWORK_EXCEPTION)

    def _answered(self, partition: Partition, batch: OutgoingBatch, code: int, said: str | None) -> None:
        outbox = self._outboxes[partition]
        if code in (0, DUPLICATE_SEQUENCE_NUMBER):
            outbox.acknowledged(batch)
            return
        too_large = code == MESSAGE_TOO_LARGE and batch.records > 1
        if too_large:
            # Make later batches smaller at once: half the size is a bound even with compression.
            known = self.batch_sizes_bytes.get(partition[0], len(batch.data))
            self.batch_sizes_bytes[partition[0]] = min(known, len(batch.data) // 2)
        if code in RETRIABLE or code == OUT_OF_ORDER_SEQUENCE_NUMBER or too_large:
            self._failed(partition, batch, code)
            if not outbox.is_broken():
                return
        topic, index = partition
        raise refused(code, f"a batch of {batch.records} records for {topic}-{index}", said)

    def _failed(self, partition: Partition, batch: OutgoingBatch, code: int, why: str = "") -> None:
        self._outboxes[partition].failed(batch, code, why)
        self._postpone(partition, code)

    def _postpone(self, partition: Partition, code: int) -> None:
        outbox = self._outboxes[partition]
        if outbox.due <= time.monotonic():
            outbox.failures += 1
        outbox.due = time.monotonic() + self._backoff(outbox.failures)
        if code in LEADER_MOVED or code == _NETWORK_EXCEPTION:
            self._stale.add(partition[0])
