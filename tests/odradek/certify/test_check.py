"""What a user's own command says of the outputs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from pyarrow import parquet

from odradek.certify.check import asked, ndjson
from odradek.certify.verdict import Kind
from tests.odradek.certify.test_comparison import record


def test_a_check_of_the_users_reads_the_outputs_and_says_what_it_thinks() -> None:
    records = [record("a", "k"), record("b")]
    assert asked("test $(wc -l) = 2", records) == []
    (finding,) = asked("grep -c nothing; echo too few; exit 3", records)
    assert finding.kind is Kind.REFUSED
    assert finding.sentence.endswith("ended with exit code 3")
    assert finding.evidence == ("0", "too few")


def test_a_check_that_asks_for_parquet_gets_the_columns_of_sparks_source(tmp_path: Path) -> None:
    records = [record("a", "k", offset=3, timestamp_ms=1_500, headers=(("h", b"\x80"),)), record("b")]
    (finding,) = asked(f"cp {{parquet}} {tmp_path}/kept; exit 1", records)
    assert finding.sentence.startswith("cp {parquet} ")
    assert parquet.read_table(tmp_path / "kept").to_pylist() == [
        {
            "key": b"k",
            "value": b"a",
            "topic": "out",
            "partition": 0,
            "offset": 3,
            "timestamp": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
            "headers": [{"key": "h", "value": b"\x80"}],
        },
        {
            "key": None,
            "value": b"b",
            "topic": "out",
            "partition": 0,
            "offset": 0,
            "timestamp": datetime(1970, 1, 1, tzinfo=UTC),
            "headers": [],
        },
    ]


def test_records_become_lines_of_json() -> None:
    assert json.loads(ndjson([record("v", "k", offset=4)])) == {
        "topic": "out",
        "partition": 0,
        "offset": 4,
        "timestamp_ms": 0,
        "key": "k",
        "value": "v",
        "headers": [],
    }
