"""Outputs in files: the rows of NDJSON files below the run's directory, as records."""

from __future__ import annotations

import json
from pathlib import Path

from odradek.topics import Record


def read(data: Path, pattern: str, label: str) -> list[Record]:
    """The rows of all files that the glob pattern matches, file by file, each as a JSON object with sorted keys."""
    lines = (
        line
        for path in sorted(data.glob(pattern))
        if path.is_file()
        for line in path.read_text("utf-8").splitlines()
        if line.strip()
    )
    return [row(label, number, json.loads(line)) for number, line in enumerate(lines)]


def row(label: str, number: int, value: object, key: str | None = None) -> Record:
    """A row of an output that is no topic."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return Record(label, -1, number, -1, key, text, (), -1, -1, False, None)
