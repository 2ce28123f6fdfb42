"""Unmodified producers of four client libraries behind one interface, and functions that read what they wrote.

    producer = CLIENTS["java"](bootstrap, transactional_id="orders")
    producer.init()
    producer.begin()
    producer.send("topic", ["value"], partition=0)
    producer.send_offsets("group", {("input", 0): 7})
    producer.commit()

Every producer waits for the acknowledgements of what it sends. Errors are raised as ``Refused``, with the error names of the
client library.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import struct
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.support.batches import Batch, whole_batches
from tests.support.deadlines import HANG_S, Deadline
from tests.support.javaprog import JavaFailed, java_clients

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import aiokafka
    import aiokafka.errors
    import aiokafka.structs
    import kafka
    import kafka.errors
    import kafka.structs

T = TypeVar("T")
DEADLINE_S = HANG_S
POLL_S = 0.01
# Closing a producer in the middle of a transaction may wait for responses that never come. No test depends on them.
GOODBYE_S = 5.0

# A broker that a test kills is restarted at once. librdkafka 2.16 drops every address when the last one refuses connections
# (KIP-899) and can hang in the attempt, so tests disable this: librdkafka then retries the addresses that it has.
PATIENCE: dict[str, str | int] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}
# librdkafka 2.16 forgets a broker that is no longer in the metadata, but still takes it for the group's coordinator:
# send_offsets_to_transaction then waits, beyond its timeout, until any connection changes its state (its issues 5511
# and 5456). Idle connections are closed after connections.max.idle.ms, which is short here.
FINDS_COORDINATORS = {"connections.max.idle.ms": 1_500}


class Refused(Exception):
    """Failure of a client call, with the client's names for its causes. The first name is the most specific."""

    def __init__(self, *names: str, text: str = "", fatal: bool | None = None, abortable: bool | None = None):
        super().__init__(f"{', '.join(names)}: {text}")
        self.names = names
        self.fatal = fatal
        self.abortable = abortable


def eventually(look: Callable[[], T], what: str = "", *, within_s: float = DEADLINE_S) -> T:
    """Call ``look`` until its result is true, and return it.

    Fails after ``within_s`` seconds, with ``what`` in the message.
    """
    deadline = Deadline(within_s)
    while True:
        found = look()
        if found:
            return found
        deadline.check(f"{what or look}; last seen: {found!r}")
        time.sleep(POLL_S)


