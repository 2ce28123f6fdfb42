"""The plots of the page as SVG: matplotlib draws them, and the page's theme colours them.

Colours are drawn as placeholders and written as CSS variables, so that the browser's light or dark theme applies. Texts are
drawn as shapes of known size, so no font of a browser moves a label beyond the edge.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import matplotlib
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, StrMethodFormatter

from odradek.printable import printable
from odradek.spark.audit.store import Rows

SERIES_MAX: Final = 6
"""Largest number of lines or bars in one plot; the table below the plot contains all values."""
LABEL_COLUMNS: Final = 34
"""Largest number of characters in a line of a label. A longer name continues in the next line."""
_WIDTH_INCHES: Final = 6.4
_HEIGHT_INCHES: Final = 3.6
_INCHES_PER_LINE: Final = 0.17
_MS: Final = 1000
_AROUND_MS: Final = 30_000
_ROLES: Final = (
    "ink",
    "muted",
    "line",
    "commit",
    "abort",
    "commit-soft",
    "abort-soft",
    *(f"series-{number}" for number in range(1, SERIES_MAX + 1)),
)
_PLACEHOLDERS: Final = {role: f"#fe01{number:02x}" for number, role in enumerate(_ROLES)}

Axes = Any


@dataclass(frozen=True)
class Plot:
    """A figure of the page: ``svg`` is markup, all other fields are plain text."""

    name: str
    title: str
    note: str
    svg: str


def label(name: object) -> str:
    """A complete name, broken into lines of at most ``LABEL_COLUMNS`` characters."""
    return "\n".join(textwrap.wrap(printable(str(name)), LABEL_COLUMNS, break_on_hyphens=False)) or "–"


def plots(tables: Mapping[str, Rows]) -> list[Plot]:
    """The plots for which ``tables``, the report's result tables by name, have data."""
    drawn = (
        transactions(tables["timeline"]),
        commit_latency(tables["commit_latency"]),
        stable_offset_lag(tables["stable_offset_lag"]),
        aborted_bytes(tables["topics"]),
    )
    return [plot for plot in drawn if plot is not None]


def transactions(rows: Rows) -> Plot | None:
    if not rows:
        return None

    def draw(axes: Axes) -> None:
        moments = sorted({row["at_ms"] for row in rows})
        gaps = [later - earlier for earlier, later in pairwise(moments)]
        width_days = 0.8 * min(gaps, default=60 * _MS) / (86_400 * _MS)
        below: dict[int, int] = defaultdict(int)
        for outcome, name in (("commit", "committed"), ("abort", "aborted")):
            points = {row["at_ms"]: row["transactions"] for row in rows if row["outcome"] == outcome}
            if points:
                axes.bar(
                    [_moment(ms) for ms in points],
                    list(points.values()),
                    width=width_days,
                    bottom=[below[ms] for ms in points],
                    color=_PLACEHOLDERS[outcome],
                    label=name,
                )
            for ms, count in points.items():
                below[ms] += count
        _times(axes, rows)

    note = (
        "Ended transactions by the time of their last marker; one that wrote to many partitions counts once."
    )
    return _plot("transactions", "Transactions over time", note, draw)


def commit_latency(rows: Rows) -> Plot | None:
    """Plot of the percentiles of the commit latency over all coordinator partitions; None without data.

    A table of the page has the percentiles of each coordinator partition.
    """
    overall = {row["decision"]: row for row in rows if row["coordinator_partition"] is None}
    spans = (
        ("prepare_to_marker", "decision to\nlast marker"),
        ("start_to_marker", "begin to\nlast marker"),
    )
    if not overall:
        return None
    series = [
        (f"{ended}, {name}", f"{decision}{shade}", [overall[decision][f"{span}_{tail}"] for span, _ in spans])
        for decision, ended in (("commit", "commits"), ("abort", "aborts"))
        if decision in overall
        for tail, shade, name in (("p50", "", "median"), ("p99", "-soft", "99th percentile"))
    ]

    def draw(axes: Axes) -> None:
        width = 0.8 / len(series)
        for number, (name, role, values) in enumerate(series):
            places = [place - 0.4 + width * (number + 0.5) for place in range(len(spans))]
            axes.bar(
                places, [value or 0 for value in values], width=width, color=_PLACEHOLDERS[role], label=name
            )
        axes.set_xticks(range(len(spans)), [text for _, text in spans])
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f} ms"))

    note = "Milliseconds by the brokers' clocks, until the last partition had its marker."
    return _plot("latency", "Commit latency", note, draw)


