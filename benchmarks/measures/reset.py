"""``Broker.reset`` between tests: after one transaction and after many topics, compared with a new broker."""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import odradek
from benchmarks.client import (
    Client,
    check_produced,
    create_topic,
    find_group_coordinator,
    produce_frame,
    small_batch,
)
from benchmarks.figures import Figure, Run
from benchmarks.process import others_at_rest

PATIENCE_S: Final = 30


def measure(run: Run) -> Iterator[Figure]:
    others = others_at_rest()
    new = [new_broker_ms(nodes=1) for _ in range(run.scaled(5, 2))]
    baseline = f"a new broker {statistics.median(new):.0f} ms"
    for nodes, limit in ((1, 5), (3, None)) if find_spec("confluent_kafka") else ():
        times = reset_after_a_transaction_ms(nodes, run.scaled(40, 5))
        yield Figure(
            f"reset after a transaction, {nodes} node{'s' * (nodes > 1)}",
            statistics.median(times),
            "ms",
            limit=limit,
            baseline=f"{baseline}, one fsync {statistics.median(fsyncs_ms(run.scratch)):.2f} ms",
            note=f"{min(times):.1f} to {max(times):.1f}; a topic, ten records in two partitions, an offset of a group",
            other_cpu=others,
        )
    for nodes, topics, limit in ((1, 2, 5), (1, 100, 20), (3, 2, None), (3, 100, None)):
        times = reset_ms(nodes, topics, run.scaled(20, 5))
        yield Figure(
            f"reset after {topics} topics, {nodes} node{'s' * (nodes > 1)}",
            statistics.median(times),
            "ms",
            limit=limit,
            baseline=baseline,
            note=f"{min(times):.1f} to {max(times):.1f}; a record in each topic, both internal topics, by HTTP",
            other_cpu=others,
        )


def new_broker_ms(nodes: int) -> float:
    start = time.perf_counter()
    with odradek.Broker(nodes=nodes):
        return (time.perf_counter() - start) * 1000


def fsyncs_ms(directory: Path) -> list[float]:
    """Milliseconds of an fsync of 200 bytes on the disk of ``directory``."""
    times = []
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "synced").open("wb", buffering=0) as file:
        for _ in range(20):
            file.write(bytes(200))
            start = time.perf_counter()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - start) * 1000)
    return times


def reset_after_a_transaction_ms(nodes: int, times: int) -> list[float]:
    with odradek.Broker(nodes=nodes) as broker:
        broker.reset()
        return [one_reset_after_a_transaction_ms(broker) for _ in range(times)]


def one_reset_after_a_transaction_ms(broker: odradek.Broker) -> float:
    """Milliseconds of a reset after one transaction by librdkafka, whose threads may still be running, as in a test."""
    import confluent_kafka

    topic = broker.create_topic(partitions=2)
    common = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    producer = confluent_kafka.Producer({**common, "transactional.id": "payments", "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for number in range(10):
        producer.produce(topic, bytes(100), partition=number % 2)
    consumer = confluent_kafka.Consumer({**common, "group.id": "workers"})
    offsets = [confluent_kafka.TopicPartition(topic, 0, 1)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
    producer.commit_transaction(PATIENCE_S)
    consumer.close()
    del producer
    start = time.perf_counter()
    broker.reset()
    return (time.perf_counter() - start) * 1000


def reset_ms(nodes: int, topics: int, times: int) -> list[float]:
    with odradek.Broker(nodes=nodes) as broker:
        broker.reset()
        return [one_reset_ms(broker, topics) for _ in range(times)]


def one_reset_ms(broker: odradek.Broker, topics: int) -> float:
    host, _, port = broker.bootstrap_servers.split(",")[0].rpartition(":")
    client = Client(socket.create_connection((host, int(port))))
    for number in range(topics):
        name = f"topic-{number}"
        create_topic(client, name)
        leader = next(node for node in broker.nodes.values() if name in node.leads)
        check_produced([produce(leader.show()["listeners"][0]["address"], name)])
    find_group_coordinator(client, "payments")
    start = time.perf_counter()
    broker.reset()
    elapsed_ms = (time.perf_counter() - start) * 1000
    client.close()
    return elapsed_ms


def produce(address: str, topic: str) -> bytes:
    host, _, port = address.rpartition(":")
    client = Client(socket.create_connection((host, int(port))))
    client.send(produce_frame(topic, small_batch()))
    answer = bytes(client.receive())
    client.close()
    return answer