def tidy() -> None:
    """Run the garbage collector, which closes sockets that the Python clients have left open.

    Otherwise a later test would fail because of the ResourceWarning of such a socket. The next call traverses only the
    objects that were created since.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.freeze()


# ---- producers


class TransactionalProducer(Protocol):
    """The interface that tests use for all four clients."""

    def __init__(self, bootstrap: str, **options: Any) -> None: ...
    def init(self) -> None: ...
    def begin(self) -> None: ...
    def send(
        self,
        topic: str,
        values: Sequence[str],
        *,
        partition: int | None = 0,
        keys: Sequence[str] | None = None,
    ) -> list[tuple[int, int]]: ...
    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


def _keys(values: Sequence[str], keys: Sequence[str] | None) -> Sequence[str | None]:
    return keys if keys is not None else [None] * len(values)


class ConfluentProducer:
    """The producer of confluent-kafka, which is based on librdkafka."""

    def __init__(
        self,
        bootstrap: str,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        idempotent: bool = True,
        linger_ms: int = 0,
        compression: str = "none",
        more: Mapping[str, Any] | None = None,
        call_timeout_s: float = DEADLINE_S,
    ) -> None:
        """An ``idempotent`` producer waits half a second for its producer id before it sends its first batch."""
        config = {
            **PATIENCE,
            "bootstrap.servers": bootstrap,
            "enable.idempotence": idempotent,
            "partitioner": "murmur2_random",
            "linger.ms": linger_ms,
            "compression.type": compression,
            "retry.backoff.ms": 20,
        }
        if transactional_id is not None:
            config |= {"transactional.id": transactional_id, "transaction.timeout.ms": transaction_timeout_ms}
        with self._errors():
            self._producer = Producer(config | dict(more or {}))
        self._timeout_s = call_timeout_s

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as failed:
            raise self._refused(failed.args[0]) from failed
        except KafkaError as fatal:  # type: ignore[misc]  # raised, although its stub is no exception
            # Calls that serve callbacks raise KafkaError without a KafkaException around it.
            raise self._refused(fatal) from fatal
        except SystemError as muddle:
            # A delivery report that is served later in the same call hides the first error, which is then the cause.
            cause = muddle.__cause__
            if not isinstance(cause, KafkaException | KafkaError):
                raise
            raise self._refused(cause.args[0] if isinstance(cause, KafkaException) else cause) from muddle

    def _refused(self, error: Any) -> Refused:
        return Refused(
            error.name(), text=error.str(), fatal=error.fatal(), abortable=error.txn_requires_abort()
        )

    def _insist(self, call: Callable[[], None]) -> None:
        deadline = Deadline(self._timeout_s)
        while True:
            try:
                with self._errors():
                    return call()
            except Refused as refused:
                cause = refused.__cause__
                if not (isinstance(cause, KafkaException) and cause.args[0].retriable()):
                    raise
                if deadline.is_over:
                    raise

    def init(self) -> None:
        self._insist(lambda: self._producer.init_transactions(self._timeout_s))

    def begin(self) -> None:
        with self._errors():
            self._producer.begin_transaction()

    def send(
        self,
        topic: str,
        values: Sequence[str],
        *,
        partition: int | None = 0,
        keys: Sequence[str] | None = None,
    ) -> list[tuple[int, int]]:
        places: list[tuple[int, int]] = []
        errors: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                places.append((message.partition(), message.offset()))

        with self._errors():
            for value, key in zip(values, _keys(values, keys), strict=True):
                where: dict[str, Any] = {} if partition is None else {"partition": partition}
                self._producer.produce(topic, value, key=key, on_delivery=delivered, **where)
            left = self._producer.flush(self._timeout_s)
        if errors:
            raise self._refused(errors[0])
        assert left == 0, f"{left} records were not acknowledged"
        return places

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        member = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": group, "log_level": 0})
        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        try:
            metadata = member.consumer_group_metadata()
            self._insist(
                lambda: self._producer.send_offsets_to_transaction(places, metadata, self._timeout_s)
            )
        finally:
            member.close()

    def commit(self) -> None:
        self._insist(lambda: self._producer.commit_transaction(self._timeout_s))

    def abort(self) -> None:
        self._insist(lambda: self._producer.abort_transaction(self._timeout_s))

    def close(self) -> None:
        # A fenced producer raises even here.
        with contextlib.suppress(KafkaException):
            self._producer.purge()
            self._producer.flush(GOODBYE_S)


class JavaProducer:
    """Kafka's Java producer, in the JVM that all tests of one process share."""

    def __init__(
        self,
        bootstrap: str,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        linger_ms: int = 0,
        compression: str = "none",
        more: Mapping[str, Any] | None = None,
        call_timeout_s: float = DEADLINE_S,
    ) -> None:
        config = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            "compression.type": compression,
            "max.block.ms": int(call_timeout_s * 1000),
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
        }
        if transactional_id is not None:
            config |= {"transactional.id": transactional_id, "transaction.timeout.ms": transaction_timeout_ms}
        self._java = java_clients()
        self._on = self._java.ask("producer", config=config | dict(more or {}))

    def _ask(self, what: str, **order: Any) -> Any:
        try:
            return self._java.ask(what, on=self._on, **order)
        except JavaFailed as failed:
            raise Refused(*failed.names, text=str(failed)) from failed

    def init(self) -> None:
        self._ask("init")

    def begin(self) -> None:
        self._ask("begin")

    def send(
        self,
        topic: str,
        values: Sequence[str],
        *,
        partition: int | None = 0,
        keys: Sequence[str] | None = None,
    ) -> list[tuple[int, int]]:
        records = [
            [topic, partition, key, value] for value, key in zip(values, _keys(values, keys), strict=True)
        ]
        return [(place[0], place[1]) for place in self._ask("send", records=records)]

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        places = [[topic, partition, offset] for (topic, partition), offset in offsets.items()]
        self._ask("offsets", group=group, offsets=places)

    def commit(self) -> None:
        self._ask("commit")

    def abort(self) -> None:
        self._ask("abort")

    def close(self) -> None:
        self._ask("close", timeout_ms=0)


