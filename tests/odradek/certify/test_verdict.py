"""The verdict on a run, with its evidence."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from pyarrow import parquet

from odradek.certify.check import asked, ndjson
from odradek.certify.comparison import Compare
from odradek.certify.verdict import Ending, Kind, Outputs, Reference, judge
from tests.odradek.certify.test_comparison import record


def outputs(*records: object, written: tuple[object, ...] = (), **more: object) -> Outputs:
    return Outputs(records, written or records, **more)  # type: ignore[arg-type]


def reference(*records: object) -> Reference:
    return Reference(records, Compare.ROWS)  # type: ignore[arg-type]


def test_the_same_outputs_are_right() -> None:
    assert judge(reference(record("a"), record("b")), outputs(record("b"), record("a"))) == []


def test_a_lost_record_is_shown_with_what_became_of_it() -> None:
    aborted = record("b", producer_id=4, producer_epoch=2, is_transactional=True, outcome="aborted", offset=9)
    (finding,) = judge(
        reference(record("a"), record("b")), outputs(record("a"), written=(record("a"), aborted))
    )
    assert finding.kind is Kind.LOST
    assert finding.evidence == ("out: b (out-0 @9, producer 4 epoch 2, aborted)",)


def test_a_doubled_record_is_shown_with_both_places() -> None:
    (finding,) = judge(reference(record("a")), outputs(record("a", offset=1), record("a", offset=5)))
    assert finding.kind is Kind.DUPLICATED
    assert finding.evidence == ("out: a (out-0 @1, no transaction; out-0 @5, no transaction)",)


def test_what_is_missing_in_one_topic_while_another_has_the_key_is_torn() -> None:
    whole = [record("1", "k"), record("j1", "k", topic="journal")]
    (finding,) = judge(reference(*whole), outputs(whole[0]))
    assert finding.kind is Kind.TORN
    assert judge(reference(*whole), outputs())[0].kind is Kind.LOST


def test_a_run_that_came_to_no_end_is_stuck_and_so_are_its_readers() -> None:
    found = judge(
        reference(),
        outputs(ending=Ending.OVERDUE, why_not="no end", open_transactions=("out-0: readers stop",)),
    )
    assert [each.kind for each in found] == [Kind.STUCK, Kind.STUCK]
    assert found[0].sentence == "no end"
    assert found[1].evidence == ("out-0: readers stop",)


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
