"""Clients read a compacted log: gaps in the offsets, batches without records, markers without data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.batch import batches
from tests.support.broker import Broker, StartBroker
from tests.support.clients import PATIENCE, eventually, offset_of
from tests.support.deadlines import HANG_S
from tests.support.javaprog import java_clients

TOPIC = "kept"
# Each record is an hour later than the one before (markers have today's time), so that each begins a segment.
LATER_MS = 4_000_000_000_000
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "0",
    "message.timestamp.after.max.ms": str(2**62),
}
KEYS = ("a", "b", "c")


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A broker with a topic that was compacted twice, and the expected value of each key."""
    broker = Broker(tmp_path_factory.mktemp("compacted"), settings={"log.cleaner.backoff.ms": 50})
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **PATIENCE})
        for future in admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIGS)]).values():
            future.result(HANG_S)
        left = write(broker, 0)
        compact(broker, 1)
        left |= write(broker, 100)
        compact(broker, 2)
        yield broker, left


def write(broker: Broker, first: int) -> dict[str, str]:
    """Write committed and aborted transactions, a deleted key, and an idempotent producer's records.

    All records of the idempotent producer are superseded later.
    """
    left: dict[str, str] = {}
    hour = first
    options: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, **PATIENCE}
    silent = Producer({**options, "enable.idempotence": True})
    send(silent, "a", "superseded", hour)
    transactional = Producer({**options, "transactional.id": f"tx-{first}"})
    transactional.init_transactions()
    for number in range(12):
        transactional.begin_transaction()
        committed = number % 3 != 2
        for key in KEYS:
            hour += 1
            value = f"{first}-{number}"
            send(transactional, key, value, hour)
            if committed:
                left[key] = value
        if committed:
            transactional.commit_transaction()
        else:
            transactional.abort_transaction()
    plain = Producer(options)
    changes: tuple[tuple[str, str | None], ...] = (
        ("deleted", "value"),
        ("deleted", None),
        ("last", str(first)),
    )
    for key, change in changes:
        hour += 1
        send(plain, key, change, hour)
    left["last"] = str(first)
    return left


def send(producer: Producer, key: str, value: str | None, hour: int) -> None:
    failures: list[object] = []
    producer.produce(
        TOPIC,
        value,
        key,
        partition=0,
        timestamp=LATER_MS + hour * 3_600_000,
        on_delivery=lambda error, _: failures.append(error) if error else None,
    )
    assert producer.flush(HANG_S) == 0
    assert failures == []


def compact(broker: Broker, passes: int) -> None:
    def done() -> bool:
        return sum(event.get("event") == "log compacted" for event in broker.events) >= passes and is_clean(
            broker
        )

    eventually(done)


def is_clean(broker: Broker) -> bool:
    """Whether the cleaner has compacted all sealed segments, according to ``cleaner-offset-checkpoint``."""
    rows = (broker.data_dir / "cleaner-offset-checkpoint").read_text().split("\n")
    clean = next((int(row.split(" ")[2]) for row in rows if row.startswith(f"{TOPIC} ")), 0)
    return clean >= max(int(path.stem) for path in folder(broker).glob("*.log"))


def folder(broker: Broker) -> Path:
    return broker.data_dir / f"{TOPIC}-0"


def by_confluent(broker: Broker, isolation: str) -> list[tuple[int, str, str | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": isolation,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "fetch.message.max.bytes": 400,
            **PATIENCE,
        }
    )
    found: list[tuple[int, str, str | None]] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while (message := consumer.poll(60)) is not None and message.error() is None:
            key, value = message.key(), message.value()
            assert key is not None
            found.append((offset_of(message), key.decode(), None if value is None else value.decode()))
        assert message is not None
    finally:
        consumer.close()
    return found


def by_java(broker: Broker, isolation: str) -> list[tuple[int, str, str | None]]:
    java = java_clients()
    config = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"java-{isolation}",
        "isolation.level": isolation,
        "max.partition.fetch.bytes": 400,
        "enable.auto.commit": "false",
    }
    consumer = java.ask("consumer", config=config)
    found: list[tuple[int, str, str | None]] = []
    try:
        java.ask("assign", on=consumer, partitions=[[TOPIC, 0]])

        def at_end() -> bool:
            for _, _, offset, key, value in java.ask("poll", on=consumer, timeout_ms=200):
                found.append((offset, key, value))
            return bool(java.ask("position", on=consumer, partition=[TOPIC, 0]) >= end_of(broker))

        eventually(at_end)
    finally:
        java.ask("close", on=consumer)
    return found


def end_of(broker: Broker) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "end", **PATIENCE})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 10)[1])
    finally:
        consumer.close()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize(
    "read",
    [
        by_confluent,
        pytest.param(by_java, marks=[pytest.mark.java, pytest.mark.xdist_group("jvm")]),
    ],
    ids=["confluent", "java"],
)
def test_a_consumer_sees_the_last_value_of_each_key(compacted: Any, read: Any, isolation: str):
    broker, left = compacted
    found = read(broker, isolation)
    seen = {key: value for _, key, value in found if value is not None}
    assert {key: value for key, value in seen.items() if key != "deleted"} == left
    # One record for each key, except a duplicate in the last, uncompacted segment, and a tombstone, which a second pass
    # removes.
    assert len(found) <= len(left) + 2
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})


def test_the_log_has_gaps_empty_batches_and_markers_without_data(compacted: Any):
    broker, _ = compacted
    stored = [batch for path in sorted(folder(broker).glob("*.log")) for batch in batches(path.read_bytes())]
    assert any(not batch.record_count and not batch.is_control for batch in stored)
    assert any(batch.is_control for batch in stored)
    assert len(stored) < 30 < end_of(broker)


def test_a_broker_that_starts_again_reads_the_same(start_broker: StartBroker, compacted: Any, tmp_path: Path):
    broker, left = compacted
    broker.kill()
    broker.restart()
    found = by_confluent(broker, "read_committed")
    assert {key: value for _, key, value in found if value is not None and key != "deleted"} == left