class KafkaPythonProducer:
    """kafka-python's producer, in pure Python."""

    def __init__(
        self,
        bootstrap: str,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        linger_ms: int = 0,
        compression: str = "none",
        more: Mapping[str, Any] | None = None,
        call_timeout_s: float = DEADLINE_S,
    ) -> None:
        self._timeout_s = call_timeout_s
        config = {
            "bootstrap_servers": bootstrap,
            "enable_idempotence": True,
            "linger_ms": linger_ms,
            "compression_type": None if compression == "none" else compression,
            "max_block_ms": int(call_timeout_s * 1000),
            "retry_backoff_ms": 20,
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 100,
        }
        if transactional_id is not None:
            config |= {"transactional_id": transactional_id, "transaction_timeout_ms": transaction_timeout_ms}
        self._producer = kafka.KafkaProducer(**config | dict(more or {}))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (kafka.errors.KafkaError, AssertionError, RuntimeError) as failed:
            raise Refused(*_class_names(failed), text=str(failed)) from failed

    def init(self) -> None:
        with self._errors():
            self._producer.init_transactions()

    def begin(self) -> None:
        with self._errors():
            self._producer.begin_transaction()

    def send(
        self,
        topic: str,
        values: Sequence[str],
        *,
        partition: int | None = 0,
        keys: Sequence[str] | None = None,
    ) -> list[tuple[int, int]]:
        with self._errors():
            futures = [
                self._producer.send(topic, value.encode(), key=key and key.encode(), partition=partition)
                for value, key in zip(values, _keys(values, keys), strict=True)
            ]
            self._producer.flush(self._timeout_s)
            places = [future.get(self._timeout_s) for future in futures]
        return [(place.partition, place.offset) for place in places]

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        places = {
            kafka.TopicPartition(topic, partition): kafka.structs.OffsetAndMetadata(offset, "", -1)
            for (topic, partition), offset in offsets.items()
        }
        with self._errors():
            self._producer.send_offsets_to_transaction(places, group)

    def commit(self) -> None:
        with self._errors():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with self._errors():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)


class AioKafkaProducer:
    """aiokafka's producer. The producer's coroutines run in an event loop in a separate thread."""

    def __init__(
        self,
        bootstrap: str,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        linger_ms: int = 0,
        compression: str = "none",
        more: Mapping[str, Any] | None = None,
        call_timeout_s: float = DEADLINE_S,
    ) -> None:
        self._timeout_s = call_timeout_s
        self._config = {
            "bootstrap_servers": bootstrap,
            "enable_idempotence": True,
            "linger_ms": linger_ms,
            "compression_type": None if compression == "none" else compression,
            "retry_backoff_ms": 20,
        }
        if transactional_id is not None:
            self._config |= {
                "transactional_id": transactional_id,
                "transaction_timeout_ms": transaction_timeout_ms,
            }
        self._config |= dict(more or {})
        self._producer: aiokafka.AIOKafkaProducer | None = None
        if transactional_id is None:
            self.init()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return run_in_loop(coroutine, self._timeout_s)
        except (aiokafka.errors.KafkaError, AssertionError) as failed:
            raise Refused(*_class_names(failed), text=str(failed)) from failed

    @property
    def _started(self) -> aiokafka.AIOKafkaProducer:
        assert self._producer is not None, "not initialized"
        return self._producer

    def init(self) -> None:
        async def start() -> None:
            self._producer = aiokafka.AIOKafkaProducer(**self._config)
            try:
                await self._producer.start()
            except BaseException:
                await self._producer.stop()
                raise

        self._run(start())

    def begin(self) -> None:
        self._run(self._started.begin_transaction())

    def send(
        self,
        topic: str,
        values: Sequence[str],
        *,
        partition: int | None = 0,
        keys: Sequence[str] | None = None,
    ) -> list[tuple[int, int]]:
        async def send() -> list[Any]:
            futures = [
                await self._started.send(
                    topic, value.encode(), key=None if key is None else key.encode(), partition=partition
                )
                for value, key in zip(values, _keys(values, keys), strict=True)
            ]
            return await asyncio.gather(*futures)

        # With acks=0 no response has the offset.
        return [(place.partition, place.offset) for place in self._run(send()) if place is not None]

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        places = {
            aiokafka.TopicPartition(topic, partition): aiokafka.structs.OffsetAndMetadata(offset, "")
            for (topic, partition), offset in offsets.items()
        }
        self._run(self._started.send_offsets_to_transaction(places, group))

    def commit(self) -> None:
        self._run(self._started.commit_transaction())

    def abort(self) -> None:
        self._run(self._started.abort_transaction())

    def close(self) -> None:
        if self._producer is not None:
            with contextlib.suppress(Refused, TimeoutError):
                run_in_loop(self._producer.stop(), GOODBYE_S)


