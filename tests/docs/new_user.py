"""A program that measures how long the commands of docs/five-minutes.md take a new user, by section.

Run `python -m tests.docs.new_user`.

The program builds the wheel, and runs the page's commands in an empty directory; dependencies come from the package index.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.docs.blocks import ROOT, blocks
from tests.docs.terminal import Terminal
from tests.support.deadlines import Stopwatch
from tests.support.wheels import built, copy_of_the_sources

PAGE = "docs/five-minutes.md"


def section(line: int) -> str:
    """Return the heading above a line."""
    lines = (ROOT / PAGE).read_text("utf-8").splitlines()[:line]
    return next(each.removeprefix("## ") for each in reversed(lines) if each.startswith("## "))


def main() -> None:
    with tempfile.TemporaryDirectory() as work:
        (sources := Path(work, "sources")).mkdir()
        wheel = built(copy_of_the_sources(sources), Path(work, "wheel"))
        (empty := Path(work, "empty")).mkdir()
        load = os.getloadavg()[0]
        took: dict[str, float] = {}
        with Terminal(empty, programs=Path("/usr/bin"), installed=str(wheel)) as terminal:
            for block in blocks(PAGE):
                stopwatch = Stopwatch()
                terminal.take(block)
                took[section(block.line)] = took.get(section(block.line), 0) + stopwatch.run_s
    for name, seconds in took.items():
        print(f"{seconds:6.1f} s  {name}")
    print(f"{sum(took.values()):6.1f} s  in all; {os.cpu_count()} cores, load {load:.1f} before")


if __name__ == "__main__":
    main()
