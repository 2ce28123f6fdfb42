"""What the plots show, as data for Plotly: names of colours (``@commit``) stand for those of the page's theme.

Names of topics and ids are input from anywhere; Plotly reads a little HTML in texts, so all of them are escaped here.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.printable import printable
from odradek.spark.audit.store import Rows

SERIES_MAX: Final = 6
"""Lines and bars on one plot; what is smaller is left to the table below it."""
NAME_CHARS_MAX: Final = 28

Plot = dict[str, Any]

_TIMES: Final = {"type": "date", "tickangle": 0, "nticks": 5}


def label(name: object) -> str:
    text = printable(str(name))
    if len(text) > NAME_CHARS_MAX:
        text = f"{text[: NAME_CHARS_MAX - 1]}…"
    return html.escape(text)


def plots(tables: Mapping[str, Rows]) -> list[Plot]:
    """Those that have something to show."""
    drawn = (
        transactions(tables["timeline"]),
        commit_latency(tables["commit_latency"]),
        stable_offset_lag(tables["stable_offset_lag"]),
        aborted_bytes(tables["topics"]),
    )
    return [plot for plot in drawn if plot is not None]


def _plot(name: str, title: str, note: str, traces: Sequence[Plot], **layout: Any) -> Plot:
    return {"name": name, "title": title, "note": note, "traces": list(traces), "layout": layout}


def _time(ms: int) -> int:
    """Plotly takes milliseconds since the epoch, in UTC."""
    return ms


def transactions(rows: Rows) -> Plot | None:
    if not rows:
        return None
    traces = []
    for outcome, name in (("commit", "committed"), ("abort", "aborted")):
        points = [row for row in rows if row["outcome"] == outcome]
        if points:
            traces.append(
                {
                    "type": "bar",
                    "name": name,
                    "x": [_time(row["at_ms"]) for row in points],
                    "y": [row["transactions"] for row in points],
                    "marker": {"color": f"@{outcome}"},
                    "hovertemplate": f"%{{y:,}} {name}<extra></extra>",
                }
            )
    note = (
        "Ended transactions by the time of their last marker; one that wrote to many partitions counts once."
    )
    return _plot(
        "transactions",
        "Transactions over time",
        note,
        traces,
        barmode="stack",
        xaxis=_TIMES,
        yaxis={"rangemode": "tozero"},
    )


def commit_latency(rows: Rows) -> Plot | None:
    """Percentiles over all coordinator partitions; each of them is in the table."""
    overall = {row["decision"]: row for row in rows if row["coordinator_partition"] is None}
    spans = (
        ("prepare_to_marker", "decision to<br>last marker"),
        ("start_to_marker", "begin to<br>last marker"),
    )
    if not overall:
        return None
    traces = [
        {
            "type": "bar",
            "name": name,
            "x": [text for _, text in spans],
            "y": [overall[decision][f"{span}_{tail}"] for span, _ in spans],
            "marker": {"color": f"@{decision}{shade}"},
            "hovertemplate": f"{name} %{{y:,}} ms<extra></extra>",
        }
        for decision, ended in (("commit", "commits"), ("abort", "aborts"))
        if decision in overall
        for tail, shade, name in (
            ("p50", "", f"{ended}, median"),
            ("p99", "-soft", f"{ended}, 99 of 100"),
        )
    ]
    return _plot(
        "latency",
        "Commit latency",
        "Milliseconds by the brokers' clocks, until the last partition had its marker.",
        traces,
        barmode="group",
        yaxis={"rangemode": "tozero", "ticksuffix": " ms"},
    )


def stable_offset_lag(rows: Rows) -> Plot | None:
    if not rows:
        return None
    lines: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        lines[row["topic"], row["partition"]].append(row)
    worst = sorted(lines, key=lambda line: -max(row["lag_offsets"] for row in lines[line]))
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": label(f"{topic}-{partition}"),
            "x": [_time(row["at_ms"]) for row in lines[topic, partition]],
            "y": [row["lag_offsets"] for row in lines[topic, partition]],
            "line": {"color": f"@series-{number}", "width": 2},
            "marker": {"size": 5},
            "hovertemplate": f"%{{y:,}} offsets, {label(f'{topic}-{partition}')}<extra></extra>",
        }
        for number, (topic, partition) in enumerate(worst[:SERIES_MAX], 1)
    ]
    note = "How far transactions held back the last stable offset, until their markers came."
    if len(worst) > SERIES_MAX:
        note += f" The {SERIES_MAX} of {len(worst):,} partitions that were held back furthest."
    return _plot(
        "lag",
        "Lag of the last stable offset",
        note,
        traces,
        xaxis=_TIMES,
        yaxis={"rangemode": "tozero"},
    )


def aborted_bytes(rows: Rows) -> Plot | None:
    if not rows:
        return None
    worst = rows[:SERIES_MAX][::-1]  # the first one belongs on top
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": [row[f"{outcome}_bytes"] for row in worst],
            "y": [label(row["topic"]) for row in worst],
            "marker": {"color": f"@{outcome}"},
            "hovertemplate": f"%{{x:,}} bytes {name}<extra></extra>",
        }
        for outcome, name in (("commit", "committed"), ("abort", "aborted"))
    ]
    note = "Bytes of transactional batches by topic; what was aborted was written for nothing."
    if len(rows) > SERIES_MAX:
        note += f" The {SERIES_MAX} of {len(rows):,} topics with the most of it."
    return _plot(
        "bytes",
        "Bytes aborted",
        note,
        traces,
        barmode="stack",
        xaxis={"rangemode": "tozero", "ticksuffix": "B"},
        yaxis={"type": "category", "automargin": True},
    )
