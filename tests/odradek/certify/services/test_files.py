"""Outputs in files: which files count, and the rows of each format."""

from __future__ import annotations

import datetime
import gzip
import json
from decimal import Decimal
from pathlib import Path

import pytest

from odradek.certify.services.files import Files, check_pattern, committed, unreadable
from odradek.certify.services.specs import ServiceOutput
from odradek.errors import OdradekError

SPARK = "part-00000-5b1a2c3d-1111-2222-3333-444455556666-c000"


def write(path: Path, content: str | bytes = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def rows(data: Path, pattern: str) -> list[tuple[object, object]]:
    output = ServiceOutput("", pattern)
    files = Files([output])
    files.begin(data)
    found = files.records(output)
    assert [(each.topic, each.partition, each.offset) for each in found] == [
        (f"files:{pattern}", -1, number) for number in range(len(found))
    ]
    return [(each.key, json.loads(str(each.value))) for each in found]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.ndjson", '{"id": 1, "n": 1.50}\n\n{"n": 2}\n', [("1", {"id": 1, "n": 1.5}), ("2", {"n": 2})]),
        ("a.jsonl", '{"id": 1}\n{"id": 2', [("1", {"id": 1})]),
        ("a.jsonl", '{"id{"id": 2}\n{"id": 3}', [('{"id{"id": 2}', '{"id{"id": 2}'), ("3", {"id": 3})]),
        ("a.json", '[{"id": 1},\n {"id": 2}]\n', [("1", {"id": 1}), ("2", {"id": 2})]),
        ("a.json", '[1, 2]\n[3, 4]\n', [("[1, 2]", [1, 2]), ("[3, 4]", [3, 4])]),
        ("a.csv", 'id,word\n1,"a ""b"",\nc"\n2', [("1", {"id": "1", "word": 'a "b",\nc'})]),
        ("a.csv", "id,word\n1,a,b\n2,c", [('["1", "a", "b"]', ["1", "a", "b"]), ("2", {"id": "2", "word": "c"})]),
        ("a.csv", "", []),
        ("a.txt", "one\ntwo", [("one", "one"), ("two", "two")]),
    ],
)  # fmt: skip
def test_the_rows_of_a_file(name: str, content: str, expected: list[object], tmp_path: Path):
    write(tmp_path / "out" / name, content)
    assert rows(tmp_path, f"out/{name}") == expected
    write(tmp_path / "packed" / f"{name}.gz", gzip.compress(content.encode()))
    assert rows(tmp_path, "packed/*") == expected


