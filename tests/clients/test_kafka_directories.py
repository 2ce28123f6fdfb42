"""Data directories move from Apache Kafka to Odradek, from Odradek to Kafka, and back.

Kafka's directories are in ``directories/`` (`python -m tests.clients.record_directories` creates them): of a node that was
stopped and of one that was killed, with what clients read while they ran.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import struct
import subprocess
import tarfile
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

import broker.metadata.log as log_module
import odradek
from broker.metadata.files import LOG_DIRECTORY
from broker.metadata.image import Image
from broker.metadata.replay import replay
from odradek._server import command
from protocol import batch as wire
from protocol.records import producer_snapshot
from tests.broker.metadata.world import open_cluster
from tests.clients.record_directories import DIRECTORIES
from tests.differential import batches
from tests.support import content, raw
from tests.support.broker import Broker, StartBroker
from tests.support.clients import ConfluentProducer, eventually, values
from tests.support.content import Asked, Filled
from tests.support.deadlines import HANG_S
from tests.support.java import KAFKA_VERSION
from tests.support.kafka_oracle import Oracle, started, write_settings
from tests.support.notices import without_notices

CRC_AT, TIMESTAMPS_AT = 17, 27
"""Offsets in a batch header (DefaultRecordBatch.java)."""
FEATURES_OF_OURS = {
    "metadata.version",
    "eligible.leader.replicas.version",
    "transaction.version",
    "group.version",
    "share.version",
}


@dataclass
class Written:
    """A directory that Kafka wrote, and what clients read from that Kafka."""

    home: Path
    name: str

    def __post_init__(self) -> None:
        with tarfile.open(DIRECTORIES / f"{self.name}.tar.xz") as archive:
            archive.extractall(self.home, filter="data")
        recorded = json.loads((self.home / f"{self.name}.json").read_text())
        self.filled = Filled.of(json.dumps(recorded["filled"]))
        self.seen: dict[str, Any] = recorded["seen"]
        self.leader_epochs: dict[str, int] = recorded["leader_epochs"]

    @property
    def data(self) -> Path:
        return self.home / "data"

    def stamp(self, partition: str, now_ms: int) -> None:
        """Change the timestamps of a partition's batches and producers to now, as a producer expires after a day."""
        for log in (self.data / partition).glob("*.log"):
            content = bytearray(log.read_bytes())
            for each in wire.batches(bytes(content)):
                end = each.start + each.size
                struct.pack_into(">qq", content, each.start + TIMESTAMPS_AT, now_ms, now_ms)
                crc = google_crc32c.value(bytes(content[each.start + CRC_AT + 4 : end]))
                struct.pack_into(">I", content, each.start + CRC_AT, crc)
            log.write_bytes(content)
        served = self.seen["partitions"][partition]
        for batch in (*served["uncommitted"]["batches"], *served["committed"]["batches"]):
            batch["base_timestamp"] = batch["max_timestamp"] = now_ms
        for snapshot in (self.data / partition).glob("*.snapshot"):
            entries = producer_snapshot.decode(snapshot.read_bytes())
            snapshot.write_bytes(
                producer_snapshot.encode(each._replace(timestamp=now_ms) for each in entries)
            )


