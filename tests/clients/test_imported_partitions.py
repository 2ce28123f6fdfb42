"""`odradek import` reads a partition's folder that was copied from a running Kafka cluster, for inspection."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from odradek._server import command
from server.exchange.importing import main
from tests.clients.test_kafka_directories import Written
from tests.differential import batches
from tests.support import content
from tests.support.batches import stored
from tests.support.broker import StartBroker
from tests.support.clients import values
from tests.support.content import Asked
from tests.support.deadlines import HANG_S

EPOCH = 12
HANGING = 12
"""First offset of the open transaction."""


def import_(data_dir: Path, *folders: Path) -> subprocess.CompletedProcess[str]:
    arguments = ("--data-dir", str(data_dir), *map(str, folders))
    return subprocess.run(
        command("import", *arguments), capture_output=True, text=True, timeout=HANG_S, check=False
    )


@pytest.fixture
def written(tmp_path: Path) -> Written:
    home = tmp_path / "kafka"
    home.mkdir()
    return Written(home, "killed")


@pytest.fixture
def hanging(written: Written, tmp_path: Path) -> Path:
    """Copy of the folder of ``flow-0``, which has an open transaction that no coordinator will end.

    The leader epoch of its batches is 12, so a leader of the imported partition needs a higher one.
    """
    folder = tmp_path / "copied" / "flow-0"
    shutil.copytree(written.data / "flow-0", folder)
    log = folder / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    for each in stored(bytes(data)):
        struct.pack_into(
            ">i", data, each.position + 12, EPOCH
        )  # the leader epoch, which the CRC does not cover
    log.write_bytes(data)
    (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n{EPOCH} 0\n")
    return folder


def test_a_hanging_transaction_is_inspected_and_ended(
    written: Written, hanging: Path, tmp_path: Path, start_broker: StartBroker
):
    before = {path.name: path.read_bytes() for path in hanging.iterdir()}
    data_dir = tmp_path / "data"
    done = import_(data_dir, hanging)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"flow-0 is in {data_dir}" in done.stdout
    assert {path.name: path.read_bytes() for path in hanging.iterdir()} == before

    broker = start_broker(data_dir=data_dir)
    seen = content.observe(broker.host, broker.port, groups=())
    expected = written.seen["partitions"]["flow-0"]
    for batch in [*expected["uncommitted"]["batches"], *expected["committed"]["batches"]]:
        batch["leader_epoch"] = EPOCH
    assert seen["partitions"] == {"flow-0": expected}
    assert seen["topics"]["flow"] == {"id": written.seen["topics"]["flow"]["id"], "partitions": 1}
    assert seen["configs"]["flow"] == {"retention.bytes": "-1", "retention.ms": "-1"}
    assert expected["stable"] == HANGING < expected["end"]

    with Asked(broker.host, broker.port) as ask:
        marker = {
            "producer_id": written.filled.open.producer_id,
            "producer_epoch": written.filled.open.producer_epoch,
            "transaction_result": False,
            "topics": [{"name": "flow", "partition_indexes": [0]}],
            "coordinator_epoch": 0,
        }
        ask("write_txn_markers", 1, markers=[marker])
        ask.produce("flow", batches.batch([b"after"], ts=written.filled.now_ms))
        # Clients that have seen a leader epoch ignore older ones.
        *old, one, two = [each["leader_epoch"] for each in content.batches_of(ask, "flow", 0)]
    assert set(old) == {EPOCH}
    assert one == two == content.leader_epochs(broker.host, broker.port)["flow-0"] > EPOCH
    assert content.undecided(broker.host, broker.port) == []
    assert values(broker.bootstrap, "flow")[-2:] == ["behind", "after"]
    assert "undecided" not in values(broker.bootstrap, "flow")


def test_partitions_of_a_topic_are_imported_one_by_one(
    written: Written, tmp_path: Path, start_broker: StartBroker
):
    data_dir = tmp_path / "data"
    for name in ("orders-1", "orders-0"):
        assert import_(data_dir, written.data / name).returncode == 0
    done = import_(data_dir, written.data / "plain-0", written.data / "plain-1", written.data / "trimmed-0")
    assert done.returncode == 0, done.stderr
    broker = start_broker(data_dir=data_dir)
    seen = content.observe(broker.host, broker.port, groups=())
    expected = written.seen["partitions"]
    for name in ("orders-0", "orders-1", "plain-0", "plain-1"):
        assert seen["partitions"][name] == expected[name], name
    # The log start offset is in a file of the cluster that was not copied.
    assert (seen["partitions"]["trimmed-0"]["start"], seen["partitions"]["trimmed-0"]["end"]) == (0, 10)


def test_a_torn_batch_of_a_copied_log_is_truncated_and_reported(
    written: Written, hanging: Path, tmp_path: Path, start_broker: StartBroker
):
    """`odradek import` truncates and reports an incomplete batch, which the broker was writing during the copy.

    The indexes have entries beyond the end of the log.
    """
    log = hanging / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-5])
    done = import_(tmp_path / "data", hanging)
    assert done.returncode == 0
    assert "log cut at the first bad batch" in done.stderr
    broker = start_broker(data_dir=tmp_path / "data")
    assert "undecided" in values(broker.bootstrap, "flow", "read_uncommitted")
    assert "behind" not in values(broker.bootstrap, "flow", "read_uncommitted")


def test_a_folder_that_cannot_be_imported_is_refused_with_the_reason(
    written: Written, tmp_path: Path, start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
):
    data_dir = tmp_path / "data"
    (tmp_path / "empty-0").mkdir()
    coordinators = next(iter(written.data.glob("__consumer_offsets-*")))

    def refused(folder: Path) -> str:
        assert main(["--data-dir", str(data_dir), str(folder)]) == 1
        return capsys.readouterr().err

    assert "does not have the name of a partition" in refused(written.data)
    assert "use kafka-dump-log.sh to see its content" in refused(coordinators)
    assert "contains no log" in refused(tmp_path / "empty-0")
    assert not data_dir.exists()

    broker = start_broker(data_dir=data_dir, topics=["plain:1"])
    assert "is in use by another broker" in import_(data_dir, written.data / "orders-0").stderr
    broker.terminate()
    assert "this broker has a topic plain with another topic id" in refused(written.data / "plain-0")
    assert main(["--data-dir", str(data_dir), str(written.data / "orders-0")]) == 0
    assert "has records already" in refused(written.data / "orders-0")
    broker.start()
    with Asked(broker.host, broker.port) as ask:
        assert ask.end_offset("orders") == written.seen["partitions"]["orders-0"]["end"]
