"""`odradek export`: which files it copies, what it refuses, and the content of the copy.
`tests/clients/test_kafka_directories.py` starts Kafka on an export."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from broker.metadata.files import LOG_DIRECTORY, META_PROPERTIES
from broker.metadata.image import Image
from broker.metadata.replay import replay
from odradek._server import command
from protocol.records import cluster_metadata as schema
from protocol.records.cluster_metadata import MetadataRecord
from server.exchange import command_line, copying
from server.exchange.copying import copy_file
from server.exchange.export import main
from storage.checkpoints import read_offsets
from storage.directory import CLEAN_MARK, LOCK, RECOVERY_POINTS, locked
from tests.broker.metadata.world import open_cluster
from tests.support.broker import StartBroker
from tests.support.clients import ConfluentProducer, values
from tests.support.deadlines import HANG_S
from tests.support.notices import without_notices


def export(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("export", *map(str, arguments)), capture_output=True, text=True, timeout=HANG_S, check=False
    )


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != LOCK
    }


@pytest.fixture
def stopped(start_broker: StartBroker) -> Path:
    """The data directory of a stopped broker with two topics, one with records and one without."""
    broker = start_broker(topics=["orders:1", "empty:2"])
    producer = ConfluentProducer(broker.bootstrap)
    producer.send("orders", ["one", "two"])
    producer.close()
    broker.terminate()
    return broker.data_dir


def test_the_copy_is_whole_and_clean_and_the_source_as_it_was(
    stopped: Path, tmp_path: Path, start_broker: StartBroker
):
    before = content(stopped)
    target = tmp_path / "made" / "by itself"
    done = export("--data-dir", stopped, target, "--port", 19000, "--controller-port", 19001)
    assert (done.returncode, without_notices(done.stderr)) == (0, "")
    assert "3 partitions of 2 topics are in" in done.stdout
    assert f"kafka-server-start.sh '{target}/server.properties'" in done.stdout
    assert content(stopped) == before

    copied = content(target)
    for name in (META_PROPERTIES, "orders-0/00000000000000000000.log", "empty-1/partition.metadata"):
        assert copied[name] == before[name], name
    assert CLEAN_MARK in copied
    assert LOCK not in {path.name for path in target.iterdir()}
    assert read_offsets(target / RECOVERY_POINTS)["orders", 0] == 2
    settings = (target / "server.properties").read_text()
    assert "node.id=1\n" in settings
    assert "controller.quorum.voters=1@127.0.0.1:19001\n" in settings
    assert "listeners=PLAINTEXT://127.0.0.1:19000,CONTROLLER://127.0.0.1:19001\n" in settings
    assert "log.dirs=" + str(target).replace(" ", "\\ ") + "\n" in settings

    ours = start_broker(data_dir=target)
    assert values(ours.bootstrap, "orders") == ["one", "two"]


def test_a_broker_that_runs_is_not_exported(start_broker: StartBroker, tmp_path: Path):
    broker = start_broker(topics=["orders:1"])
    done = export("--data-dir", broker.data_dir, tmp_path / "target")
    assert done.returncode == 1
    assert "is in use by another broker" in done.stderr
    assert not (tmp_path / "target").exists()


def test_certificates_stay_behind_of_which_kafka_would_take_the_folder_for_a_partition(tmp_path: Path):
    (tmp_path / "data" / "tls").mkdir(parents=True)
    copying.copy_directory(tmp_path / "data", tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


def test_what_a_killed_broker_left_is_recovered_in_the_copy(start_broker: StartBroker, tmp_path: Path):
    broker = start_broker(topics=["orders:1"])
    ConfluentProducer(broker.bootstrap).send("orders", ["one", "two"])
    broker.kill()
    segment = broker.data_dir / "orders-0" / "00000000000000000000.log"
    whole = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(bytes(7))  # an incomplete batch
    before = content(broker.data_dir)
    target = tmp_path / "target"
    done = export("--data-dir", broker.data_dir, target)
    assert done.returncode == 0, done.stderr
    assert "log cut at the first bad batch" in done.stderr
    assert content(broker.data_dir) == before
    assert (target / "orders-0" / segment.name).stat().st_size == whole
    assert (target / CLEAN_MARK).exists()
    assert (target / "orders-0" / "00000000000000000002.snapshot").exists()


def test_folders_of_deleted_topics_stay_behind(tmp_path: Path):
    source, target = tmp_path / "source", tmp_path / "target"
    open_cluster(source).abandon()
    (source / "old-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    (source / "old-0.0123456789abcdef0123456789abcdef-delete" / "file").write_text("old")
    assert main(["--data-dir", str(source), str(target)]) == 0
    assert [path.name for path in target.iterdir() if "old" in path.name] == []
    assert (target / LOG_DIRECTORY).is_dir()


@pytest.mark.parametrize(
    ("prepare", "complaint"),
    [
        (lambda source, target: (target.mkdir(), (target / "file").touch()), "is not empty"),
        (lambda source, target: target.touch(), "is not empty"),
        (lambda source, target: (source / META_PROPERTIES).unlink(), "is not the directory of a broker"),
        (lambda source, target: (source / META_PROPERTIES).write_text("version=0\nnode.id=1\n"), "ZooKeeper"),
        (
            lambda source, target: (source / META_PROPERTIES).write_text("version=1\n"),
            "has no node.id",
        ),
    ],
)
def test_what_cannot_be_exported_is_said_and_leaves_nothing(
    prepare, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source, target = tmp_path / "source", tmp_path / "target"
    open_cluster(source).abandon()
    prepare(source, target)
    was_there = content(tmp_path)
    assert main(["--data-dir", str(source), str(target)]) == 1
    assert complaint in capsys.readouterr().err
    assert content(tmp_path) == was_there


def test_a_partition_that_cannot_be_read_is_no_silent_loss(stopped: Path, tmp_path: Path):
    (stopped / "orders-0" / "partition.metadata").write_text("version: 7\n")
    target = tmp_path / "target"
    target.mkdir()
    done = export("--data-dir", stopped, target)
    assert done.returncode == 1
    assert "orders-0: " in done.stderr
    assert list(target.iterdir()) == []


def test_of_a_cluster_one_node_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "data" / "node-1").mkdir(parents=True)
    (tmp_path / "data" / "node-1" / META_PROPERTIES).touch()
    assert main(["--data-dir", str(tmp_path / "data"), str(tmp_path / "copy")]) == 1
    assert (
        f"give the directory of one node, such as {tmp_path / 'data' / 'node-1'}." in capsys.readouterr().err
    )


def test_an_export_does_not_go_into_its_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    open_cluster(tmp_path).abandon()
    assert main(["--data-dir", str(tmp_path), str(tmp_path / "inside")]) == 1
    assert "is inside of" in capsys.readouterr().err


def test_an_export_for_an_earlier_release_has_its_metadata_version(
    stopped: Path, tmp_path: Path, start_broker: StartBroker
):
    target = tmp_path / "exported"
    done = export("--data-dir", stopped, target, "--metadata-version", "4.3-IV0")
    assert (done.returncode, without_notices(done.stderr)) == (0, "")
    image = Image()
    replay(target / LOG_DIRECTORY, image)
    assert image.features["metadata.version"] == 30
    assert {"orders", "empty"} <= set(image.topics)
    again = start_broker(data_dir=target)
    assert values(again.bootstrap, "orders") == ["one", "two"]


def test_a_metadata_version_is_not_raised_or_set_below_a_network_of_an_acl(tmp_path: Path):
    source = tmp_path / "source"
    level = ("--metadata-version", "4.4-IV0")
    assert refusal(source, tmp_path / "a", level, {"metadata.version": 30}) == (
        "The metadata.version of the directory is 30, and cannot become 31."
    )
    acl = schema.AccessControlEntryRecord(id=uuid.uuid4(), host="10.0.0.0/8", principal="User:a")
    assert refusal(source, tmp_path / "b", level, {"metadata.version": 33}, acl) == (
        "An ACL has a network (CIDR) as its host, which needs metadata.version 4.4-IV1."
    )


def refusal(
    source: Path, target: Path, level: tuple[str, str], levels: Mapping[str, int], *records: MetadataRecord
) -> str:
    """The error of an export, from a directory with these feature levels and records."""

    async def write() -> None:
        cluster = open_cluster(source, features=levels)
        if records:
            await cluster._writer.commit(list(records))
        await cluster.close()

    asyncio.run(write())
    done = export("--data-dir", source, target, *level)
    assert (done.returncode, target.exists()) == (1, False)
    return without_notices(done.stderr).removeprefix("Error: ").strip()


def test_the_lock_is_one_that_a_broker_respects(stopped: Path, start_broker: StartBroker):
    from tests.support.broker import BrokerFailed

    with locked(stopped), pytest.raises(BrokerFailed, match="in use by another broker"):
        start_broker(data_dir=stopped)
    assert (stopped / CLEAN_MARK).exists()


@pytest.mark.parametrize("by_hand", [False, True])
def test_holes_stay_holes(by_hand: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A copied file has the same holes. Kafka's active indexes are preallocated with 10 MiB each, almost all of it holes."""
    if by_hand:
        monkeypatch.setattr(copying, "_by_the_system", copying._by_hand)
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.write(b"begin")
        file.seek(5 << 20)
        file.write(b"middle")
        file.truncate(10 << 20)
    os.utime(source, (1_000_000, 2_000_000))
    copy_file(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks <= source.stat().st_blocks + 16
    assert target.stat().st_mtime == 2_000_000


def test_a_file_system_that_copies_no_ranges_is_served_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: int) -> int:
        raise OSError(18, "not across devices")

    monkeypatch.setattr(copying, "_by_the_system", refuse)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * 1000)
    copy_file(source, target)
    assert target.read_bytes() == source.read_bytes()


def test_what_takes_long_is_told_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    monkeypatch.setattr(command_line, "NOTICE_S", 0.0)
    monkeypatch.setattr(click, "echo", lambda *_, **__: told.set())
    ended: list[bool] = []
    slow = click.Command("slow", callback=lambda: ended.append(told.wait(HANG_S)))
    assert command_line.run(slow, "odradek export", []) == 0
    assert ended == [True]
