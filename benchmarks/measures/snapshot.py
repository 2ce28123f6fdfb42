"""``snapshot.restore`` of a state that took long to create: after a record in each topic, and after 100 MB of log."""

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
    large_batch,
    produce_frame,
)
from benchmarks.figures import Figure, Run
from benchmarks.measures.reset import produce
from benchmarks.process import others_at_rest

LOG_BATCHES = 100
"""Number of batches of 1 MiB in the snapshot with a large log."""
SEGMENT_BYTES = 16 * 1024 * 1024


def measure(run: Run) -> Iterator[Figure]:
    others = others_at_rest()
    for nodes, topics, batches, limit in (
        (1, 2, 0, 50),
        (1, 100, 0, 50),
        (3, 2, 0, 50),
        (3, 100, 0, 50),
        (1, 2, LOG_BATCHES, 50),
    ):
        taken, restored = one(nodes, topics, batches, run.scaled(20, 5))
        yield Figure(
            f"restore of {topics} topics{', 100 MiB of log' * bool(batches)}, {nodes} node{'s' * (nodes > 1)}",
            statistics.median(restored),
            "ms",
            limit=limit,
            baseline=f"to take the snapshot {statistics.median(taken):.1f} ms",
            note=f"{min(restored):.1f} to {max(restored):.1f}; a record in each topic, both internal topics, by HTTP",
            other_cpu=others,
        )


def one(nodes: int, topics: int, batches: int, times: int) -> tuple[list[float], list[float]]:
    """Return (ms of each snapshot, ms of each restore) of a new broker with these topics and batches of 1 MiB.

    Before each restore one record is written, so that the restore has a change to revert.
    """
    taken, restored = [], []
    with odradek.Broker(nodes=nodes, settings={"log.segment.bytes": SEGMENT_BYTES}) as broker:
        host, _, port = broker.bootstrap_servers.split(",")[0].rpartition(":")
        client = Client(socket.create_connection((host, int(port))))
        for number in range(topics):
            create_topic(client, f"topic-{number}")
            check_produced([produce(leader_of(broker, f"topic-{number}"), f"topic-{number}")])
        find_group_coordinator(client, "payments")
        for _ in range(batches):
            client.send(produce_frame("topic-0", large_batch()))
            check_produced([bytes(client.receive())])
        client.close()
        for _ in range(times):
            start = time.perf_counter()
            snapshot = broker.snapshot()
            taken.append((time.perf_counter() - start) * 1000)
            if len(taken) < times:
                snapshot.remove()
        for _ in range(times):
            check_produced([produce(leader_of(broker, "topic-0"), "topic-0")])
            start = time.perf_counter()
            snapshot.restore()
            restored.append((time.perf_counter() - start) * 1000)
    return taken, restored


def leader_of(broker: odradek.Broker, topic: str) -> str:
    leader = next(node for node in broker.nodes.values() if topic in node.leads)
    return str(leader.show()["listeners"][0]["address"])
