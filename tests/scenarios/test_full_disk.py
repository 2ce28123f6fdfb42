"""A broker whose files may not grow: writes that do not fit fail with an error, and nothing else is lost."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from storage.directory import CLEAN_MARK
from tests.differential.batches import batch
from tests.support import raw
from tests.support.batches import stored
from tests.support.broker import Broker, StartBroker
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S

KAFKA_STORAGE_ERROR = 56
FILE_BYTES_MAX = 200_000
ROOT = Path(__file__).parents[2]


def limit_files(broker: Broker, size: int) -> None:
    hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size, hard))


class Peer:
    def __init__(self, broker: Broker) -> None:
        self.wire = raw.Wire(broker.host, broker.port, timeout=HANG_S)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def ask(self, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        self.wire.send_frame(raw.encode_request(api, version, body, 7))
        return raw.decode_response(api, version, self.wire.receive_frame())[1]

    def produce(self, index: int, value: bytes) -> tuple[int, int]:
        """Produce one record and return (error code, base offset)."""
        data = [{"index": index, "records": batch([value], ts=time.time_ns() // 1_000_000)}]
        topic = {"name": "orders", "partition_data": data}
        body = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": [topic]}
        answer = self.ask("produce", 9, body)["responses"][0]["partition_responses"][0]
        return int(answer["error_code"]), int(answer["base_offset"])

    def leader(self, index: int) -> int:
        answer = self.ask("metadata", 9, {"topics": [{"name": "orders"}]})
        (row,) = [row for row in answer["topics"][0]["partitions"] if row["partition_index"] == index]
        return int(row["leader_id"])


def offsets(broker: Broker, index: int) -> list[int]:
    content = (broker.data_dir / f"orders-{index}" / f"{0:020d}.log").read_bytes()
    return [one.base_offset for one in stored(content)]


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limit of another process is Linux's")
def test_a_partition_that_cannot_grow_goes_offline_and_recovers(start_broker: StartBroker) -> None:
    broker = start_broker(topics=["orders:2"])
    with Peer(broker) as peer:
        assert peer.produce(1, b"before") == (0, 0)
        limit_files(broker, FILE_BYTES_MAX)
        acknowledged = []
        while True:
            error, offset = peer.produce(0, bytes(30_000))
            if error:
                break
            acknowledged.append(offset)
        assert error == KAFKA_STORAGE_ERROR
        assert acknowledged == list(range(FILE_BYTES_MAX // 30_100))
        assert peer.produce(0, b"small") == (KAFKA_STORAGE_ERROR, -1)
        assert peer.produce(1, b"other") == (0, 1)
        assert (peer.leader(0), peer.leader(1)) == (-1, 1)
    # A thread writes the log lines, possibly after the responses.
    (line,) = eventually(lambda: [each for each in broker.events if each["event"] == "partition offline"])
    assert line["file"] == str(broker.data_dir / "orders-0" / f"{0:020d}.log")
    assert "File too large" in line["reason"]
    # Torn writes have been truncated, and no clean-shutdown file keeps the next start from recovering the log.
    assert offsets(broker, 0) == acknowledged
    broker.terminate()
    assert not (broker.data_dir / CLEAN_MARK).exists()
    broker.start()
    with Peer(broker) as peer:
        assert peer.produce(0, bytes(30_000)) == (0, len(acknowledged))
        assert peer.produce(1, b"after") == (0, 2)
    assert offsets(broker, 0) == [*acknowledged, len(acknowledged)]


def test_a_broker_that_cannot_write_logs_the_reason_and_ends(tmp_path: Path) -> None:
    """A broker that cannot write even its first file logs the reason and ends with exit code 1."""
    limit = (
        "import resource, runpy\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "runpy.run_module('server', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", limit, "--port", "0", "--data-dir", str(tmp_path / "data")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 1
    lines = [line for line in done.stdout.splitlines() if "cannot start" in line]
    assert len(lines) == 1
    assert "File too large" in lines[0]
    assert str(tmp_path / "data") in lines[0]
    assert "Traceback" not in done.stdout + done.stderr
