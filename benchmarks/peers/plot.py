"""A picture of each row's ratio to Apache Kafka over the measured commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.measures import ROWS
from benchmarks.peers.report import HISTORY, OURS, Report
from benchmarks.peers.rounds import BASE

PICTURE: Final = HISTORY / "ratios.svg"
ACROSS: Final = 4
LINES: Final = {
    "kfake": ("kfake", "#b0803a"),
    "kfake-disk": ("kfake", "#b0803a"),
    "mock": ("librdkafka's mock", "#5b8f6b"),
    "null": ("null broker", "#999999"),
    **dict.fromkeys(OURS, ("Odradek", "#3f51b5")),
}


def draw(reports: Sequence[Report], file: Path = PICTURE) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    # Keep text as text, and make the file reproducible.
    matplotlib.rcParams |= {
        "svg.fonttype": "none",
        "svg.hashsalt": "ratios",
        "font.size": 8,
        "font.sans-serif": ["DejaVu Sans", "sans-serif"],
    }
    down = -(-len(ROWS) // ACROSS)
    figure, panels = pyplot.subplots(down, ACROSS, figsize=(3.4 * ACROSS, 2.1 * down), squeeze=False)
    commits = [report["commit"][:7] for report in reports]
    for panel, name in zip(panels.flat, ROWS, strict=False):
        draw_row(panel, name, reports)
        panel.set_xticks(range(len(commits)), commits, rotation=90 if len(commits) > 4 else 0)
        panel.set_xlim(-0.5, max(len(commits) - 0.5, 0.5))
    for panel in panels.flat[len(ROWS) :]:
        panel.set_axis_off()
    named = legend(panels)
    figure.suptitle("Times as good as Apache Kafka; bars from the worst round to the best", y=0.995)
    figure.legend(named.values(), named.keys(), loc="upper center", bbox_to_anchor=(0.5, 0.985), ncols=4)
    figure.tight_layout(rect=(0, 0, 1, 0.96))
    figure.savefig(file, metadata={"Date": None, "Creator": None}, facecolor="white")
    pyplot.close(figure)


def legend(panels: Any) -> dict[str, Any]:
    """One legend entry for each broker, from all panels."""
    named: dict[str, Any] = {}
    for panel in panels.flat:
        handles, labels = panel.get_legend_handles_labels()
        named |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in named}
    return named


def draw_row(panel: Any, name: str, reports: Sequence[Report]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    panel.axhline(1, color="#cc4444", linewidth=0.8)
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_locator(NullLocator())
    panel.set_title(ROWS[name].title, fontsize=8)
    panel.grid(axis="y", linewidth=0.3)
    for target, (label, color) in LINES.items():
        points = [
            (index, *spread(row, target))
            for index, report in enumerate(reports)
            if (row := report["rows"].get(name)) and target in row["ratios"]
        ]
        if points:
            at, middle, below, above = zip(*points, strict=True)
            bars = (below, above) if target in OURS else None
            panel.errorbar(
                at, middle, bars, label=label, color=color, marker=".", linewidth=1, elinewidth=0.6
            )


def spread(row: Mapping[str, Any], target: str) -> tuple[float, float, float]:
    """The target's ratio to Kafka, with the lengths of its error bars.

    Returns the ratio of the medians, the length down to the ratio of the worst round, and up to that of the best round.
    """
    figure, middle = row["figures"][target], row["ratios"][target]
    base = row["figures"][BASE]["median"]
    ends = [figure["least"] / base, figure["most"] / base]
    if not row["higher_is_better"]:
        ends = [base / figure["most"], base / max(figure["least"], 1e-9)]
    return middle, max(middle - ends[0], 0), max(ends[1] - middle, 0)