def _class_names(failed: BaseException | None) -> Iterator[str]:
    while failed is not None:
        yield type(failed).__name__
        failed = failed.__cause__


_loop: asyncio.AbstractEventLoop | None = None


def run_in_loop(coroutine: Coroutine[Any, Any, T], timeout_s: float = DEADLINE_S) -> T:
    """Run a coroutine in this test process's background event loop and return its result."""
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
        threading.Thread(target=_loop.run_forever, daemon=True).start()
    return asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, timeout_s), _loop).result()


CLIENTS: dict[str, type[TransactionalProducer]] = {
    "confluent": ConfluentProducer,
    "java": JavaProducer,
    "kafka-python": KafkaPythonProducer,
    "aiokafka": AioKafkaProducer,
}


# ---- readers


@dataclass(frozen=True)
class Record:
    partition: int
    offset: int
    key: str | None
    value: str | None


def read(
    bootstrap: str, topic: str, isolation_level: str = "read_committed", *, expected: int | None = None
) -> list[Record]:
    """All records of a topic, partition by partition, up to each partition's end or until ``expected`` were read.

    After a commit on Apache Kafka pass ``expected``: it responds to EndTxn before the markers are written.
    """
    records = [
        Record(m.partition(), m.offset(), _text(m.key()), _text(m.value()))
        for m in read_messages(bootstrap, topic, isolation_level, expected=expected)
    ]
    return sorted(records, key=lambda each: (each.partition, each.offset))


def values(
    bootstrap: str, topic: str, isolation_level: str = "read_committed", *, expected: int | None = None
) -> list[str | None]:
    return [record.value for record in read(bootstrap, topic, isolation_level, expected=expected)]


def texts(
    bootstrap: str, topic: str, isolation_level: str = "read_committed", *, expected: int | None = None
) -> list[str]:
    """The values of a topic, which must contain no tombstones. The arguments are those of ``read``."""
    found = values(bootstrap, topic, isolation_level, expected=expected)
    assert None not in found
    return [value for value in found if value is not None]


def value_of(message: Message[Any, Any]) -> bytes:
    """Value of a message that is not a tombstone."""
    value = message.value()
    assert isinstance(value, bytes)
    return value


