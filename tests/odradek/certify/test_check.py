"""``--check``: a user's command that judges the outputs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from pyarrow import parquet

from odradek.certify.judging import check
from odradek.certify.judging.check import ndjson, run_check
from odradek.certify.judging.findings import Kind
from tests.odradek.certify.test_comparison import record
from tests.support.clients import eventually


def test_a_check_reads_the_outputs_and_reports_findings() -> None:
    records = [record("a", "k"), record("b")]
    assert run_check("test $(wc -l) = 2", records) == []
    (finding,) = run_check("grep -c nothing; echo too few; exit 3", records)
    assert finding.kind is Kind.REFUSED
    assert finding.sentence.endswith("ended with exit code 3")
    assert finding.evidence == ("0", "too few")


def test_a_check_that_asks_for_parquet_gets_the_columns_of_sparks_source(tmp_path: Path) -> None:
    records = [record("a", "k", offset=3, timestamp_ms=1_500, headers=(("h", b"\x80"),)), record("b")]
    (finding,) = run_check(f"cp {{parquet}} {tmp_path}/kept; exit 1", records)
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


# -- its arguments and environment -----------------------------------------------------------------------------------

VALUES = {"bootstrap": "127.0.0.1:9092", "data": "/tmp/a b", "run": "reference", "instance": "1 2"}


def test_it_gets_what_the_job_gets() -> None:
    (finding,) = run_check("printf '%s\\n' {data} {run} {bootstrap} {instance} {other}; exit 1", [], VALUES)
    assert finding.evidence == ("/tmp/a b", "reference", "127.0.0.1:9092", "1", "2", "{other}")
    (finding,) = run_check('echo "$ODRADEK_DATA,$ODRADEK_RUN,$KAFKA_BOOTSTRAP_SERVERS"; exit 1', [], VALUES)
    assert finding.evidence == ("/tmp/a b,reference,127.0.0.1:9092",)


def test_it_is_started_where_the_job_is(tmp_path: Path) -> None:
    (finding,) = run_check("pwd; exit 1", [], directory=tmp_path)
    assert finding.evidence == (str(tmp_path),)


def test_the_shells_own_braces_stay() -> None:
    assert run_check("""test "$(echo a b | awk '{print $2}')" = b""", [], VALUES) == []


# -- its output and exit code ----------------------------------------------------------------------------------------


def test_output_lines_of_a_check_may_name_the_findings() -> None:
    lines = "printf 'lost: row 7\\nlost: row 9\\nDuplicated: row 8\\n61 rows\\n'"
    lost, duplicated = run_check(f"{lines}; exit 1", [])
    assert (lost.kind, lost.evidence) == (Kind.LOST, ("row 7", "row 9"))
    assert (duplicated.kind, duplicated.evidence) == (Kind.DUPLICATED, ("row 8",))
    assert run_check(lines, []) == []


def test_not_yet_runs_the_check_again_with_new_records() -> None:
    more = iter([[record("a")], [record("a"), record("b")]])
    assert run_check("test $(wc -l) = 2 || exit 75", [], again=lambda: next(more)) == []
    (finding,) = run_check("echo too few; exit 75", [], again=lambda: next(more, None))
    assert finding.kind is Kind.REFUSED
    assert finding.sentence.endswith("exit code 75 (not yet) until there was no time left")
    assert finding.evidence == ("too few",)


def test_one_that_does_not_end_is_ended_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(check, "TIMEOUT_S", 0.2)
    (finding,) = run_check(f"sleep 600 & echo $! > {tmp_path}/pid; wait", [])
    assert finding.kind is Kind.REFUSED
    assert "did not end within" in finding.sentence
    if (pid := (tmp_path / "pid")).exists():  # on a slow machine the shell may not have started the sleeper
        sleeper = int(pid.read_text() or 0)
        eventually(lambda: not _is_alive(sleeper))


def _is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
