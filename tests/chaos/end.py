"""The state of the broker after a run: read by new clients, and byte by byte from the files of every node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from storage.directory import DELETION
from tests.chaos.actors import CALL_S, JOBS, PARTITIONS
from tests.chaos.history import End, Place, Seen
from tests.support.clients import PATIENCE, offset_of, place_of, value_of
from tests.support.deadlines import Deadline

PLACES = [Place(topic, partition) for topic, count in PARTITIONS.items() for partition in range(count)]
INTERNAL = ("__consumer_offsets", "__transaction_state")
POLL_S = 0.05


def settled(bootstrap: str) -> list[str]:
    """Wait until all replicas are in sync and no transaction is open.

    Returns a sentence for each partition that is out of sync, or has an open transaction, after the timeout.
    """
    admin = AdminClient({**PATIENCE, "bootstrap.servers": bootstrap})
    deadline = Deadline()
    while True:
        found = [*_out_of_sync(admin), *_open(admin)]
        if not found or deadline.is_over:
            return found
        time.sleep(POLL_S)


def _out_of_sync(admin: AdminClient) -> Iterator[str]:
    for topic in admin.list_topics(timeout=CALL_S).topics.values():
        for partition in topic.partitions.values():
            if partition.leader < 0 or set(partition.isrs) != set(partition.replicas):
                yield (
                    f"{topic.topic}-{partition.id}: replicas {partition.replicas}, in sync {partition.isrs}, "
                    f"leader {partition.leader}"
                )


def _open(admin: AdminClient) -> Iterator[str]:
    for place, (stable, high) in stable_and_high(admin).items():
        if stable != high:
            yield f"{place}: last stable offset {stable}, high watermark {high}"


def stable_and_high(admin: AdminClient) -> dict[Place, tuple[int, int]]:
    """(last stable offset, high watermark) of every partition, -1 if no leader responds."""
    topics = admin.list_topics(timeout=CALL_S).topics
    asked = {
        TopicPartition(name, partition): OffsetSpec.latest()
        for name, topic in topics.items()
        for partition in topic.partitions
    }
    found: list[dict[Place, int]] = []
    for isolation_level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        answers = admin.list_offsets(asked, isolation_level=isolation_level, request_timeout=CALL_S)
        found.append({Place(at.topic, at.partition): _offset(answer) for at, answer in answers.items()})
    stable, high = found
    return {place: (stable[place], high[place]) for place in high}


def _offset(answer: object) -> int:
    try:
        return int(answer.result().offset)  # type: ignore[attr-defined]
    except Exception:  # any error of the client: the caller asks again
        return -1


def look(bootstrap: str) -> End:
    """Read all records, as read_committed and as read_uncommitted consumer."""
    admin = AdminClient({**PATIENCE, "bootstrap.servers": bootstrap})
    return End(
        committed=_read(bootstrap, "read_committed"),
        everything=_read(bootstrap, "read_uncommitted"),
        positions=dict(_positions(bootstrap)),
        stable_and_high=stable_and_high(admin),
    )


def _read(bootstrap: str, isolation_level: str) -> dict[Place, list[Seen]]:
    consumer = Consumer(
        {
            **PATIENCE,
            "bootstrap.servers": bootstrap,
            "group.id": "late",
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    records: dict[Place, list[Seen]] = {place: [] for place in PLACES}
    unread = set(PLACES)
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in PLACES])
    deadline = Deadline()
    try:
        while unread:
            deadline.check(f"partitions not read to the end: {sorted(unread)}")
            for message in consumer.consume(1000, 0.1):
                place = Place(*place_of(message))
                error = message.error()
                if error is None:
                    records[place].append(Seen(offset_of(message), value_of(message).decode()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(place)
    finally:
        consumer.close()
    return records


def _positions(bootstrap: str) -> Iterator[tuple[tuple[str, Place], int]]:
    for job in JOBS:
        member = Consumer({**PATIENCE, "bootstrap.servers": bootstrap, "group.id": job.group})
        try:
            places = [TopicPartition(*place) for place in PLACES if place.topic == job.source]
            for found in member.committed(places, CALL_S):
                assert found.error is None, found.error
                yield (job.group, Place(found.topic, found.partition)), max(found.offset, 0)
        finally:
            member.close()


def different_replicas(data_dir: Path, nodes: int) -> Iterator[str]:
    """Yield partitions whose bytes differ between nodes. All nodes must be stopped."""
    contents: dict[str, dict[int, bytes]] = {}
    for node in range(1, nodes + 1):
        for directory in sorted((data_dir / f"node-{node}").glob("*-[0-9]*")):
            # Folders of reassigned partitions are deleted only after file.delete.delay.ms.
            moved = directory.name.endswith(DELETION)
            if directory.is_dir() and not moved and directory.name != "__cluster_metadata-0":
                logs = sorted(directory.glob("*.log"))
                contents.setdefault(directory.name, {})[node] = b"".join(log.read_bytes() for log in logs)
    for name, replicas in sorted(contents.items()):
        if len(set(replicas.values())) > 1 or len(replicas) != nodes:
            yield f"{name}: {_first_difference(replicas)}"


def _first_difference(replicas: dict[int, bytes]) -> str:
    sizes = ", ".join(f"node {node} has {len(content)} bytes" for node, content in replicas.items())
    shared = min(map(len, replicas.values()))
    at = next((at for at in range(shared) if len({each[at] for each in replicas.values()}) > 1), shared)
    return f"{sizes}; the same up to byte {at}"
