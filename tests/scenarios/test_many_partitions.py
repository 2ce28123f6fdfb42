"""Hundreds of partitions with a small limit of open files: all of them work, also after a kill and a clean stop."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from protocol.batch import batches, build_batch
from storage.directory import CLEAN_MARK
from tests.support import raw
from tests.support.broker import Broker, StartBroker

TOPICS = [f"many-{number}" for number in range(5)]
PARTITIONS = 100
"""Partitions of each topic."""
OPEN_FILES_MAX = 64
OTHERS_MAX = 8
"""Maximum of other open files: the lock, the metadata log, and files that syncing threads open for a moment."""

Acknowledged = dict[tuple[str, int], list[bytes]]


class Peer:
    def __init__(self, broker: Broker) -> None:
        self.wire = raw.Wire(broker.host, broker.port)
        self.broker = broker

    def ask(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        self.wire.send_frame(raw.encode_request(api, version, body, 7))
        answer = raw.decode_response(api, version, self.wire.receive_frame())[1]
        assert set(raw.error_codes(answer)) == {0}
        assert open_files(self.broker) <= OPEN_FILES_MAX + OTHERS_MAX
        return answer

    def create(self, names: list[str], partitions: int) -> None:
        topics = [{"name": name, "num_partitions": partitions, "replication_factor": 1} for name in names]
        self.ask("create_topics", 5, {"topics": topics, "timeout": 30_000})

    def produce(self, acknowledged: Acknowledged) -> None:
        """Produce one more batch to every partition, and note each acknowledgement."""
        for name in TOPICS:
            sent = [(index, f"{name} {index} {time.time_ns()}".encode()) for index in range(PARTITIONS)]
            now_ms = time.time_ns() // 1_000_000
            data = [
                {"index": index, "records": build_batch([(now_ms, None, value)])} for index, value in sent
            ]
            body = {"acks": -1, "timeout": 30_000, "topic_data": [{"name": name, "partition_data": data}]}
            self.ask("produce", 9, {"transactional_id": None} | body)
            for index, value in sent:
                acknowledged.setdefault((name, index), []).append(value)

    def fetch(self) -> Acknowledged:
        """Fetch all records of all partitions, and check that their offsets begin at 0 without a gap."""
        found: Acknowledged = {}
        for name in TOPICS:
            asked = [
                {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 16}
                for index in range(PARTITIONS)
            ]
            body = {"max_wait": 100, "min_bytes": 1, "max_bytes": 1 << 24}
            answer = self.ask("fetch", 12, body | {"topics": [{"topic": name, "partitions": asked}]})
            for row in answer["responses"][0]["partitions"]:
                records = [record for one in batches(row["records"]) for record in one.records()]
                assert [record.offset for record in records] == list(range(len(records)))
                found[name, row["partition_index"]] = [record.value or b"" for record in records]
        return found


@contextmanager
def connected(broker: Broker) -> Iterator[Peer]:
    peer = Peer(broker)
    try:
        yield peer
    finally:
        peer.wire.close()


def open_files(broker: Broker) -> int:
    """Number of the broker process's open files below its data directory."""
    count = 0
    for fd in os.listdir(f"/proc/{broker.pid}/fd"):
        try:
            name = os.readlink(f"/proc/{broker.pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        count += name.startswith(f"{broker.data_dir}/")
    return count


@pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="the open files of another process are Linux's"
)
def test_all_partitions_work_with_a_small_limit_of_open_files(start_broker: StartBroker) -> None:
    acknowledged: Acknowledged = {}
    broker = start_broker(settings={"odradek.open.files.max": OPEN_FILES_MAX})
    with connected(broker) as peer:
        peer.create(TOPICS, PARTITIONS)
        peer.create(["empty"], PARTITIONS)
        for _ in range(3):
            peer.produce(acknowledged)
        assert open_files(broker) > OPEN_FILES_MAX // 2
        assert peer.fetch() == acknowledged
    broker.kill()
    broker.restart()
    with connected(broker) as peer:
        assert peer.fetch() == acknowledged
        peer.produce(acknowledged)
    broker.terminate()
    assert (broker.data_dir / CLEAN_MARK).exists()
    folders = {path.name for path in broker.data_dir.iterdir() if path.is_dir()}
    assert folders >= {f"{name}-{index}" for name in (*TOPICS, "empty") for index in range(PARTITIONS)}
    # A restart without requests changes nothing.
    broker.restart()
    broker.terminate()
    assert (broker.data_dir / CLEAN_MARK).exists()
    broker.restart()
    with connected(broker) as peer:
        assert peer.fetch() == acknowledged
        peer.produce(acknowledged)
        assert peer.fetch() == acknowledged
    assert not [
        event
        for event in broker.events
        if event["event"] in ("partition offline", "log cut at the first bad batch")
    ]
