"""Kafka for one test: its own topics, reading and writing records, and transactions that commit, abort or stay open."""

from __future__ import annotations

import itertools
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from odradek.deadlines import stretched
from odradek.errors import OdradekError
from odradek.transactions import PREPARED

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

    from odradek.broker import Broker
    from odradek.spark.wire import Cluster

TIMEOUT_S: Final = stretched(30.0)
_POLL_S: Final = 0.1
_BATCH_S: Final = 0.01
"""``Consumer.consume`` waits so long for a full batch, also if it has messages already."""
# Errors are raised as exceptions. The clients' own log would mostly report brokers that a test has killed.
_QUIET: Final = {"log_level": 2}
_TOPIC_NAME_MAX: Final = 200  # Kafka allows 249 characters


class NotInTime(OdradekError):
    """A condition that a test waits for was not true before the timeout."""


class Record(NamedTuple):
    """A record to write (with ``partition`` -1 the key determines the partition), or a record that was read."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = -1
    offset: int = -1
    timestamp_ms: int = -1

    @property
    def text(self) -> str | None:
        """The value, decoded as UTF-8; None for a null value."""
        return None if self.value is None else self.value.decode()


# A value, a pair of key and value, or a record.
Row: TypeAlias = "str | bytes | tuple[str | bytes | None, str | bytes | None] | Record"


class OpenTransaction:
    """An open transaction with records. The transaction is aborted at the end of the test."""

    def __init__(self, kafka: Kafka, transactional_id: str) -> None:
        self._producer: Producer | None = kafka.producer({"transactional.id": transactional_id})
        self._producer.init_transactions(TIMEOUT_S)
        self._producer.begin_transaction()

    def produce(self, topic: str, rows: Iterable[Row]) -> None:
        """Write more records; returns when they are acknowledged."""
        if self._producer is None:
            raise OdradekError("this transaction has ended: begin another one")
        _send(self._producer, topic, rows)

    def commit(self) -> None:
        if (producer := self._end()) is not None:
            producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        if (producer := self._end()) is not None:
            producer.abort_transaction(TIMEOUT_S)

    def _end(self) -> Producer | None:
        producer, self._producer = self._producer, None
        return producer


class Kafka:
    """A Kafka cluster at an address; ``broker`` is the ``odradek.Broker`` that runs there, if there is one."""

    def __init__(self, bootstrap_servers: str, broker: Broker | None = None, prefix: str = "test") -> None:
        self.bootstrap_servers = bootstrap_servers
        self._broker = broker
        self._prefix = re.sub(r"[^\w.-]+", "-", prefix).strip("-")[:_TOPIC_NAME_MAX]
        # Several test runs may share a Kafka that is not restarted between them.
        self._names = (f"{self._prefix}-{uuid.uuid4().hex[:8]}-{number}" for number in itertools.count(1))
        self._leaving = ExitStack()

    @property
    def broker(self) -> Broker:
        """The Odradek broker: its faults, clock and nodes (docs/control.md). Raises ``OdradekError`` without one."""
        if self._broker is None:
            raise OdradekError("this Kafka is not an Odradek broker: faults and the clock are not available")
        return self._broker

    @property
    def options(self) -> dict[str, str]:
        """Options for Spark: ``spark.read.format("kafka").options(**kafka.options)``."""
        return {"kafka.bootstrap.servers": self.bootstrap_servers}

    @cached_property
    def admin(self) -> AdminClient:
        """An AdminClient of confluent-kafka, created at the first use."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap_servers, **_QUIET})

    def producer(self, settings: Mapping[str, Any] = {}) -> Producer:
        """A Producer of confluent-kafka with acks=all."""
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.bootstrap_servers, "acks": "all", **_QUIET, **settings})

    def name(self) -> str:
        """A new name, unique in this cluster, for a topic, a query or a transactional id."""
        return next(self._names)

    def topic(
        self, partitions: int = 1, *, name: str | None = None, replicas: int = 1, **configs: object
    ) -> str:
        """Create a topic and return its name. ``configs`` are its settings, with underscores: ``retention_ms``."""
        from confluent_kafka.cimpl import NewTopic

        said = {key.replace("_", "."): str(value) for key, value in configs.items()}
        topic = NewTopic(name or self.name(), partitions, replicas, config=said)
        self.admin.create_topics([topic])[topic.topic].result(TIMEOUT_S)
        self.eventually(lambda: self.partitions(topic.topic) == [*range(partitions)], f"topic {topic.topic}")
        return str(topic.topic)

    def produce(self, topic: str, rows: Iterable[Row], *, transaction: str | None = None) -> None:
        """Write records and wait for the acknowledgements; ``transaction`` is ``"commit"`` or ``"abort"``."""
        if transaction not in (None, "commit", "abort"):
            raise OdradekError(f"transaction must be 'commit' or 'abort', not {transaction!r}")
        if transaction is None:
            _send(self.producer(), topic, rows)
            return
        opened = self.begin(topic, rows)
        opened.commit() if transaction == "commit" else opened.abort()

    def begin(
        self, topic: str, rows: Iterable[Row] = (), transactional_id: str | None = None
    ) -> OpenTransaction:
        """Begin a transaction with these records; the transaction stays open until the test ends it."""
        opened = OpenTransaction(self, transactional_id or self.name())
        self._leaving.callback(opened.abort)
        opened.produce(topic, rows)
        return opened

    def read(self, topic: str, isolation: str = "read_committed") -> list[Record]:
        """Read all records that are in the topic now, partition by partition, in the order of their offsets.

        With read_committed, first waits until each transaction that was committed or aborted has its markers in the topic.
        Raises ``NotInTime`` if the markers are not written within ``TIMEOUT_S``, or the records cannot be read.
        """
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        if isolation == "read_committed":
            self._await_markers(topic)
        settings = {"group.id": self.name(), "isolation.level": isolation, "enable.auto.commit": False}
        # The end depends on the isolation level: with read_committed it is the last stable offset.
        settings |= {"bootstrap.servers": self.bootstrap_servers, "enable.partition.eof": True}
        # The end of a partition comes with an empty response, for which the broker waits this long.
        settings |= {"auto.offset.reset": "earliest", "fetch.wait.max.ms": 10, **_QUIET}
        consumer, found = Consumer(settings), []
        try:
            left = set(self.partitions(topic))
            consumer.assign([TopicPartition(topic, each, 0) for each in left])
            deadline = time.monotonic() + TIMEOUT_S
            while left:
                for message in consumer.consume(10_000, _BATCH_S):
                    error = message.error()
                    if error is None:
                        found.append(_record(message))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(message.partition())
                    else:
                        raise KafkaException(error)
                if left and time.monotonic() > deadline:
                    raise NotInTime(f"partitions {sorted(left)} of {topic} were not read to their end")
        finally:
            consumer.close()
        return sorted(found, key=lambda each: (each.partition, each.offset))

    def _await_markers(self, topic: str) -> None:
        """Apache Kafka responds to EndTxn before the markers are written, and until then read_committed ends below them."""
        from odradek.spark.wire import ClientSettings, Cluster, UnsupportedVersion

        settings = ClientSettings(self.bootstrap_servers, delivery_timeout_ms=int(TIMEOUT_S * 1000))
        # Before Kafka 3.0 there is no ListTransactions (KIP-664).
        with Cluster(settings) as cluster, suppress(UnsupportedVersion):
            self.eventually(lambda: _has_markers(cluster, topic), f"markers of all transactions in {topic}")

    def wait_for(self, topic: str, records: int, timeout_s: float = TIMEOUT_S) -> list[Record]:
        """Read until the topic has ``records`` or more committed records. Return all, or raise ``NotInTime``."""
        found: list[Record] = []

        def enough() -> bool:
            found[:] = self.read(topic)
            return len(found) >= records

        self.eventually(enough, f"{records} records in {topic}", timeout_s)
        return found

    def eventually(self, condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
        """Poll a condition until it is true. Raises ``NotInTime`` after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise NotInTime(f"{what}: not within {timeout_s:g} s")
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Abort the open transactions."""
        self._leaving.close()

    def partitions(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions, from the metadata."""
        return sorted(self.admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions)


def _has_markers(cluster: Cluster, topic: str) -> bool:
    """Whether no coordinator still has to write a marker to the topic; False while a coordinator loads."""
    from odradek.spark.wire import Retriable

    try:
        prepared = cluster.describe_transactions(cluster.list_transactions("", PREPARED))
    except Retriable:
        return False
    return not any(
        each.state in PREPARED and topic in dict(each.partitions) for each in prepared.values() if each
    )


def _send(producer: Producer, topic: str, rows: Iterable[Row]) -> None:
    from confluent_kafka import KafkaException

    refused: list[Any] = []

    def answered(error: Any, _: object) -> None:
        if error is not None:
            refused.append(error)

    for row in rows:
        record = _as_record(row)
        optional: dict[str, Any] = {}
        if record.partition >= 0:
            optional["partition"] = record.partition
        if record.timestamp_ms >= 0:
            optional["timestamp"] = record.timestamp_ms
        producer.produce(
            topic,
            record.value,
            record.key,
            headers=list(record.headers),
            on_delivery=answered,
            **optional,
        )
        producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    if refused:
        raise KafkaException(refused[0])
    if left:
        raise NotInTime(f"{left} records for {topic} were not acknowledged within {TIMEOUT_S:g} s")


def _as_record(row: Row) -> Record:
    if isinstance(row, Record):
        return row
    key, value = row if isinstance(row, tuple) else (None, row)
    return Record(_bytes(value), _bytes(key))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _record(message: Any) -> Record:
    headers = tuple((name, value) for name, value in message.headers() or ())
    key, (_, timestamp_ms) = message.key(), message.timestamp()
    return Record(message.value(), key, headers, message.partition(), message.offset(), timestamp_ms)
