"""The files that a path selects, the tasks that read them, and segments that a running broker changes meanwhile."""

from __future__ import annotations

import datetime
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import datasource as spark

from odradek.spark.segments import Segments, filters, finding, options, planning, where
from odradek.spark.segments.source import Task
from protocol import batch as judge
from tests.support.segment_tables import plain, read, segment

TEN = datetime.datetime(2026, 11, 21, 10, tzinfo=datetime.UTC)


def batch(base_offset: int, count: int = 1, **more: Any) -> bytes:
    return judge.build_batch([(base_offset, None, b"v")] * count, base_offset=base_offset, **more)


def topics(directory: Path | str, **options: Any) -> set[tuple[str, str, int]]:
    rows = plain(read(Path(directory), table="batches", **options))
    return {(Path(row["log_dir"]).name, row["topic"], row["partition"]) for row in rows}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory of three nodes, with every kind of file and directory that a data directory can have."""
    root = tmp_path / "data"
    for node in ("node-1", "node-2", "node-3"):
        home = root / node
        for name in ("orders-0", "name-with-dashes-1-12", "__consumer_offsets-3", "__cluster_metadata-0"):
            segment(home / name, batch(0))
        (home / "meta.properties").write_text("version=1\n")
        for aside in ("delete", "future", "stray"):
            segment(home / f"orders-1.{'ab' * 16}-{aside}", batch(0))
        for suffix in (".deleted", ".cleaned", ".swap"):
            (home / "orders-0" / f"{7:020d}.log{suffix}").write_bytes(batch(7))
        (home / "orders-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
        (home / "empty-0").mkdir()
    return root


def test_a_data_directory_of_several_nodes(data: Path):
    assert topics(data) == {
        (f"node-{node}", topic, number)
        for node in (1, 2, 3)
        for topic, number in (("orders", 0), ("name-with-dashes-1", 12))
    }


def test_one_log_directory_one_partition_and_several_by_commas(data: Path):
    assert topics(data / "node-2") == {("node-2", "orders", 0), ("node-2", "name-with-dashes-1", 12)}
    assert topics(data / "node-1" / "orders-0") == {("node-1", "orders", 0)}
    both = f"{data / 'node-1' / 'orders-0'}, file://{data / 'node-3'}"
    assert topics(both) == {
        ("node-1", "orders", 0),
        ("node-3", "orders", 0),
        ("node-3", "name-with-dashes-1", 12),
    }
    twice = f"{data},{data / 'node-1'},{data / 'node-1' / 'orders-0'}"
    assert len(read(Path(twice), table="batches")) == 6


def test_a_topic_called_node_is_a_topic(tmp_path: Path):
    segment(tmp_path / "node-1", batch(0))
    assert topics(tmp_path) == {(tmp_path.name, "node", 1)}


def test_a_directory_with_a_comma_in_its_name(tmp_path: Path):
    segment(tmp_path / "a,b" / "orders-0", batch(0))
    assert topics(tmp_path / "a,b") == {("a,b", "orders", 0)}


def test_internal_topics_have_to_be_asked_for(data: Path):
    named = topics(data / "node-1", topics="__consumer_offsets, orders")
    assert named == {("node-1", "__consumer_offsets", 3), ("node-1", "orders", 0)}
    assert topics(data / "node-1" / "__cluster_metadata-0") == {("node-1", "__cluster_metadata", 0)}
    filters = [spark.EqualTo(("topic",), "__consumer_offsets")]
    with pytest.raises(options.BadOption, match="is an internal topic and only read if it is named"):
        read(data, filters, table="batches")
    assert len(read(data, filters, table="batches", topics="__consumer_offsets")) == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "/nowhere-at-all"}, "is not a directory"),
        ({}, "No directory is given"),
        ({"path": "{data}/node-1/empty-0"}, "is neither a partition's directory nor one that contains"),
        ({"path": "{data}", "tabel": "x"}, "odradek.segments has no option tabel; it has batch.bytes.max, "),
        ({"path": "{data}", "table": "x"}, "There is no table x; there are records, batches"),
        ({"path": "{data}", "columns": "offset,ofset"}, "Table records has no column ofset"),
        ({"path": "{data}", "check.crcs": "perhaps"}, "Option check.crcs must be true or false"),
        ({"path": "{data}", "split.bytes": "0"}, "Option split.bytes must be a whole number from 1"),
    ],
)
def test_wrong_options_are_refused_with_a_sentence(data: Path, given: dict[str, str], said: str):
    asked = {name: value.format(data=data) for name, value in given.items()}
    with pytest.raises((options.BadOption, finding.NoSuchDirectory), match=said):
        Segments(asked).reader(Segments(asked).schema()).partitions()


# ---- tasks


def tasks(path: Path, filters: list[spark.Filter] | None = None, **given: str) -> list[Task]:
    options = {name.replace("_", "."): text for name, text in given.items()}
    source = Segments({"path": str(path), "pushdown": "true", **options})
    reader = source.reader(source.schema())
    assert list(reader.pushFilters(filters or [])) == []
    return [pickle.loads(pickle.dumps(task)) for task in reader.partitions()]


def test_many_small_segments_are_few_tasks(tmp_path: Path):
    for base_offset in range(300):
        segment(tmp_path / "orders-0", batch(base_offset), base_offset=base_offset)
    made = tasks(tmp_path, partitions_min="4")
    assert sum(len(task.pieces) for task in made) == 300
    assert len(made) <= 300 * (planning.OPEN_COST_BYTES + 100) // (4 << 20) + 1


def write_index(log: Path, entries: list[tuple[int, int]]) -> None:
    base_offset = int(log.stem)
    rows = [(offset - base_offset, position) for offset, position in entries] + [(0, 0)] * 5
    np.array(rows, ">i4").tofile(log.with_suffix(".index"))


@pytest.mark.parametrize("index", ["right", "wrong", "none"])
def test_a_large_segment_is_cut_between_batches(tmp_path: Path, index: str):
    batches = [judge.build_batch([(1, None, bytes(60_000))] * 2, base_offset=100 + 2 * i) for i in range(120)]
    log = segment(tmp_path / "orders-0", b"".join(batches), base_offset=100)
    size = len(batches[0])
    if index != "none":
        shift = 0 if index == "right" else 7
        write_index(log, [(101 + 2 * i, i * size + shift) for i in range(1, 120)])
    made = tasks(tmp_path, split_bytes=str(5 << 20), partitions_min="1")
    pieces = [piece for task in made for piece in task.pieces]
    assert len(made) == len(pieces) == 3
    assert [piece.end for piece in pieces] == [pieces[1].start, pieces[2].start, len(batches) * size]
    for number in (1, 2):
        assert pieces[number].start % size == 0
        assert abs(pieces[number].start - number * (5 << 20)) <= size
        first = 100 + 2 * (pieces[number].start // size)
        assert pieces[number].first_offset == pieces[number - 1].end_offset == first
    rows = plain(read(tmp_path, table="batches", split_bytes=str(5 << 20), partitions_min="1"))
    assert [row["base_offset"] for row in rows] == [100 + 2 * i for i in range(120)]


def test_filters_on_offsets_and_places_choose_segments_by_their_names(data: Path):
    orders = data / "node-1" / "orders-0"
    for base_offset in (10, 20, 30):
        segment(orders, batch(base_offset, 5), base_offset=base_offset)

    def chosen(*filters: spark.Filter, **given: str) -> list[str]:
        made = tasks(orders, list(filters), **given)
        return [piece.segment.file[18:20] for task in made for piece in task.pieces]

    assert chosen() == ["00", "10", "20", "30"]
    assert chosen(spark.GreaterThanOrEqual(("offset",), 20)) == ["20", "30"]
    assert chosen(spark.GreaterThan(("offset",), 19)) == ["20", "30"]
    assert chosen(spark.LessThan(("offset",), 20)) == ["00", "10"]
    assert chosen(spark.In(("offset",), (12, 35))) == ["10", "30"]
    assert chosen(spark.EqualTo(("last_offset",), 24), table="batches") == ["20"]
    assert chosen(spark.EqualTo(("partition",), 1)) == []
    assert chosen(spark.Not(spark.EqualTo(("topic",), "orders"))) == []
    assert tasks(data, [spark.EqualTo(("topic",), "unknown")])[0].pieces == []


@pytest.mark.parametrize(
    "filter_",
    [
        spark.EqualTo(("value",), b"v"),
        spark.IsNull(("offset",)),
        spark.EqualTo(("offset",), "7"),
        spark.EqualTo(("offset",), None),
        spark.EqualTo(("offset",), True),
        spark.In(("offset",), (7, None)),
        spark.StringStartsWith(("topic",), "ord"),
        spark.EqualTo(("headers", "key"), "x"),
        spark.Not(spark.EqualNullSafe(("control",), True)),
        spark.Not(spark.Not(spark.EqualTo(("offset",), 7))),
        spark.EqualTo(("error",), "x"),
    ],
)
def test_filters_that_cannot_be_applied_exactly_are_returned_to_spark(data: Path, filter_: spark.Filter):
    source = Segments({"path": str(data), "pushdown": "true"})
    reader = source.reader(source.schema())
    known = spark.EqualTo(("partition",), 0)
    assert list(reader.pushFilters([known, filter_])) == [filter_]


def test_a_reader_accepts_no_filters_without_the_option_pushdown(data: Path):
    """Without the option pushdown a reader accepts no filters.

    Spark keeps the filters that one query pushed for all later queries on the same DataFrame.
    """
    source = Segments({"path": str(data)})
    reader = source.reader(source.schema())
    assert type(reader).pushFilters is spark.DataSourceReader.pushFilters


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("offset >= 3 AND offset < 9", [spark.GreaterThanOrEqual(("offset",), 3), spark.LessThan(("offset",), 9)]),
        ("Offset between -1 and 7", [spark.GreaterThanOrEqual(("offset",), -1), spark.LessThanOrEqual(("offset",), 7)]),
        ("topic IN ('it''s', 'b')", [spark.In(("topic",), ("it's", "b"))]),
        ("topic not in ('a')", [spark.Not(spark.In(("topic",), ("a",)))]),
        ("partition<>4", [spark.Not(spark.EqualTo(("partition",), 4))]),
        ("NOT partition != 4", [spark.EqualTo(("partition",), 4)]),
        ("control", [spark.EqualTo(("control",), True)]),
        ("NOT control AND transactional = true", [
            spark.Not(spark.EqualTo(("control",), True)),
            spark.EqualTo(("transactional",), True),
        ]),
        ("offset IS NOT NULL", [spark.IsNotNull(("offset",))]),
        ("timestamp > '2026-11-21 10:00:00'", [spark.GreaterThan(("timestamp",), TEN)]),
        ("timestamp <= TIMESTAMP '2026-11-21T12:00:00+02:00'", [spark.LessThanOrEqual(("timestamp",), TEN)]),
    ],
)  # fmt: skip
def test_the_option_filter_means_what_sql_does(text: str, meant: list[spark.Filter]):
    assert where.conditions("records", text) == filters.take("records", meant)[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "offset",
        "offset >",
        "ofset = 1",
        "offset = 1 OR offset = 2",
        "offset = 'x'",
        "topic = 1",
        "offset = 1 AND",
        "value = 'x'",
        "offset IN (1",
        "timestamp > 'noon'",
        "offset = 1.5",
        "NOT offset BETWEEN 1 AND 2",
        "; DROP",
    ],
)
def test_an_unsupported_filter_is_refused(text: str):
    with pytest.raises(options.BadOption, match="Option filter "):
        where.conditions("records", text)


def test_the_option_filter_chooses_rows(data: Path):
    whole = plain(read(data))
    few = plain(read(data, filter="topic = 'orders' AND NOT control AND offset < 5"))
    assert (
        few
        == [row for row in whole if row["topic"] == "orders" and not row["control"] and row["offset"] < 5]
        != []
    )
    both = plain(read(data, [spark.EqualTo(("log_dir",), str(data / "node-2"))], filter="topic = 'orders'"))
    assert [(row["topic"], row["log_dir"]) for row in both] == [("orders", str(data / "node-2"))]


# ---- while a broker is running


def rows_after(directory: Path, change: Any, **given: str) -> list[int]:
    """The offsets that are read when ``change`` runs between planning and reading."""
    source = Segments({"path": str(directory), **given})
    reader = source.reader(source.schema())
    planned = reader.partitions()
    change()
    batches: list[Any] = [made for task in planned for made in reader.read(task)]
    found = [row for made in batches for row in made.to_pylist()]
    assert [row["error"] for row in found if row["error"]] == []
    return sorted(row["offset"] for row in found)


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    for base_offset in (0, 10, 20):
        data = b"".join(batch(base_offset + i) for i in range(10))
        segment(tmp_path / "orders-0", data, base_offset=base_offset)
    return tmp_path / "orders-0"


def test_segments_that_vanish_are_no_error(busy: Path):
    assert rows_after(busy, (busy / f"{0:020d}.log").unlink) == list(range(10, 30))


def test_segments_that_compaction_merged_are_read_once(busy: Path):
    def compact() -> None:
        kept = b"".join(batch(offset) for offset in (3, 8, 11, 19))
        (busy / "new").write_bytes(kept)
        (busy / f"{10:020d}.log").unlink()
        (busy / "new").rename(busy / f"{0:020d}.log")

    assert rows_after(busy, compact) == [3, 8, 11, 19, *range(20, 30)]


def test_a_segment_that_grows_is_read_to_the_end_of_a_batch(busy: Path):
    log = busy / f"{20:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:-20])
    assert rows_after(busy, lambda: log.write_bytes(whole + batch(30))) == list(range(30))


def test_a_segment_that_is_cut_by_its_broker_has_fewer_rows(busy: Path):
    log = busy / f"{20:020d}.log"
    assert rows_after(busy, lambda: os.truncate(log, len(batch(20)) * 4)) == list(range(24))