def place_of(message: Message[Any, Any]) -> tuple[str, int]:
    """Topic and partition of a consumed message."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def offset_of(message: Message[Any, Any]) -> int:
    """Offset of a consumed message."""
    offset = message.offset()
    assert offset is not None
    return offset


def _text(data: Any) -> str | None:
    return None if data is None else bytes(data).decode("utf-8", "replace")


def read_messages(
    bootstrap: str, topic: str, isolation_level: str = "read_committed", *, expected: int | None = None
) -> list[Any]:
    consumer = Consumer(
        {
            **PATIENCE,
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": expected is None,
            "isolation.level": isolation_level,
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        found = consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in found])
        open_partitions = set(found)
        messages: list[Any] = []
        deadline = Deadline()
        while open_partitions and (expected is None or len(messages) < expected):
            deadline.check(f"{topic}: {len(messages)} records, end of {open_partitions} not seen")
            for message in consumer.consume(1000, 0.05):
                if message.error() is None:
                    messages.append(message)
                else:
                    open_partitions.discard(message.partition())
        return messages
    finally:
        consumer.close()


def topics(bootstrap: str) -> dict[str, int]:
    """Partition counts by topic name. The Metadata request creates no topics."""
    client = AdminClient({**PATIENCE, "bootstrap.servers": bootstrap})
    return {
        name: len(topic.partitions) for name, topic in client.list_topics(timeout=DEADLINE_S).topics.items()
    }


def topic_settings(bootstrap: str, topic: str) -> dict[str, str]:
    """All settings of a topic, from DescribeConfigs."""
    client = AdminClient({**PATIENCE, "bootstrap.servers": bootstrap})
    (future,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(DEADLINE_S).items()}


def committed_offset(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """Committed offset of the group, -1 if none. Does not wait for open transactions (require_stable=false)."""
    consumer = Consumer(
        {
            **PATIENCE,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        (place,) = consumer.committed([TopicPartition(topic, partition)], timeout=DEADLINE_S)
        return max(place.offset, -1)
    finally:
        consumer.close()


# ---- the transaction log, read like any topic

STATE_TOPIC = "__transaction_state"
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)


@dataclass(frozen=True)
class TransactionState:
    """One record of the transaction log."""

    log_partition: int
    offset: int
    leader_epoch: int | None
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: int
    partitions: frozenset[tuple[str, int]] | None
    last_update_ms: int
    start_ms: int


def transaction_log(bootstrap: str, transactional_id: str) -> list[TransactionState | None]:
    """The records of one transactional id in `__transaction_state`, oldest first; None for a tombstone."""
    history = []
    for message in read_messages(bootstrap, STATE_TOPIC, "read_uncommitted"):
        version, length = struct.unpack_from(">hh", message.key())
        if version == 0 and message.key()[4 : 4 + length].decode() == transactional_id:
            value = message.value()
            history.append(None if value is None else _transaction_state(message, value))
    return history


def statuses(bootstrap: str, transactional_id: str) -> list[int]:
    return [each.status for each in transaction_log(bootstrap, transactional_id) if each is not None]


def _transaction_state(message: Any, value: bytes) -> TransactionState:
    """Parse a TransactionLogValue of version 1, which has compact strings and arrays. Tagged fields are not read."""
    version, producer_id, epoch, timeout_ms, status = struct.unpack_from(">hqhib", value)
    assert version == 1, version
    at = 17

    def compact() -> int:
        nonlocal at
        size = shift = 0
        while True:
            byte = value[at]
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                return size - 1
            shift += 7

    topics = compact()
    partitions = set()
    for _ in range(topics):
        length = compact()
        topic = value[at : at + length].decode()
        at += length
        for _ in range(compact()):
            partitions.add((topic, struct.unpack_from(">i", value, at)[0]))
            at += 4
        at += 1  # no tagged fields
    last_update_ms, start_ms = struct.unpack_from(">qq", value, at)
    found = None if topics < 0 else frozenset(partitions)
    return TransactionState(
        message.partition(),
        message.offset(),
        message.leader_epoch(),
        producer_id,
        epoch,
        timeout_ms,
        status,
        found,
        last_update_ms,
        start_ms,
    )


def java_hash(text: str) -> int:
    """Java's String.hashCode, with the sign bit cleared as Kafka's Utils.toPositive does."""
    hashed = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")):
        hashed = (hashed * 31 + unit) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed & 0x80000000 else hashed
    return 0 if signed == -(1 << 31) else abs(signed)


# ---- segment files, read as bytes


def batches_of(data_dir: Path, topic: str, partition: int = 0) -> list[Batch]:
    """All batches in a partition's segment files."""
    folder = data_dir / f"{topic}-{partition}"
    return [
        batch for segment in sorted(folder.glob("*.log")) for batch in whole_batches(segment.read_bytes())
    ]
