"""The tables in README.md and docs/benchmarks.md, between marks, as the newest whole report in the history has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.measures import ROWS
from benchmarks.peers.report import history, newest, short_table, table
from benchmarks.targets import ROOT

SHORT: Final = (
    "start",
    "memory",
    "requests-64",
    "requests-1",
    "produce-raw",
    "fetch-raw",
    "transactions-librdkafka-1",
    "transactions-java-16",
    "recovery",
)
PAGES: Final = {
    "README.md": lambda found: short_table(found, SHORT),
    "docs/benchmarks.md": lambda found: f"{described(found)}\n\n{table(found)}",
}
MARKED: Final = re.compile(r"(<!-- peers: .*? -->\n).*?(<!-- peers end -->)", re.DOTALL)


def written(page: str, text: str, found: Mapping[str, Any]) -> str:
    """The text of a page with the report's table between its marks."""
    made, count = MARKED.subn(lambda marks: f"{marks[1]}\n{PAGES[page](found)}\n\n{marks[2]}", text)
    if count != 1:
        raise ValueError(f"{page} has {count} places for the table")
    return made


def described(found: Mapping[str, Any]) -> str:
    told = found["machine"]
    core = told.get("core", "pure Python")
    rounds = [row["rounds"] for row in found["rows"].values()]
    disturbed = sum(row["disturbed"] for row in found["rows"].values())
    return (
        f"Commit {found['commit'][:10]} ({core}), measured on {found['measured_at'][:10]}: {told['cores']} cores"
        f" ({told['cpu']}), {told['memory']}, {told['os']}, Python {told['python']}, confluent-kafka"
        f" {told['confluent-kafka']}. {sum(rounds)} rounds of {len(rounds)} rows, {disturbed} of them disturbed."
    )


def shown() -> Mapping[str, Any] | None:
    """The report that the pages show."""
    return newest(list(ROWS), history())


def write(root: Path = ROOT) -> list[str]:
    """The pages that are other than before."""
    found = shown()
    if found is None:
        return []
    changed = []
    for page in PAGES:
        before = (root / page).read_text("utf-8")
        after = written(page, before, found)
        if after != before:
            (root / page).write_text(after, "utf-8")
            changed.append(page)
    return changed
