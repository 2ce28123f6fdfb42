"""The page of the audit, rendered without Spark from a report that the tests define."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from odradek.spark.audit import page, plots
from odradek.spark.audit.findings import ABOUT, NAMES
from odradek.spark.audit.report import Counts, Finding, Report

DOCS = Path(__file__).resolve().parents[3] / "docs" / "spark" / "audit.md"
AT_123 = " | grep -A 5 ' position: 123 '"
HOSTILE = "</script><script>alert(1)</script><b>&\"'"
FIGURES = {
    "log_dirs": 1,
    "topics": 2,
    "keys": 0,
    "deep": False,
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
# Its page has no plots, which take most of the time of a page.
EMPTY_TABLES: dict[str, list[dict[str, Any]]] = {name: [] for name in page.TABLES}


def tables(name: str = "orders") -> dict[str, list[dict[str, Any]]]:
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
        counts[each.name, each.severity] = count or counts.get((each.name, each.severity), 0) + 1
    values = {"data_dir": "data", "live": False, "tables": EMPTY_TABLES, **changes}
    return Report(counts=counts, findings=findings, figures=FIGURES, **values)


def test_the_verdict_comes_first_in_a_plain_sentence() -> None:
    clean, broken = report(), report([finding()])
    assert clean.verdict == "Clean: 10 batches in 2 partitions and 5 transactions break no rule."
    assert broken.verdict == "Failed: 1 violation: mixed outcomes (1)."
    assert clean.exit_code == 0
    assert broken.exit_code == 1
    for each in (clean, broken):
        text = page.render(each)
        assert text.index(each.verdict) < text.index("<h2>Rules</h2>")


def test_what_comes_from_files_is_text_and_never_markup() -> None:
    text = page.render(report([finding(HOSTILE)], data_dir=HOSTILE, tables=tables(HOSTILE)))
    assert "alert(1)</script>" not in text
    assert html.escape(HOSTILE, quote=False)[:30] in text.replace("&#34;", '"').replace("&#39;", "'")
    assert "<script" not in text


def test_plots_are_drawn_and_coloured_by_the_theme() -> None:
    drawn = {plot.name: plot.svg for plot in plots.plots(tables())}
    assert list(drawn) == ["transactions", "latency", "lag", "bytes"]
    for svg in drawn.values():
        assert svg.startswith("<svg")
        assert "var(--muted)" in svg
        assert "fe01" not in svg
    assert "var(--commit)" in drawn["transactions"]


def test_no_label_is_cut_off() -> None:
    """The lines of a label together are the complete name, whatever its characters; all shapes are in the figure."""
    for name in (
        "orders",
        "x" * 249,
        "payments-with-a-rather-long-name.and-many_parts.of-it.v2-3",
        "a\x1b[31m",
    ):
        lines = plots.label(name).split("\n")
        assert max(map(len, lines)) <= plots.LABEL_COLUMNS
        assert "".join(lines) == name.replace("\x1b", "\\x1b")
    for plot in plots.plots(tables("x" * 249)):
        left, top, width, height = map(float, re.findall(r'viewBox="([^"]+)"', plot.svg)[0].split())
        placed = re.findall(r"translate\(([-\d.]+) ([-\d.]+)\) scale", plot.svg)
        assert placed
        assert all(left <= float(x) <= left + width and top <= float(y) <= top + height for x, y in placed)


def test_a_page_of_the_worst_directory_stays_small() -> None:
    """The page stays small although every name has thousands of findings, with ids as long as Kafka allows."""
    topic, long = "y" * 249, "&" * 32_000
    found = [
        Finding(kind, "violation", "/data", topic, 0, 7, f"{7:020d}.log", 123, 1, 0, long, long)
        for kind in NAMES
        for _ in range(200)
    ]
    text = page.render(report(found, 100_000, tables=tables("y" * 249)))
    assert len(text.encode()) <= page.PAGE_BYTES_MAX
    assert all(f'id="{kind}"' in text for kind in NAMES)
    assert "more are in the table" in text


@pytest.mark.parametrize(
    ("kind", "topic", "file", "command"),
    [
        (
            "mixed_outcome",
            "orders",
            "0.log",
            f"kafka-dump-log.sh --deep-iteration --files /d/orders-0/0.log{AT_123}",
        ),
        (
            "illegal_transition",
            "__transaction_state",
            "0.log",
            f"kafka-dump-log.sh --transaction-log-decoder --files /d/__transaction_state-0/0.log{AT_123}",
        ),
        ("damage", "orders", "0.log", "xxd -s 123 -l 128 /d/orders-0/0.log"),
        ("wrong_index", "orders", "0.txnindex", "kafka-dump-log.sh --files /d/orders-0/0.txnindex"),
        ("lost_partition", "orders", None, None),
    ],
)
def test_each_finding_says_what_shows_its_bytes(
    kind: str, topic: str, file: str | None, command: str | None
) -> None:
    found = Finding(kind, "violation", "/d", topic, 0, 7, file, 123, 1, 0, None, "")
    assert found.command == command
    if command is not None:
        assert str(escape(command)) in page.render(report([found]))


def test_no_name_turns_the_direction_of_the_text_around_it() -> None:
    name = "a\u202eb\x1bc\0d"
    text = page.render(report([finding(name)], data_dir=name, tables=tables(name)))
    assert r"a\u202eb\x1bc\x00d" in text
    assert not {"\u202e", "\x1b", "\0"} & set(text)


def test_the_page_needs_nothing_but_itself() -> None:
    text = page.render(report([finding()], tables=tables()))
    assert not re.findall(r'<(?:script|img|link|iframe)[^>]+(?:src|href)="', text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize(("count", "left_out"), [(60, 10), (None, 0)])
def test_a_long_table_ends_and_says_how_much_is_left_out(count: int | None, left_out: int) -> None:
    found = [finding() for _ in range(60 if count else 3)]
    text = page.render(report(found, count))
    assert (f"{left_out} more are in the table" in text) == bool(left_out)
    assert text.count("the detail of orders") == (50 if count else 3)


def test_a_directory_without_transactions_has_a_page_without_plots() -> None:
    text = page.render(report())
    assert "<svg" not in text
    assert "every transaction in these files has a marker" in text


def test_hanging_transactions_stand_first() -> None:
    text = page.render(report(tables=tables()))
    assert text.index('<span class="tag bad">hanging') < text.index('<span class="tag ">open')


def test_a_live_directory_says_so() -> None:
    assert "the audit shows one moment" in page.render(report(live=True))
    assert "the audit shows one moment" not in page.render(report())


def test_every_kind_of_finding_has_a_heading_a_sentence_and_a_place_in_the_docs() -> None:
    assert list(NAMES) == list(ABOUT)
    documented = DOCS.read_text("utf-8")
    assert [kind for kind in NAMES if f"`{kind}`" not in documented] == []
    assert [table for table in page.TABLES if f"`{table}`" not in documented] == []


def test_the_names_before_0_2_0_are_accepted() -> None:
    """The earlier names of findings are accepted; they are deprecated since 0.2.0 and removed in 0.3.0."""
    found = finding(kind="duplicated_sequence")
    assert (found.name, found.kind) == ("duplicated_sequence", "duplicate_sequence")
    assert (finding().name, finding().kind) == ("mixed_outcome", "mixed_outcome")
    counted = report([found, found])
    assert counted.of_kind("duplicate_sequence") == counted.of_kind("duplicated_sequence") == [found, found]
    counts = Counts({("lost_offsets", "violation"): 2})
    assert counts["missing_offsets", "violation"] == counts["lost_offsets", "violation"] == 2
    with pytest.raises(KeyError):
        counts["mixed_outcome", "violation"]
