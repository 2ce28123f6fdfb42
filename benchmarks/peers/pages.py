"""Generate the tables in README.md and docs/benchmarks.md from the newest complete reports in the history."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.measures import ROWS
from benchmarks.peers.report import history, short_table, table, whole
from benchmarks.targets import ROOT

SHORT: Final = (
    "start",
    "start-control",
    "memory",
    "memory-control",
    "requests-64",
    "requests-1",
    "produce-raw",
    "fetch-raw",
    "transactions-librdkafka-1",
    "transactions-java-16",
    "recovery",
)
Runs = Sequence[Mapping[str, Any]]
OTHER_RUNS: Final = 2
"""Number of reports whose ratios are shown next to those of the main report."""
PAGES: Final = {
    "README.md": lambda runs: short_table(runs[-1], SHORT),
    "docs/benchmarks.md": lambda runs: f"{described(runs)}\n\n{table(runs[-1], runs[:-1])}",
}
MARKED: Final = re.compile(r"(<!-- peers: .*? -->\n).*?(<!-- peers end -->)", re.DOTALL)


def written(page: str, text: str, runs: Runs) -> str:
    """Return the text of a page with a new table between the comments ``peers: ...`` and ``peers end``.

    Raises ``ValueError`` if the page does not have exactly one pair of these comments.
    """
    made, count = MARKED.subn(lambda marks: f"{marks[1]}\n{PAGES[page](runs)}\n\n{marks[2]}", text)
    if count != 1:
        raise ValueError(
            f"{page}: expected one pair of comments <!-- peers: ... --> for the table, not {count}"
        )
    return made


def described(runs: Runs) -> str:
    found = runs[-1]
    told = found["machine"]
    core = told.get("core", "pure Python")
    rounds = [row["rounds"] for row in found["rows"].values()]
    disturbed = sum(row["disturbed"] for row in found["rows"].values())
    others = " and ".join(f"{each['commit'][:10]} ({each['measured_at'][:10]})" for each in runs[:-1])
    return (
        f"Commit {found['commit'][:10]} ({core}), measured on {found['measured_at'][:10]}: {told['cores']} cores"
        f" ({told['cpu']}), {told['memory']}, {told['os']}, Python {told['python']}, confluent-kafka"
        f" {told['confluent-kafka']}. {sum(rounds)} rounds of {len(rounds)} rows, {disturbed} of them disturbed."
        + (f" Other runs: commits {others}." if others else "")
    )


def shown() -> Runs:
    """The newest reports. The report with the most undisturbed rounds is last: pages show the figures of that report, and
    the ratios of all reports.
    """
    reports = history()
    # A new row counts as soon as one report has it.
    known = [name for name in ROWS if any(name in each["rows"] for each in reports)]
    newest = whole(known, reports)[-1 - OTHER_RUNS :]
    return sorted(newest, key=_calm_rounds)


def _calm_rounds(found: Mapping[str, Any]) -> int:
    return sum(row["rounds"] - row["disturbed"] for row in found["rows"].values())


def write(root: Path = ROOT) -> list[str]:
    """Write the pages, and return those that have changed."""
    runs = shown()
    if not runs:
        return []
    changed = []
    for page in PAGES:
        before = (root / page).read_text("utf-8")
        after = written(page, before, runs)
        if after != before:
            (root / page).write_text(after, "utf-8")
            changed.append(page)
    return changed
