"""Defects planted in segments that a broker wrote are each found at their place, and nothing else is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from odradek import Broker
from odradek.commands.audit import audit as command
from odradek.spark.audit import Report, audit
from tests.spark.audit import planting
from tests.spark.audit.planting import DEFECTS, Place, Segment
from tests.support.by_hand import ProducerByHand
from tests.support.segment_tables import recorded

pytestmark = [pytest.mark.spark, pytest.mark.more]

LOST_PREPARE = "lost_prepare"
TOPICS = (*DEFECTS, LOST_PREPARE)
SETTINGS = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}


def write(bootstrap: str, topic: str) -> None:
    """Write three committed transactions, each with three batches in two partitions and with offsets, and an aborted one."""
    host, _, port = bootstrap.partition(":")
    producer = ProducerByHand(host, int(port), f"id-{topic}", new=True).init()
    for number in range(3):
        for part in range(3):
            for partition in (0, 1):
                name = f"{number}/{part}/{partition}"
                assert producer.send(topic, [f"{name}/a", f"{name}/b"], partition) == 0
        assert producer.send_offsets(f"group-{topic}", {("input", 0): number}) == 0
        assert producer.end(committed=True) == 0
    assert producer.send(topic, ["never"], 2) == 0
    assert producer.end(committed=False) == 0


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("written") / "data"
    with Broker(topics={**dict.fromkeys(TOPICS, 3), "input": 1}, settings=SETTINGS, data_dir=data) as broker:
        for topic in TOPICS:
            write(broker.bootstrap_servers, topic)
    return data


@pytest.fixture(scope="module")
def planted(written: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Place]]:
    data = tmp_path_factory.mktemp("planted") / "data"
    shutil.copytree(written, data)
    places = [place for name, plant in DEFECTS.items() for place in plant(Segment(data / f"{name}-1"))]
    places.append(planting.lose_prepare(data, f"id-{LOST_PREPARE}"))
    return data, places


@pytest.fixture(scope="module")
def found(
    spark: Any, planted: tuple[Path, list[Place]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, list[dict[str, Any]]]:
    out = tmp_path_factory.mktemp("report")
    keys = ["--unique", "duplicate=cast(value as string)"]
    arguments = [str(planted[0]), "--out", str(out), "--deep", *keys]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    return result, pq.read_table(out / "findings").to_pylist()


def places_in(rows: list[dict[str, Any]]) -> list[Place]:
    names = ("name", "topic", "partition", "offset", "position")
    return [Place(*(row[name] for name in names)) for row in rows]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_planted_defect_is_found_where_it_is(
    found: Any, planted: tuple[Path, list[Place]], topic: str
) -> None:
    def of(places: list[Place]) -> set[Place]:
        internal = {"illegal_transition"} if topic == LOST_PREPARE else set()
        return {place for place in places if place.topic == topic or place.name in internal}

    expected = of(planted[1])
    assert expected
    assert of(places_in(found[1])) == expected


def test_nothing_else_is_found(found: Any, planted: tuple[Path, list[Place]]) -> None:
    assert sorted(places_in(found[1]), key=repr) == sorted(planted[1], key=repr)


def test_a_broken_rule_is_the_exit_code(found: Any, planted: tuple[Path, list[Place]]) -> None:
    result: Result = found[0]
    assert result.exit_code == 1
    assert f"Failed: {len(planted[1])} violations: " in result.output
    assert f"and {len(planted[1]) - 10} more" in result.output


def clean(spark: Any, data: Path, out: Path) -> Report:
    report = audit(spark, data, out, deep=True)
    assert report.findings == []
    assert pq.read_table(out / "findings").num_rows == 0
    assert report.exit_code == 0
    return report


# A directory of ours without a finding: `make more` has that of tests/spark/pipeline/test_pipeline_run.py.
@pytest.mark.slow
def test_the_directory_that_was_copied_is_clean(spark: Any, written: Path, tmp_path: Path) -> None:
    report = clean(spark, written, tmp_path)
    assert report.figures["committed_transactions"] == len(TOPICS) * 3
    assert report.figures["aborted_transactions"] == len(TOPICS)
    assert report.figures["open_transactions"] == 0
    together = report.tables["offsets_in_transactions"]
    assert len(together) == len(TOPICS) * 3
    assert all(row["agrees"] and row["output_partitions"] == 2 for row in together)
    assert not report.live


@pytest.mark.parametrize("name", [pytest.param("clean", marks=pytest.mark.slow), "killed"])
def test_what_apache_kafka_wrote_is_clean(spark: Any, name: str, tmp_path: Path) -> None:
    """Directories of Apache Kafka have no findings: both transaction versions, compaction, retention, an open transaction.

    One directory is of a stopped Kafka, the other of a killed one.
    """
    report = clean(spark, recorded(name, tmp_path / "data"), tmp_path / "out")
    assert {row["status"] for row in report.tables["open_transactions"]} == {"open"}
