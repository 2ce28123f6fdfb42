"""`odradek craft`: logs that a few words describe, and how `odradek dump`, a broker and Kafka's own dump tool read them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import odradek as package
from protocol.batch import RecordBatch, batches
from protocol.messages.fetch import PartitionData
from server.exchange.importing import main as import_
from tests.support.dump import fields
from tests.support.javaprog import java_clients
from tests.tools.conftest import Run, invoke, objects
from tools import crafting
from tools.client import fetching
from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.fetching import Reader
from tools.client.offsets import LATEST, READ_COMMITTED
from tools.crafting import Word, words
from tools.old_messages import OldMessage, build_message

READABLE = "plain 1, commit 2, abort 1, gap 3, empty 2, control, open 1, plain 1"


def crafted(spec: str) -> list[crafting.Crafted]:
    return list(crafting.batches(words(spec), 1_000))


def test_words_are_read_with_their_numbers() -> None:
    assert words(" commit 2,abort 1 , gap,") == [Word("commit", 2), Word("abort", 1), Word("gap", 1)]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "the description is empty"),
        ("commit 2, comit 1", "unknown word: 'comit 1' \\(known: plain, commit, abort, open, gap"),
        ("commit two", "unknown word: 'commit two'"),
        ("gap 0", "'gap 0': expected a number from 1 to 10000"),
        ("gap 10001", "'gap 10001': expected a number from 1 to 10000"),
    ],
)
def test_an_unknown_word_is_refused(spec: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        words(spec)


def test_each_word_occupies_its_offsets() -> None:
    found = crafted(f"{READABLE}, old-format 2, bad-crc 1")
    assert [(each.word.name, each.first_offset, each.last_offset) for each in found] == [
        ("plain", 0, 0),
        ("commit", 1, 3),
        ("abort", 4, 5),
        ("gap", 6, 8),
        ("empty", 9, 10),
        ("control", 11, 11),
        ("open", 12, 12),
        ("plain", 13, 13),
        ("old-format", 14, 15),
        ("bad-crc", 16, 16),
    ]


def test_each_transaction_has_a_producer_of_its_own() -> None:
    data = b"".join(each.data for each in crafted("commit 1, open 1, commit 1"))
    assert [each.producer_id for each in batches(data)] == [1000, 1000, 1001, 1002, 1002]


def test_a_batch_with_a_wrong_crc_is_otherwise_valid() -> None:
    (made,) = crafted("bad-crc 2")
    batch = RecordBatch.parse(made.data)
    assert not batch.has_valid_crc()
    assert [each.value for each in batch.records()] == [b"bad-crc-0", b"bad-crc-1"]


def test_an_old_message_can_be_parsed() -> None:
    data = memoryview(build_message(5, 1_000, b"value"))
    message = OldMessage.parse(data, 0)
    assert message is not None
    assert (message.offset, message.magic, message.crc_valid, message.timestamp) == (5, 1, True, 1_000)
    assert (message.key, message.value, message.size) == (None, b"value", len(data))
    damaged = bytearray(data)
    damaged[-1] ^= 1
    found = OldMessage.parse(memoryview(damaged), 0)
    assert found is not None
    assert not found.crc_valid
    assert all(OldMessage.parse(data[:length], 0) is None for length in range(len(data)))
    assert OldMessage.parse(memoryview(crafted("plain 1")[0].data), 0) is None


@pytest.fixture
def craft(tmp_path: Path) -> Callable[[str], Path]:
    def craft(spec: str) -> Path:
        done = invoke("", "craft", "orders/0", spec, "--out", str(tmp_path), "--json")
        assert done.exit_code == 0, done.output
        return Path(json.loads(done.stdout)["directory"])

    return craft


def dumped(folder: Path, *, code: int = 0) -> list[dict[str, Any]]:
    done = invoke("", "dump", "-r", str(folder), "--json")
    assert done.exit_code == code
    return objects(done.stdout)


@pytest.mark.more
def test_a_broker_serves_a_crafted_log(craft: Callable[[str], Path], tmp_path: Path, run: Run) -> None:
    folder = craft(READABLE)
    assert {each.suffix for each in folder.iterdir()} >= {
        ".log",
        ".index",
        ".timeindex",
        ".txnindex",
        ".snapshot",
    }
    data_dir = tmp_path / "look"
    assert import_(["--data-dir", str(data_dir), str(folder)]) == 0
    with package.Broker(data_dir=data_dir) as broker:
        where = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
        assert [each["value"] for each in objects(run("consume", "orders", "--json", **where))] == [
            "plain-0",
            "commit-0",
            "commit-1",
        ]
        seen = objects(run("consume", "orders", "-u", "--json", **where))
        assert [(each["offset"], each["outcome"]) for each in seen] == [
            (0, None),
            (1, "committed"),
            (2, "committed"),
            (3, "COMMIT"),
            (4, "aborted"),
            (5, "ABORT"),
            (11, "control"),
            (12, "open"),
            (13, None),
        ]
        (hung,) = json.loads(run("txn", "find-hanging", "--json", **where))["hanging"]
        assert (hung["start_offset"], hung["transactional_id"]) == (12, None)


@pytest.mark.more
def test_a_broker_serves_a_wrong_crc(craft: Callable[[str], Path], tmp_path: Path) -> None:
    folder, data_dir = craft("plain 1, bad-crc 1, plain 1"), tmp_path / "look"
    assert import_(["--data-dir", str(data_dir), str(tmp_path / "sound" / folder.name)]) == 0
    for log in folder.glob("*.log"):
        shutil.copy(log, data_dir / folder.name)
    with package.Broker(data_dir=data_dir) as broker:
        done = invoke(broker.bootstrap_servers, "consume", "orders", "--format", "%v\\n")
    assert (done.exit_code, done.stdout) == (1, "plain-0\n")
    assert (
        "orders-0 cannot be read from offset 1 on: the CRC of the batch at offset 1 is wrong" in done.stderr
    )


def test_a_log_that_no_broker_accepts_can_be_dumped(craft: Callable[[str], Path]) -> None:
    folder = craft("old-format 2, plain 1, bad-crc 1")
    batches = [each for each in dumped(folder, code=1) if "base_offset" in each]
    assert [(each.get("format"), each["base_offset"], each["crc_valid"]) for each in batches] == [
        (1, 0, True),
        (1, 1, True),
        (None, 2, True),
        (None, 3, False),
    ]
    line = invoke("", "dump", "-r", str(folder)).stdout.splitlines()[0]
    assert line.startswith("0-0  a message of format 1  at 0, 46 bytes  ")
    assert line.endswith("  key=null  value=old-format-0")


def test_a_directory_with_files_is_refused(craft: Callable[[str], Path], tmp_path: Path) -> None:
    folder = craft("plain 1")
    done = invoke("", "craft", "orders/0", "plain 1", "--out", str(tmp_path))
    assert (done.exit_code, done.stderr) == (1, f"Error: {folder} is not empty\n")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "plain 1, bad-crc 1",
            "orders-0 cannot be read from offset 1 on: the CRC of the batch at offset 1 is wrong",
        ),
        (
            "plain 1, old-format 1",
            "orders-0 cannot be read from offset 1 on: magic 1 is not a record format that is kept here",
        ),
    ],
)
def test_a_reader_names_the_batch_that_it_cannot_read(
    monkeypatch: pytest.MonkeyPatch, spec: str, message: str
) -> None:
    data = b"".join(each.data for each in crafted(spec))
    monkeypatch.setattr(fetching, "list_offset", lambda *asked: 2 if LATEST in asked else 0)
    monkeypatch.setattr(
        Reader, "_fetch", lambda *asked: PartitionData(records=data, last_stable_offset=2, high_watermark=2)
    )
    with Cluster("localhost:1") as cluster:
        reader, found = Reader(cluster, "orders", 0, READ_COMMITTED), []
        with pytest.raises(ToolError) as error:
            found += [seen.record.value for seen in reader.read()]
    assert str(error.value) == message


@pytest.mark.java
@pytest.mark.xdist_group("jvm")
def test_kafka_dump_log_reads_the_same(craft: Callable[[str], Path]) -> None:
    folder = craft(f"old-format 2, {READABLE}")
    ran = java_clients().tool(
        "org.apache.kafka.tools.DumpLogSegments", "--files", str(next(folder.glob("*.log")))
    )
    assert ran.status == 0, ran.err
    # A message of format 1 has one offset.
    lines = [line for line in ran.out.splitlines() if line.startswith(("baseOffset", "offset: "))]
    theirs = [{"isTransactional": "false", "isControl": "false", **fields(line)} for line in lines]
    ours = [each for each in dumped(folder) if "base_offset" in each]
    assert [
        (
            each.get("baseOffset", each.get("offset")),
            each.get("lastOffset", each.get("offset")),
            each["position"],
            each["magic"],
            each["isvalid"],
            each["isTransactional"],
            each["isControl"],
        )
        for each in theirs
    ] == [
        (
            str(each["base_offset"]),
            str(each["last_offset"]),
            str(each["position"]),
            str(each.get("format", 2)),
            str(each["crc_valid"]).lower(),
            str(each.get("transactional", False)).lower(),
            str(each.get("control", False)).lower(),
        )
        for each in ours
    ]
