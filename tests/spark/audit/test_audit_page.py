"""The page, made of a report that is written down by hand; without Spark."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from odradek.spark.audit import page
from odradek.spark.audit.findings import ABOUT, KINDS
from odradek.spark.audit.report import Finding, Report

DOCS = Path(__file__).resolve().parents[3] / "docs" / "spark" / "audit.md"
HOSTILE = "</script><script>alert(1)</script><b>&\"'"
FIGURES = {
    "log_dirs": 1,
    "topics": 2,
    "keys": 0,
    "to_ms": 1_790_000_000_000,
    "committed_transactions": 3,
    "aborted_transactions": 1,
    "open_transactions": 1,
    "committed_bytes": 3000,
    "aborted_bytes": 1000,
    "open_bytes": 0,
    "transactions": 5,
    "records": 1_234_567,
    "batches": 10,
    "partitions": 2,
    "replicas": 2,
}


def tables(name: str = "orders") -> dict[str, list[Mapping[str, Any]]]:
    latency = {
        f"{span}_{tail}": 5
        for span in ("prepare_to_marker", "start_to_marker", "first_batch_to_marker")
        for tail in ("p50", "p95", "p99", "max")
    }
    outcome = {
        f"{kind}_{what}": 1 for kind in ("commit", "abort", "open") for what in ("transactions", "bytes")
    }
    return {
        "outcomes": [{"transactional_id": name, "topic": name, "aborted_share": 0.25, **outcome}],
        "topics": [{"topic": name, "commit_bytes": 3000, "abort_bytes": 1000, "open_bytes": 0}],
        "empty_markers": [{"topic": name, "partition": 0, "markers": 2}],
        "timeline": [{"at_ms": 1, "outcome": "commit", "transactions": 3}],
        "stable_offset_lag": [{"topic": name, "partition": 0, "at_ms": 1, "lag_offsets": 4}],
        "commit_latency": [
            {"decision": "commit", "coordinator_partition": None, "transactions": 3, **latency}
        ],
        "open_transactions": [open_one(name, "open"), open_one(name, "hanging")],
        "offsets_in_transactions": [{"agrees": True}],
    }


def open_one(name: str, status: str) -> dict[str, Any]:
    return {
        "status": status,
        "topic": name,
        "partition": 0,
        "first_offset": 7,
        "transactional_id": name,
        "producer_id": 1,
        "producer_epoch": 0,
        "first_ms": 1,
        "start_ms": None,
        "held_offsets": 3,
        "held_bytes": 300,
    }


def finding(name: str = "orders", kind: str = "mixed_outcome") -> Finding:
    return Finding(kind, "violation", name, name, 0, 7, "0.log", 123, 1, 0, name, f"the detail of {name}")


def report(findings: list[Finding] | None = None, count: int | None = None, **changes: Any) -> Report:
    findings = findings or []
    counts: dict[tuple[str, str], int] = {}
    for each in findings:
        counts[each.kind, each.severity] = count or counts.get((each.kind, each.severity), 0) + 1
    values = {"data_dir": "data", "live": False, "tables": tables(), **changes}
    return Report(counts=counts, findings=findings, figures=FIGURES, **values)


def test_the_verdict_comes_first_in_a_plain_sentence() -> None:
    clean, broken = report(), report([finding()])
    assert (
        clean.verdict == "Nothing is broken: 10 batches in 2 partitions and 5 transactions keep every rule."
    )
    assert broken.verdict == "Broken in 1 place: mixed outcomes (1)."
    assert clean.exit_code == 0
    assert broken.exit_code == 1
    for each in (clean, broken):
        text = page.render(each)
        assert text.index(each.verdict) < text.index("What was asked")


def test_what_comes_from_files_is_text_and_never_markup() -> None:
    text = page.render(report([finding(HOSTILE)], data_dir=HOSTILE, tables=tables(HOSTILE)))
    assert "alert(1)</script>" not in text
    # As it stands in tables; Plotly reads markup, so there it is escaped once more.
    assert html.escape(HOSTILE, quote=False)[:30] in text.replace("&#34;", '"').replace("&#39;", "'")
    (data,) = re.findall(r'<script type="application/json" id="plot-data">(.*?)</script>', text, re.DOTALL)
    names = [trace["name"] for plot in json.loads(data) for trace in plot["traces"]]
    assert not any("<" in name for name in names)


def test_no_name_turns_the_direction_of_the_text_around_it() -> None:
    name = "a\u202eb\x1bc\0d"
    text = page.render(report([finding(name)], data_dir=name, tables=tables(name)))
    assert r"a\u202eb\x1bc\x00d" in text
    assert not {"\u202e", "\x1b", "\0"} & set(text)


def test_the_page_needs_nothing_but_itself() -> None:
    text = page.render(report([finding()]))
    assert not re.findall(r'<(?:script|img|link|iframe)[^>]+(?:src|href)="', text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize(("count", "left_out"), [(60, 10), (None, 0)])
def test_a_long_table_ends_and_says_how_much_is_left_out(count: int | None, left_out: int) -> None:
    found = [finding() for _ in range(60 if count else 3)]
    text = page.render(report(found, count))
    assert (f"{left_out} more are in the table" in text) == bool(left_out)
    assert text.count("the detail of orders") == (50 if count else 3)


def test_a_directory_without_transactions_has_a_page_without_plots() -> None:
    text = page.render(report(tables={name: [] for name in page.TABLES}))
    assert "Plotly" not in text
    assert "every transaction in these files has its end" in text


def test_hanging_transactions_stand_first() -> None:
    text = page.render(report())
    assert text.index('<span class="tag bad">hanging') < text.index('<span class="tag ">open')


def test_a_live_directory_says_so() -> None:
    assert "the view of a moment" in page.render(report(live=True))
    assert "the view of a moment" not in page.render(report())


def test_every_kind_of_finding_has_a_heading_a_sentence_and_a_place_in_the_docs() -> None:
    assert list(KINDS) == list(ABOUT)
    documented = DOCS.read_text("utf-8")
    assert [kind for kind in KINDS if f"`{kind}`" not in documented] == []
    assert [table for table in page.TABLES if f"`{table}`" not in documented] == []
