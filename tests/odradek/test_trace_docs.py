"""The example of docs/trace.md has the output that the page shows, line by line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.deadlines import HANG_S

PAGE = Path(__file__).resolve().parents[2] / "docs" / "trace.md"

# Values that differ from run to run: times, ports, correlation ids, durations.
DIFFERS = [
    (r"\d\d:\d\d:\d\d\.\d{3}", "TIME"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r" #\d+ ", " #N "),
    (r" [\d.]+ ms$", " N ms"),
]


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def told(text: str) -> list[str]:
    """The lines without varying values, and without FindCoordinator, whose count depends on the client's speed.

    Hits of rules are sorted to the end: they may come before or after an exchange of the same millisecond.
    """
    for pattern, instead in DIFFERS:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    lines = [line for line in text.strip().splitlines() if "FindCoordinator" not in line]
    return sorted(lines, key=lambda line: "is hit by" in line)


def test_the_example_says_what_the_page_says(tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text(block("python"), "utf-8")
    run = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=True, timeout=HANG_S
    )
    assert told(run.stdout) == told(block("text"))