def test_the_rows_of_parquet_files_have_the_columns_that_are_directories(tmp_path: Path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table(
        {
            "id": [1],
            "amount": [Decimal("1.50")],
            "at": [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)],
            "raw": [b"\x01"],
            "list": [[1.0, None]],
        }
    )
    for folder in ("day=2026-01-01", "day=a%2Fb", "day=__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / "out" / folder).mkdir(parents=True)
        parquet.write_table(table, tmp_path / "out" / folder / "part-0.parquet")
    found = rows(tmp_path, "{data}/out/**/*.parquet")
    assert [value["day"] for _, value in found] == ["2026-01-01", None, "a/b"]  # type: ignore[index]
    assert found[0] == (
        "1",
        {
            "id": 1,
            "amount": 1.5,
            "at": "2026-01-01T00:00:00+00:00",
            "raw": "0x01",
            "list": [1, None],
            "day": "2026-01-01",
        },
    )


def test_a_file_that_no_reader_can_read_is_a_row_with_the_reason(tmp_path: Path):
    pytest.importorskip("pyarrow")
    write(tmp_path / "a.parquet", "PAR1 half")
    write(tmp_path / "b.csv.gz", gzip.compress(b"id\n1\n")[:-4])
    for pattern, said in (
        ("*.parquet", "a.parquet: Parquet magic bytes not found in footer."),
        ("*.gz", "b.csv.gz: Compressed file ended before the end-of-stream marker was reached"),
    ):
        output = ServiceOutput("", pattern)
        files = Files([output])
        files.begin(tmp_path)
        [record] = files.records(output)
        assert unreadable(record).startswith(said)
        assert record.key is None
    write(tmp_path / "c.txt", "a row")
    assert [unreadable(each) for each in files.records(ServiceOutput("", "c.txt"))] == [""]


def names(data: Path, pattern: str) -> list[str]:
    return [str(each.relative_to(data)) for each in committed(data, pattern)]


def test_files_being_written_do_not_count(tmp_path: Path):
    for name in (
        "out/a.csv",
        "out/_temporary/0/b.csv",
        "out/.c.csv",
        "out/_d",
        "out/a.csv.crc",
        "out/b.csv.tmp",
        "out/_x=1/c.csv",
        "_mine/d.csv",
    ):
        write(tmp_path / name)
    assert names(tmp_path, "out") == ["out/_x=1/c.csv", "out/a.csv"]
    assert names(tmp_path, "out/**/*.csv") == ["out/_x=1/c.csv", "out/a.csv"]
    assert names(tmp_path, "_mine/*") == ["_mine/d.csv"]
    assert names(tmp_path, "nothing/*") == []


def test_a_directory_that_the_job_removes_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(tmp_path / "out" / "a.csv")
    removed, look = iter([True]), Path.is_dir

    def is_dir(path: Path) -> bool:
        if next(removed, False):
            raise FileNotFoundError(path)
        return look(path)

    monkeypatch.setattr(Path, "is_dir", is_dir)
    assert names(tmp_path, "out") == ["out/a.csv"]
    assert next(removed, None) is None


def test_the_files_of_a_job_of_spark_count_with_its_success(tmp_path: Path):
    write(tmp_path / "out" / "day=1" / f"{SPARK}.snappy.parquet")
    write(tmp_path / "out" / "part-0.parquet")
    assert names(tmp_path, "out") == ["out/part-0.parquet"]
    write(tmp_path / "out" / "_SUCCESS")
    assert names(tmp_path, "out/**/*.parquet") == [f"out/day=1/{SPARK}.snappy.parquet", "out/part-0.parquet"]


def log(*names: str, action: str = "add") -> str:
    entries = (json.dumps({"path": f"file:///elsewhere/out/{each}", "action": action}) for each in names)
    return "\n".join(["v1", *entries])


def test_the_files_of_a_streaming_query_of_spark_count_by_the_log_of_its_sink(tmp_path: Path):
    for number in range(5):
        write(tmp_path / "out" / f"{number} .json")
    (folder := tmp_path / "out" / "_spark_metadata").mkdir()
    assert names(tmp_path, "out") == []
    write(folder / "0", log("0%20.json"))
    write(folder / ".1.tmp", log("4%20.json"))
    assert names(tmp_path, "out") == ["out/0 .json"]
    write(folder / "1", log("1%20.json", "3%20.json"))
    write(folder / "2.compact", log("1%20.json", "2%20.json"))  # 0 is expired
    write(folder / "3", log("1%20.json", action="delete"))
    assert names(tmp_path, "out/*.json") == ["out/2 .json"]


def test_a_change_of_the_files_is_counted_once(tmp_path: Path):
    files = Files([ServiceOutput("", "out/*.txt")])
    files.begin(tmp_path)
    assert (files.changes, files.are_there) == (0, False)
    write(tmp_path / "out" / "a.txt", "1")
    assert (files.changes, files.changes, files.are_there) == (1, 1, True)
    write(tmp_path / "out" / "a.txt", "12")
    write(tmp_path / "out" / "_b.txt", "12")
    assert files.changes == 2
    files.begin(tmp_path / "next")
    assert (files.changes, files.are_there) == (2, False)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("/tmp/out/*.csv", "expected files below the run's directory, {data}"),
        ("out/../../x.csv", "expected files below the run's directory, {data}"),
        ("out/*.orc", "unknown format .orc: expected one of .parquet, .csv, .ndjson, .jsonl, .json, .txt"),
        ("out/a.xml.gz", "unknown format .xml"),
    ],
)
def test_a_pattern_of_no_output_is_refused(pattern: str, said: str):
    with pytest.raises(ValueError, match=f"^files:.*: {said}"):
        check_pattern(pattern)


def test_a_file_of_an_unknown_format_or_table_is_named(tmp_path: Path):
    write(tmp_path / "out" / "a.orc")
    with pytest.raises(OdradekError, match=r"^files:out/a.orc: unknown format .orc"):
        rows(tmp_path, "out/*")
    write(tmp_path / "lake" / "_delta_log" / "0.json")
    write(tmp_path / "lake" / "a.parquet")
    with pytest.raises(OdradekError, match="lake is a Delta table, whose log is not read"):
        rows(tmp_path, "lake/*")
