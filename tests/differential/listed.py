"""Parses the tables in docs/differences.md, the only permitted differences from Kafka."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tests.differential.runner import Difference

FILE = Path(__file__).parents[2] / "docs" / "differences.md"
COLUMNS = ("id", "stories", "fields", "Kafka", "ours", "why", "how to switch it off")
COLUMNS_OF_TOOLS = ("id", "stories", "output", "Kafka", "ours", "why", "how to switch it off")
"""Columns of the table about Kafka's console tools: tests/differential/console_tools."""


@dataclass(frozen=True)
class Row:
    id: str
    stories: tuple[str, ...]
    fields: tuple[str, ...]
    kafka: tuple[str, ...]
    ours: tuple[str, ...]

    @property
    def is_of_clusters(self) -> bool:
        """Whether the row is for stories with several nodes (`tests.differential.cluster`), which a separate test runs."""
        return all(pattern.startswith("cluster-") for pattern in self.stories)

    def has_story(self, story: str) -> bool:
        return any(fnmatchcase(story, pattern) for pattern in self.stories)

    def needs(self) -> set[tuple[str, str, str]]:
        """The patterns of the row. Each must match at least one difference."""
        return {(self.id, "story", p) for p in self.stories} | {(self.id, "field", p) for p in self.fields}

    def met(self, difference: Difference) -> set[tuple[str, str, str]]:
        """The row's patterns that match the difference. Empty if the row does not explain the difference."""
        stories = {p for p in self.stories if fnmatchcase(difference.story, p)}
        fields = {p for p in self.fields if fnmatchcase(difference.field, p)}
        values = _one_of(difference.kafka, self.kafka) and _one_of(difference.ours, self.ours)
        if not (stories and fields and values):
            return set()
        return {(self.id, "story", p) for p in stories} | {(self.id, "field", p) for p in fields}


def _one_of(value: object, patterns: tuple[str, ...]) -> bool:
    told = value if value == "(absent)" else json.dumps(value)
    return any(fnmatchcase(str(told), p) for p in patterns)


def _cell(text: str) -> tuple[str, ...]:
    """The patterns in a table cell. Each is in back-ticks: a cell with `a`, `b` has two."""
    return tuple(re.findall(r"`([^`]+)`", text))


def rows(text: str | None = None, columns: tuple[str, ...] = COLUMNS) -> list[Row]:
    """The rows of the table with these columns, up to the first line that is not a row."""
    header, found, is_there = False, [], False
    for line in (FILE.read_text() if text is None else text).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            header = False
        elif tuple(cells) == columns:
            header = is_there = True
        elif header and not set("".join(cells)) <= set("-: |"):
            assert len(cells) == len(columns), f"a row of docs/differences.md has {len(cells)} cells: {cells}"
            name, stories, fields, kafka, ours = (cells[0], *map(_cell, cells[1:5]))
            assert all((stories, fields, kafka, ours)), f"row {name}: patterns must be in back-ticks"
            found.append(Row(name, stories, fields, kafka, ours))
    assert is_there, f"no table with the columns {columns}"
    return found


def unlisted(differences: list[Difference], table: list[Row]) -> list[Difference]:
    return [d for d in differences if not any(row.met(d) for row in table)]


def stale(differences: list[Difference], table: list[Row]) -> set[tuple[str, str, str]]:
    met: set[tuple[str, str, str]] = set()
    for row in table:
        for difference in differences:
            met |= row.met(difference)
    return {need for row in table for need in row.needs()} - met
