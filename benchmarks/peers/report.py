"""The figures of a run as JSON, and as a table in Markdown."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from benchmarks import machine
from benchmarks.peers.rounds import BASE, Result
from benchmarks.targets import ROOT

COLUMNS: Final = {
    "odradek": "Odradek",
    "kafka": "Apache Kafka 4.3.1",
    "kfake": "kfake",
    "kfake-disk": "kfake on disk",
    "mock": "librdkafka's mock",
    "null": "null broker",
}


def report(results: Sequence[Result], *, quick: bool) -> dict[str, Any]:
    return {
        "commit": git("rev-parse", "HEAD"),
        "committed_at": git("show", "--no-patch", "--format=%cI", "HEAD"),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "machine": machine.describe(),
        "rows": {result.row.name: result.report() for result in results},
    }


def git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return ran.stdout.strip()


def table(found: Mapping[str, Any]) -> str:
    rows = found["rows"]
    columns = [name for name in COLUMNS if any(name in row["figures"] for row in rows.values())]
    lines = [
        f"| | {' | '.join(COLUMNS[name] for name in columns)} | Odradek to Kafka | broker CPU, ours and Kafka's | others |",
        f"| --- |{' --- |' * (len(columns) + 3)}",
    ]
    for row in rows.values():
        figures = row["figures"]
        cells = [cell(figures[name]) if name in figures else "" for name in columns]
        ratio = row["ratios"].get("odradek")
        ours, theirs = (figures.get(name, {}) for name in ("odradek", BASE))
        cpu = " / ".join(number(each["cpu"]) for each in (ours, theirs) if "cpu" in each)
        others = max(each["others"] for each in figures.values())
        mark = " *disturbed*" if row["disturbed"] > row["rounds"] - 2 and row["rounds"] > 1 else ""
        lines.append(
            f"| {row['title']}, {row['unit']} | {' | '.join(cells)} | {number(ratio) if ratio else ''}"
            f" | {cpu} | {others:.2f}{mark} |"
        )
    return "\n".join(lines)


def cell(figure: Mapping[str, Any]) -> str:
    return f"**{number(figure['median'])}** ({number(figure['least'])} to {number(figure['most'])})"


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