@pytest.fixture(params=["clean", "killed"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    home = tmp_path / "kafka"
    home.mkdir()
    return Written(home, request.param)


@pytest.fixture
def broker(written: Written, start_broker: StartBroker) -> Broker:
    """Our broker on Kafka's directory, without Kafka's settings."""
    return start_broker(data_dir=written.data)


def test_clients_see_all_that_they_saw_of_kafka_3_3(start_broker: StartBroker, tmp_path: Path):
    """Clients see a directory of Kafka 3.3, whose metadata log has the settings of a new topic before the topic itself.

    `test_kafka_releases` tests directories of later releases.
    """
    written = Written(tmp_path, "earliest")
    written.stamp("idempotent-0", time.time_ns() // 1_000_000)
    assert written.seen["configs"]["plain"] == {"retention.ms": "-1"}
    broker = start_broker(data_dir=written.data)
    assert_same(written.seen, content.observe(broker.host, broker.port))
    finish_and_go_on(broker, written.filled)
    broker.terminate()
    levels = {"metadata.version": 7}
    assert metadata_of(written.data).features == written.seen["features"] == levels


def metadata_of(data_dir: Path) -> Image:
    image = Image()
    replay(data_dir / LOG_DIRECTORY, image)
    return image


def test_the_indexes_of_a_killed_kafka_are_as_it_left_them(tmp_path: Path):
    """The directory of a killed Kafka still has Kafka's own index files, on which the recovery tests depend."""
    written = Written(tmp_path, "killed")
    index = written.data / "plain-0" / "00000000000000000000.index"
    assert index.stat().st_size == 10 << 20
    assert index.stat().st_blocks < 100
    assert not (written.data / ".kafka_cleanshutdown").exists()


def test_clients_see_all_that_they_saw_before(written: Written, broker: Broker):
    """Clients see the topics, ids, settings and groups of Kafka, and every batch at both isolation levels.

    Uncompressed batches are compared byte for byte.
    """
    expected = written.seen
    features = expected["features"]
    expected["features"] = {name: features[name] for name in FEATURES_OF_OURS}
    assert len(expected["quotas"]) == 1
    seen = content.observe(broker.host, broker.port)
    for part, what in expected.items():
        assert seen[part] == what, part
    assert written.filled.gone not in seen["topics"]

    before = written.leader_epochs
    after = content.leader_epochs(broker.host, broker.port)
    assert set(after) == set(before)
    assert [name for name in before if after[name] <= before[name]] == []

    broker.terminate()
    image = metadata_of(written.data)
    features.pop("kraft.version", None)  # the quorum's feature level is in a control record
    assert image.features == features, "unsupported feature levels are preserved"
    assert len(image.quotas) == 1


def test_the_directory_keeps_its_cluster_id_and_node_id(written: Written, start_broker: StartBroker):
    identity = (written.data / "meta.properties").read_text()
    highest = metadata_of(written.data).next_producer_id
    assert highest >= 1000
    broker = start_broker(data_dir=written.data)
    with Asked(broker.host, broker.port) as ask:
        assert ask.producer_id()[0] >= highest
    assert (written.data / "meta.properties").read_text() == identity


def test_an_open_transaction_is_continued_and_committed_by_its_producer(written: Written, broker: Broker):
    """The producer of a transaction that was open in Kafka continues and commits it with Odradek.

    Producer id, epoch and sequences are restored: the next batch is appended, and once only if it is sent twice.
    """
    filled = written.filled
    assert content.undecided(broker.host, broker.port) == ["flow-0", "orders-0"]
    with Asked(broker.host, broker.port) as ask:
        end = ask.end_offset("flow")
        more = content.continue_batch(filled.open, filled.now_ms)
        version = 12 if filled.open.transaction_version == 2 else 9
        for _ in range(2):
            assert ask.produce("flow", more, version=version, transactional_id="open") == end
        assert ask.committed("movers", "plain") == 2
        ask.end_transaction(filled.open, committed=True)
        eventually(lambda: ask.committed("movers", "plain") == 3, "its offset is committed")
    eventually(lambda: content.undecided(broker.host, broker.port) == [], "no transaction is open")
    assert {"undecided", "more"} <= set(values(broker.bootstrap, "flow"))
    assert "undecided" in values(broker.bootstrap, "orders")


def test_an_open_transaction_is_aborted_by_its_producer_s_next_start(written: Written, broker: Broker):
    producer = ConfluentProducer(broker.bootstrap, transactional_id=content.OPEN_ID)
    producer.init()
    eventually(lambda: content.undecided(broker.host, broker.port) == [], "no transaction is open")
    assert "undecided" not in values(broker.bootstrap, "flow")
    assert "undecided" in values(broker.bootstrap, "flow", "read_uncommitted")
    with Asked(broker.host, broker.port) as ask:
        assert ask.committed("movers", "plain", stable=True) == 2
    producer.begin()
    producer.send("flow", ["new"])
    producer.send_offsets("movers", {("plain", 0): 1})
    producer.commit()
    assert "new" in values(broker.bootstrap, "flow")
    with Asked(broker.host, broker.port) as ask:
        eventually(lambda: ask.committed("movers", "plain") == 1, "the new transaction's offset is committed")
        # The old instance is fenced.
        answer = ask.any(
            "end_txn",
            3,
            transactional_id=content.OPEN_ID,
            producer_id=written.filled.open.producer_id,
            producer_epoch=written.filled.open.producer_epoch,
            committed=True,
        )
        assert answer["error_code"] in (47, 90)


def test_a_producer_s_last_batch_is_recognised_when_it_comes_again(
    written: Written, start_broker: StartBroker
):
    written.stamp("idempotent-0", time.time_ns() // 1_000_000)
    broker = start_broker(data_dir=written.data)
    batch = base64.b64decode(written.filled.last_batch)
    with Asked(broker.host, broker.port) as ask:
        end = ask.end_offset("idempotent")
        assert ask.produce("idempotent", batch) == written.filled.last_batch_offset
        assert ask.end_offset("idempotent") == end == written.filled.last_batch_offset + 3


def test_the_folder_of_a_deleted_topic_is_removed(written: Written, start_broker: StartBroker):
    assert [path.name[-7:] for path in written.data.glob("gone-topic-0.*")] == ["-delete"]
    start_broker(data_dir=written.data)
    eventually(lambda: not list(written.data.glob("gone-topic-0*")), "the folder is removed")


def test_new_records_are_accepted_and_survive_restarts(written: Written, broker: Broker):
    with Asked(broker.host, broker.port) as ask:
        ask.create("more", 3)
        ask("delete_topics", 4, topic_names=["segments"], timeout=10_000)
        ask.commit_offset("readers", "codecs", 7)
    for number in range(2):
        ConfluentProducer(broker.bootstrap).send("more", [str(number)], partition=2)
        (broker.kill if number else broker.terminate)()
        broker.start()
    expected = written.seen["partitions"]
    seen = content.observe(broker.host, broker.port)
    assert values(broker.bootstrap, "more") == ["0", "1"]
    assert "segments" not in seen["topics"]
    assert {name: seen["partitions"].get(name) for name in expected if name != "segments-0"} == {
        name: what for name, what in expected.items() if name != "segments-0"
    }
    assert seen["groups"]["readers"]["offsets"]["codecs-0"][0] == 7


# ---- Kafka starts on our exports


@contextlib.contextmanager
def kafka_on_export(
    source: Path, target: Path, *options: str, release: str = KAFKA_VERSION
) -> Iterator[Oracle]:
    """Run `odradek export` from ``source`` to ``target``, and yield a Kafka started with the exported settings."""
    ports = ("--port", str(raw.free_port()), "--controller-port", str(raw.free_port()))
    arguments = ("--data-dir", str(source), str(target), *ports, *options)
    done = subprocess.run(
        command("export", *arguments), capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert (done.returncode, without_notices(done.stderr)) == (0, "")
    [settings] = re.findall(r"bin/kafka-server-start.sh (\S+)", done.stdout)
    with started(Path(settings), release=release) as oracle:
        yield oracle


def complaints(kafka: Oracle) -> list[str]:
    """Error lines of Kafka's log, without those of two races that each restart has, and those about a slow controller.

    Coordinators begin to load with the leader epochs at the end of the metadata, while the controller raises these
    epochs. A controller registers itself, and is refused until it is the active one: Kafka repeats the request. The
    machine's speed decides both races.
    """
    races = ("partition is not online or is no longer the leader", "apiKey=CONTROLLER_REGISTRATION")
    lines = [line for line in kafka.log.read_text().splitlines() if " ERROR " in line]
    return [line for line in lines if not any(each in line for each in (*races, "EventPerformanceMonitor"))]


def assert_same(expected: Mapping[str, Any], seen: Mapping[str, Any], *, but: Collection[str] = ()) -> None:
    for part in expected:
        if part not in but:
            assert seen[part] == expected[part], part


@pytest.mark.java
@pytest.mark.more
@pytest.mark.xdist_group("jvm")
def test_kafka_continues_after_our_broker_and_our_broker_after_kafka(
    start_broker: StartBroker, tmp_path: Path
):
    ours = start_broker()
    filled = content.fill(ours.host, ours.port)
    content.fill_compacted(ours.host, ours.port)
    expected = content.observe(ours.host, ours.port)
    epochs = content.leader_epochs(ours.host, ours.port)
    ours.terminate()

    exported = tmp_path / "exported"
    with kafka_on_export(ours.data_dir, exported) as kafka:
        assert "DUPLICATE_BROKER_REGISTRATION" not in kafka.log.read_text()
        assert_same(expected, content.observe(kafka.host, kafka.port))
        after = content.leader_epochs(kafka.host, kafka.port)
        assert [name for name in epochs if after[name] <= epochs[name]] == []
        finish_and_go_on(kafka, filled)
        expected = content.observe(kafka.host, kafka.port)
        assert expected["groups"]["movers"]["offsets"]["plain-0"][0] == 3
    assert complaints(kafka) == []

    again = start_broker(data_dir=exported)
    assert_same(expected, content.observe(again.host, again.port))
    assert {"undecided", "more", "by Kafka"} <= set(values(again.bootstrap, "flow"))
    producer = ConfluentProducer(again.bootstrap, transactional_id="mover")
    producer.init()
    producer.begin()
    producer.send("flow", ["home again"])
    producer.commit()
    assert "home again" in values(again.bootstrap, "flow")


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.xdist_group("jvm")
def test_kafka_4_3_continues_after_our_broker(start_broker: StartBroker, tmp_path: Path):
    ours = start_broker()
    filled = content.fill(ours.host, ours.port)
    expected = content.observe(ours.host, ours.port)
    ours.terminate()
    level = ("--metadata-version", "4.3-IV0")
    with kafka_on_export(ours.data_dir, tmp_path / "exported", *level, release="4.3.1") as kafka:
        seen = content.observe(kafka.host, kafka.port)
        assert seen["features"] == expected["features"] | {"metadata.version": 30, "share.version": 1}
        assert_same(expected, seen, but=["features"])
        finish_and_go_on(kafka, filled)
    assert complaints(kafka) == []


@pytest.mark.java
@pytest.mark.more
@pytest.mark.xdist_group("jvm")
@pytest.mark.parametrize(
    ("release", "level"),
    [
        (KAFKA_VERSION, ()),
        pytest.param("4.3.1", ("--metadata-version", "4.3-IV0"), marks=pytest.mark.slow),
    ],
)
def test_eligible_leader_replicas_are_read_by_kafka_and_again_by_our_broker(
    release: str, level: tuple[str, ...], start_broker: StartBroker, tmp_path: Path
):
    """Of three nodes with ``min.insync.replicas=2`` the last one ends: nobody is in sync, and nodes 1 and 2 are eligible."""
    settings = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    with odradek.Broker(nodes=3, topics=["orders:3"], data_dir=tmp_path / "ours", settings=settings) as ours:
        host, port = ours.bootstrap_servers.partition(",")[0].split(":")
        for node_id in (3, 2):
            ours.nodes[node_id].kill()
        eventually(lambda: leading(host, int(port)) == LED_BY_1, "node 2 is eligible")
    source = tmp_path / "ours" / "node-1"
    partitions = metadata_of(source).topics["orders"].partitions
    assert {(each.isr, each.eligible_leader_replicas) for each in partitions} == {((), (1, 2))}
    exported = tmp_path / "exported"
    with kafka_on_export(source, exported, *level, release=release) as kafka:
        eventually(lambda: leading(kafka.host, kafka.port) == LED_BY_1, f"Kafka {release} leads them")
    assert complaints(kafka) == []
    again = start_broker(data_dir=exported)
    assert leading(again.host, again.port) == LED_BY_1


LED_BY_1 = [(1, [1], [2])] * 3


def leading(host: str, port: int) -> list[tuple[int, list[int], list[int]]]:
    """Leader, ISR and eligible leader replicas of each partition of the topic `orders`."""
    with Asked(host, port) as ask:
        asked = {"topics": [{"name": "orders"}], "response_partition_limit": 100, "cursor": None}
        [topic] = ask("describe_topic_partitions", 0, **asked)["topics"]
    rows = sorted(topic["partitions"], key=lambda row: row["partition_index"])
    return [(row["leader_id"], row["isr_nodes"], row["eligible_leader_replicas"]) for row in rows]


def finish_and_go_on(kafka: Oracle | Broker, filled: Filled) -> None:
    """Continue and commit the open transaction of ``filled``, then write as another transactional producer.

    A batch that was sent before the start is recognised as a duplicate.
    """
    bootstrap = f"{kafka.host}:{kafka.port}"
    with Asked(kafka.host, kafka.port) as ask:
        assert ask.produce("idempotent", base64.b64decode(filled.last_batch)) == filled.last_batch_offset
        end = ask.end_offset("flow")
        more = content.continue_batch(filled.open, filled.now_ms)
        version = 12 if filled.open.transaction_version == 2 else 9
        assert ask.produce("flow", more, version=version, transactional_id=content.OPEN_ID) == end
        ask.end_transaction(filled.open, committed=True)
        eventually(lambda: ask.committed("movers", "plain") == 3, "its offset is committed")
    eventually(lambda: content.undecided(kafka.host, kafka.port) == [], "no transaction is open")
    producer = ConfluentProducer(bootstrap, transactional_id="mover")
    producer.init()
    producer.begin()
    producer.send("flow", ["by Kafka"])
    producer.commit()
    producer.close()


@pytest.mark.java
@pytest.mark.more
@pytest.mark.xdist_group("jvm")
@pytest.mark.parametrize("name", [pytest.param("clean", marks=pytest.mark.slow), "killed"])
def test_kafka_reads_its_directory_after_our_broker_used_it(
    name: str, start_broker: StartBroker, tmp_path: Path
):
    """Kafka reads its directory after our broker has written to it and was killed.

    Feature levels and quotas that our broker does not support are preserved.
    """
    home = tmp_path / "kafka"
    home.mkdir()
    written = Written(home, name)
    written.stamp("idempotent-0", time.time_ns() // 1_000_000)
    ours = start_broker(data_dir=written.data)
    with Asked(ours.host, ours.port) as ask:
        ask.produce("name.with-dashes-1", batches.batch([b"ours"], ts=written.filled.now_ms))
    ours.kill()
    with kafka_on_export(written.data, tmp_path / "exported") as kafka:
        seen = content.observe(kafka.host, kafka.port)
        assert_same(written.seen, seen, but=["partitions"])
        changed = "name.with-dashes-1-0"
        expected = written.seen["partitions"]
        assert seen["partitions"].pop(changed)["end"] == expected.pop(changed)["end"] + 1
        assert seen["partitions"] == expected
        finish_and_go_on(kafka, written.filled)


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.xdist_group("jvm")
async def test_a_kafka_whose_voters_are_in_its_log_finds_them_in_our_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Kafka starts on its directory after our controller has written a snapshot of the metadata there.

    Kafka gets the settings with which it created the directory.
    """
    written = Written(tmp_path, "killed")
    monkeypatch.setattr(log_module, "SNAPSHOT_FROM_BYTES", 0)
    monkeypatch.setattr(log_module, "SNAPSHOT_RATIO", 0)
    ours = open_cluster(written.data)
    await ours.leave()
    await ours.close()
    assert len(list((written.data / LOG_DIRECTORY).glob("*.checkpoint"))) == 1
    with started(write_settings(tmp_path, raw.free_port(), {}, standalone=True)) as kafka:
        seen = content.observe(kafka.host, kafka.port)
    assert_same(written.seen, seen)
