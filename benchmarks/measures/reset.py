"""A clean state for the next test: ``Broker.reset`` after some topics and transactions, beside a new broker."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Iterator

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


def measure(run: Run) -> Iterator[Figure]:
    others = others_at_rest()
    new = [new_broker_ms(nodes=1) for _ in range(run.scaled(5, 2))]
    for nodes, topics, limit in ((1, 2, 5), (1, 100, 20), (3, 2, None), (3, 100, None)):
        times = reset_ms(nodes, topics, run.scaled(20, 5))
        yield Figure(
            f"reset after {topics} topics, {nodes} node{'s' * (nodes > 1)}",
            statistics.median(times),
            "ms",
            limit=limit,
            baseline=f"a new broker {statistics.median(new):.0f} ms",
            note=f"{min(times):.1f} to {max(times):.1f}; a record in each topic, both internal topics, by HTTP",
            other_cpu=others,
        )


def new_broker_ms(nodes: int) -> float:
    start = time.perf_counter()
    with odradek.Broker(nodes=nodes):
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
