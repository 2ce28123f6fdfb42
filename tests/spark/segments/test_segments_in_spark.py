"""Segment files queried with SQL: the behaviour that only a session can show. The other tests need no session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from protocol import batch as judge
from tests.support.segment_tables import plain, read, recorded, segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
COLUMNS = "topic,partition,offset,timestamp,control,transactional,error"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("clean", tmp_path_factory.mktemp("clean"))


def load(spark: SparkSession, directory: Path, table: str, **options: str) -> DataFrame:
    return spark.read.format("odradek.segments").options(table=table, **options).load(str(directory))


def rows(found: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in found.collect()]


def test_tables_have_the_rows_that_the_reader_gives(spark: SparkSession, directory: Path):
    for table in ("records", "batches", "transaction_state", "offsets"):
        found = load(spark, directory, table)
        assert found.columns == read(directory, table=table).column_names
        assert plain(found.toArrow()) == plain(read(directory, table=table)) != []


def test_filters_reach_the_reader_and_give_what_spark_alone_gives(spark: SparkSession, directory: Path):
    whole = rows(load(spark, directory, "records", columns=COLUMNS))
    middle = sorted(row["timestamp"] for row in whole)[len(whole) // 2]
    cases: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
        (
            "topic = 'flow' AND partition IN (0, 1) AND offset BETWEEN 2 AND 9 AND NOT control",
            lambda row: row["topic"] == "flow" and 2 <= row["offset"] <= 9 and not row["control"],
        ),
        (
            "(topic <> 'segments' AND offset > 3 OR error IS NOT NULL) AND partition = 0",
            lambda row: row["topic"] != "segments" and row["offset"] > 3 and row["partition"] == 0,
        ),
        (
            f"timestamp < '{middle}' AND topic NOT IN ('plain', 'codecs') AND offset % 2 = 1",
            lambda row: (
                row["timestamp"] < middle
                and row["topic"] not in ("plain", "codecs")
                and row["offset"] % 2 == 1
            ),
        ),
    ]
    for condition, meets in cases:
        pushed = load(spark, directory, "records", columns=COLUMNS, pushdown="true").where(condition)
        expected = [row for row in whole if meets(row)]
        assert sorted(rows(pushed), key=str) == sorted(expected, key=str) != [], condition
    plan = pushed._jdf.queryExecution().executedPlan().toString().partition("BatchScan")[0]
    assert ("% 2" in plan, "codecs" in plan) == (True, False)


def test_one_data_frame_serves_many_queries(spark: SparkSession, directory: Path):
    """One data frame serves many queries. With ``pushdown`` it would not: Spark keeps the filters of the first query."""
    records = load(spark, directory, "records", columns=COLUMNS)
    few, all_of_them = records.where("topic = 'flow'").count(), records.count()
    assert 0 < few < all_of_them == len(read(directory, columns="offset"))


def test_a_schema_or_the_option_columns_selects_the_columns(spark: SparkSession, directory: Path):
    by_option = load(spark, directory, "records", columns="topic,offset")
    reader = spark.read.format("odradek.segments").schema("offset long, topic string")
    by_schema = reader.load(str(directory))
    assert (by_option.columns, by_schema.columns) == (["topic", "offset"], ["offset", "topic"])
    assert sorted(rows(by_option), key=str) == sorted(rows(by_schema.select("topic", "offset")), key=str)


def test_damage_is_found_by_a_query(spark: SparkSession, tmp_path: Path):
    good = [judge.build_batch([(1, None, b"v")], base_offset=offset) for offset in range(3)]
    segment(tmp_path / "orders-0", good[0] + good[1][:-3] + b"\0" + good[1][-2:] + good[2] + good[0][:20])
    found = load(spark, tmp_path, "records")
    assert [row["offset"] for row in rows(found.where("error IS NULL"))] == [0, 2]
    errors = rows(found.where("error IS NOT NULL").select("topic", "file", "position", "error"))
    assert [
        (row["topic"], row["position"], row["error"].partition(":")[0].partition(" (")[0]) for row in errors
    ] == [
        ("orders", len(good[0]), "the CRC of the batch does not match its bytes"),
        ("orders", 3 * len(good[0]), "torn tail"),
    ]


def test_the_worked_queries_of_the_page(spark: SparkSession, directory: Path):
    """Each block of SQL in docs/spark/segments.md runs, over views that are defined as on the page."""
    page = (Path(__file__).parents[3] / "docs" / "spark" / "segments.md").read_text("utf-8")
    for table in ("records", "batches", "transaction_state", "offsets"):
        load(spark, directory, table).createOrReplaceTempView(table)
    queries = [part.partition("```")[0] for part in page.split("```sql\n")[1:]]
    assert len(queries) >= 5
    for query in queries:
        assert spark.sql(query).columns
    states = {row["transactional_id"]: row["state"] for row in rows(spark.sql(queries[0]))}
    assert states["mover"] in {"CompleteCommit", "CompleteAbort"}
