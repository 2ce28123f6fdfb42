"""The report as one HTML page that needs nothing but itself: no network, no file beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from odradek.printable import printable_lines
from odradek.spark.audit.findings import ABOUT, KINDS, VIOLATION
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
"""The results that the page is made from."""
TABLE_ROWS_MAX: Final = 50
"""Rows of one table on the page; below it stands how many are left out."""
CELL_CHARS_MAX: Final = 300
PAGE_BYTES_MAX: Final = 1_000_000
"""Tables are cut to half of their rows until the page is no larger."""


@dataclass(frozen=True)
class Check:
    """One kind of finding: its heading, what it means, how many there are, and the first of them."""

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
    """All kinds that were asked for, in order."""
    result = []
    for kind, title in KINDS.items():
        numbers = {severity: count for (name, severity), count in report.counts.items() if name == kind}
        violations = numbers.get(VIOLATION, 0)
        warnings = sum(numbers.values()) - violations
        shown = report.of_kind(kind)[:rows_max]
        result.append(Check(kind, title, ABOUT[kind], violations, warnings, shown))
    return result


def _visible(value: object) -> object:
    """Names with the marks that turn the direction of the text around them are shown with escapes, as on a terminal."""
    return printable_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def render(report: Report) -> str:
    """The page. Everything that comes from files is text in it, never markup; it has at most ``PAGE_BYTES_MAX``."""
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
            not_asked=_not_asked(report),
            limit=rows_max,
            tables=report.tables,
        )
        if len(text.encode()) <= PAGE_BYTES_MAX or rows_max == 1:
            return text
        rows_max //= 2


def _not_asked(report: Report) -> list[str]:
    """Kinds that need an option."""
    return [
        *(["wrong_index", "wrong_max_timestamp"] if not report.figures["deep"] else []),
        *(["duplicate_key"] if not report.figures["keys"] else []),
    ]


def _open_first(report: Report) -> list[Any]:
    """Transactions without an end; hanging ones come first."""
    order = ("hanging", "blamed", "unknown", "ending", "open")
    rows = report.tables["open_transactions"]
    return sorted(rows, key=lambda row: (order.index(row["status"]), -(row["held_bytes"] or 0)))


def _short(text: str) -> str:
    """Ids and error texts may be as long as a client likes; the tables beside the page have all of them."""
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