def stable_offset_lag(rows: Rows) -> Plot | None:
    if not rows:
        return None
    lines: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        lines[row["topic"], row["partition"]].append(row)
    worst = sorted(lines, key=lambda line: -max(row["lag_offsets"] for row in lines[line]))
    names = {line: label(f"{line[0]}-{line[1]}") for line in worst[:SERIES_MAX]}

    def draw(axes: Axes) -> None:
        for number, (line, name) in enumerate(names.items(), 1):
            points = lines[line]
            axes.plot(
                [_moment(row["at_ms"]) for row in points],
                [row["lag_offsets"] for row in points],
                color=_PLACEHOLDERS[f"series-{number}"],
                marker="o",
                markersize=3,
                label=name,
            )
        _times(axes, rows)

    note = "How far transactions held back the last stable offset until their markers were written."
    if len(worst) > SERIES_MAX:
        note += f" The {SERIES_MAX} of {len(worst):,} partitions that were held back furthest."
    return _plot("lag", "Lag of the last stable offset", note, draw, lines=_extra_lines(names.values()))


def aborted_bytes(rows: Rows) -> Plot | None:
    if not rows:
        return None
    worst = rows[:SERIES_MAX][::-1]  # matplotlib draws the last one at the top
    names = [label(row["topic"]) for row in worst]

    def draw(axes: Axes) -> None:
        begins = [0] * len(worst)
        for outcome, name in (("commit", "committed"), ("abort", "aborted")):
            values = [row[f"{outcome}_bytes"] for row in worst]
            axes.barh(range(len(worst)), values, left=begins, color=_PLACEHOLDERS[outcome], label=name)
            begins = [begin + value for begin, value in zip(begins, values, strict=True)]
        axes.set_yticks(range(len(worst)), names)
        axes.xaxis.set_major_formatter(EngFormatter(unit="B"))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlim(left=0)

    note = "Bytes of transactional batches by topic and outcome."
    if len(rows) > SERIES_MAX:
        note += f" The {SERIES_MAX} of {len(rows):,} topics with the most aborted bytes."
    return _plot("bytes", "Bytes aborted", note, draw, lines=_extra_lines(names))


def _extra_lines(names: Iterable[str]) -> int:
    return sum(name.count("\n") for name in names)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / _MS, UTC)


def _times(axes: Axes, rows: Rows) -> None:
    first, last = min(row["at_ms"] for row in rows), max(row["at_ms"] for row in rows)
    if first == last:
        # Around a single point in time, matplotlib would show four years.
        axes.set_xlim(_moment(first - _AROUND_MS), _moment(last + _AROUND_MS))
    # Within these bounds there is an interval for each time span; otherwise matplotlib warns and chooses an interval.
    locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylim(bottom=0)


def _plot(name: str, title: str, note: str, draw: Callable[[Axes], None], lines: int = 0) -> Plot:
    """Draw a plot. ``lines`` is the number of additional lines of its labels, for which the figure is made higher."""
    with _style(name):
        figure = Figure((_WIDTH_INCHES, _HEIGHT_INCHES + _INCHES_PER_LINE * lines), layout="constrained")
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="both", color=_PLACEHOLDERS["line"], linewidth=0.6)
        axes.set_axisbelow(True)
        draw(axes)
        handles, names = axes.get_legend_handles_labels()
        if len(names) > 1:
            columns = 2 if max(map(len, names)) > LABEL_COLUMNS // 2 else 4
            figure.legend(handles, names, loc="outside lower left", ncols=columns, frameon=False)
        return Plot(name, title, note, _svg(figure))


@contextmanager
def _style(name: str) -> Iterator[None]:
    muted = _PLACEHOLDERS["muted"]
    settings: dict[Any, Any] = {
        "svg.fonttype": "path",
        "svg.hashsalt": name,  # different plots on the page need different ids
        "text.parse_math": False,
        "font.size": 8.5,
        "text.color": muted,
        "axes.edgecolor": _PLACEHOLDERS["line"],
        "axes.labelcolor": muted,
        "xtick.color": muted,
        "ytick.color": muted,
    }
    with matplotlib.rc_context(settings):
        yield


def _svg(figure: Figure) -> str:
    """The ``svg`` element alone, scaled to the width that the page gives it."""
    written = io.StringIO()
    nothing: Sequence[str] = ("Date", "Creator", "Format", "Type")
    figure.savefig(
        written, format="svg", transparent=True, bbox_inches="tight", metadata=dict.fromkeys(nothing)
    )
    text = written.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(
        r'(<svg\b[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", text)
    )
    for role, placeholder in _PLACEHOLDERS.items():
        text = text.replace(placeholder, f"var(--{role})")
    return text
