"""Render the report as one HTML page that loads no other file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from odradek.printable import printable_lines
from odradek.spark.audit.findings import ABOUT, NAMES, VIOLATION
from odradek.spark.audit.plots import plots
from odradek.spark.audit.report import Finding, Report

TABLES: Final = (
    "outcomes",
    "topics",
    "empty_markers",
    "timeline",
    "stable_offset_lag",
    "commit_latency",
    "open_transactions",
    "offsets_in_transactions",
)
"""The result tables that the page shows."""
TABLE_ROWS_MAX: Final = 50
"""Largest number of rows of a table on the page; a line below the table shows how many rows were left out."""
CELL_CHARS_MAX: Final = 300
PAGE_BYTES_MAX: Final = 1_000_000
"""Largest size of the page, in bytes. The row limit of its tables is halved until the page is small enough."""


@dataclass(frozen=True)
class Check:
    """The findings of one name: heading, explanation, numbers, and the first findings."""

    name: str
    title: str
    about: str
    violations: int
    warnings: int
    shown: Sequence[Finding]

    @property
    def count(self) -> int:
        return self.violations + self.warnings

    @property
    def left_out(self) -> int:
        return self.count - len(self.shown)


def checks(report: Report, rows_max: int = TABLE_ROWS_MAX) -> list[Check]:
    """The findings by name, in the order of the report; names without findings are included."""
    result = []
    for name, title in NAMES.items():
        numbers = {severity: count for (each, severity), count in report.counts.items() if each == name}
        violations = numbers.get(VIOLATION, 0)
        warnings = sum(numbers.values()) - violations
        shown = report.of_kind(name)[:rows_max]
        result.append(Check(name, title, ABOUT[name], violations, warnings, shown))
    return result


def _visible(value: object) -> object:
    """Escape control characters, and characters that change the direction of text, as the output for terminals does."""
    return printable_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def render(report: Report) -> str:
    """Render the page. Text from the audited files is escaped. The page has at most ``PAGE_BYTES_MAX`` bytes,
    unless it is larger even with one row per table.
    """
    environment = Environment(
        loader=PackageLoader("odradek.spark.audit", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters.update(
        number=_number, bytes=_bytes, moment=_moment, share=_share, ms=_ms, short=_short
    )
    template = environment.get_template("report.html.j2")
    drawn = plots(report.tables)  # type: ignore[arg-type]
    rows_max = TABLE_ROWS_MAX
    while True:
        text = template.render(
            report=report,
            figures=report.figures,
            checks=checks(report, rows_max),
            plots=drawn,
            open_ones=_open_first(report),
            not_checked=_not_checked(report),
            limit=rows_max,
            tables=report.tables,
        )
        if len(text.encode()) <= PAGE_BYTES_MAX or rows_max == 1:
            return text
        rows_max //= 2


def _not_checked(report: Report) -> list[str]:
    """Names of findings whose rules were not checked, because they need ``deep`` or business keys."""
    return [
        *(["wrong_index", "wrong_max_timestamp"] if not report.figures["deep"] else []),
        *(["duplicated_key"] if not report.figures["keys"] else []),
    ]


def _open_first(report: Report) -> list[Any]:
    """Rows for transactions without a marker; hanging transactions come first."""
    order = ("hanging", "blamed", "unknown", "ending", "open")
    rows = report.tables["open_transactions"]
    return sorted(rows, key=lambda row: (order.index(row["status"]), -(row["held_bytes"] or 0)))


def _short(text: str) -> str:
    """Cut a long text: ids and error messages may have any length. The Parquet tables contain the complete text."""
    return text if len(text) <= CELL_CHARS_MAX else f"{text[:CELL_CHARS_MAX]}… ({len(text):,} characters)"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"


def _bytes(value: float | None) -> str:
    if value is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def _moment(ms: int | None) -> str:
    if ms is None:
        return "–"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(ms)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _ms(value: int | None) -> str:
    return "–" if value is None else f"{value:,} ms"
