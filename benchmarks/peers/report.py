"""The figures of a run as JSON, their history, and tables in Markdown."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks import machine
from benchmarks.kept import text_of
from benchmarks.peers.rounds import BASE, Result
from benchmarks.targets import ROOT

BROKER: Final = ("broker", "lab", "protocol", "server", "storage", "benchmarks/peers", "benchmarks/load")
"""The paths on which figures depend. The report records whether the files have changed since the commit."""
HISTORY: Final = ROOT / "benchmarks" / "history"
OURS: Final = ("odradek", "odradek-control")
KAFKA: Final = "Apache Kafka"
FIRST_KAFKA: Final = "4.3.1"
"""The release of Apache Kafka in reports that do not name one."""
# No row has both control and plain brokers, nor both kfakes: the kfake that is killed has a directory.
COLUMNS: Final = {
    "Odradek": OURS,
    KAFKA: (BASE,),
    "kfake": ("kfake", "kfake-disk"),
    "librdkafka's mock": ("mock",),
    "null broker": ("null",),
}
Report = dict[str, Any]


def commit() -> Report:
    """The commit that is measured. Call it before a run: a run takes long, and the checkout may change."""
    return {
        "commit": git("rev-parse", "HEAD"),
        "committed_at": git("show", "--no-patch", "--format=%cI", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--", *BROKER)),
    }


def report(measured: Report, results: Sequence[Result], *, quick: bool) -> Report:
    return measured | {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "machine": machine.describe(),
        "kafka": kafka_version(),
        "rows": {result.row.name: result.report() for result in results},
    }


def kafka_version() -> str:
    from tests.support.java import KAFKA_VERSION

    return KAFKA_VERSION


def kafka_of(found: Mapping[str, Any]) -> str:
    """The name of Apache Kafka with the release that a report has measured."""
    return f"{KAFKA} {found.get('kafka', FIRST_KAFKA)}"


def git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return ran.stdout.strip()


# -- the history ----------------------------------------------------------------------------------------------------


def keep(found: Report, folder: Path = HISTORY) -> Path:
    """Save a report, one file per commit. Rows that an earlier run measured and this one did not are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{found['committed_at'][:10]}-{found['commit'][:10]}.json"
    rows = json.loads(file.read_text("utf-8"))["rows"] if file.exists() else {}
    file.write_text(text_of(found | {"rows": rows | found["rows"]}), "utf-8")
    return file


def history(folder: Path = HISTORY) -> list[Report]:
    """The reports of all commits, oldest commit first."""
    found: list[Report] = [json.loads(file.read_text("utf-8")) for file in folder.glob("*.json")]
    return sorted(found, key=lambda each: datetime.fromisoformat(each["committed_at"]))


def whole(names: Sequence[str], reports: Sequence[Report]) -> list[Report]:
    """The reports that have all of these rows."""
    return [each for each in reports if set(names) <= set(each["rows"])]


# -- tables ---------------------------------------------------------------------------------------------------------


def table(found: Mapping[str, Any], other_runs: Sequence[Mapping[str, Any]] = ()) -> str:
    """All rows with the figures of each broker, and the ratios of other runs."""
    rows = found["rows"]
    columns = [
        name for name, targets in COLUMNS.items() if any(figure_of(row, targets) for row in rows.values())
    ]
    ratio_columns = ["ratio", "other runs"] if other_runs else ["ratio"]
    titles = [kafka_of(found) if name == KAFKA else name for name in columns]
    lines = [
        f"| | {' | '.join([*titles, *ratio_columns])} | broker's CPU, Odradek and Kafka | others |",
        f"| --- |{' ---: |' * (len(columns) + len(ratio_columns) + 2)}",
    ]
    for name, row in rows.items():
        cells = [cell(figure_of(row, COLUMNS[each])) for each in columns]
        ratios = [ratio(row)]
        if other_runs:
            ratios.append(", ".join(ratio(each["rows"][name]) for each in other_runs))
        others = max((each["others"] for each in row["figures"].values()), default=0)
        lines.append(
            f"| {row['title']}, {row['unit']} | {' | '.join([*cells, *ratios])} | {cpu(row)}"
            f" | {others:.2f}{' *' if is_disturbed(row) else ''} |"
        )
    return "\n".join(lines)


def short_table(found: Mapping[str, Any], names: Sequence[str]) -> str:
    """Some rows with the figures of Odradek and Apache Kafka only."""
    lines = [f"| | Odradek | {kafka_of(found)} | ratio |", "| --- | ---: | ---: | ---: |"]
    for name in names:
        if name not in found["rows"]:  # a row that is newer than the report
            continue
        row = found["rows"][name]
        ours, theirs = (figure_of(row, each) for each in (OURS, (BASE,)))
        unit, mark = row["unit"], " *" if is_disturbed(row) else ""
        lines.append(
            f"| {row['title']} | {amount(ours, unit)} | {amount(theirs, unit)} | {ratio(row)}{mark} |"
        )
    return "\n".join(lines)


def is_disturbed(row: Mapping[str, Any]) -> bool:
    """Whether fewer than two rounds of the row were undisturbed.

    The figure is then that of all rounds, and only an order of magnitude.
    """
    return bool(row["rounds"] - row["disturbed"] < 2)


def figure_of(row: Mapping[str, Any], targets: Sequence[str]) -> Mapping[str, Any] | None:
    return next((row["figures"][name] for name in targets if name in row["figures"]), None)


def cell(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return ""
    return f"**{number(figure['median'])}** ({number(figure['least'])} to {number(figure['most'])})"


def amount(figure: Mapping[str, Any] | None, unit: str) -> str:
    return f"{number(figure['median'])} {unit}" if figure else ""


def ratio(row: Mapping[str, Any]) -> str:
    return next((number(row["ratios"][name]) for name in OURS if name in row["ratios"]), "")


def cpu(row: Mapping[str, Any]) -> str:
    both = [(figure_of(row, each) or {}).get("cpu") for each in (OURS, (BASE,))]
    if not row["cpu_unit"] or all(each is None for each in both):
        return ""
    return f"{' / '.join('-' if each is None else number(each) for each in both)} {row['cpu_unit']}"


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
