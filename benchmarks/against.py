"""``python -m benchmarks.against REVISION [KIND ...]``: the broker's own time per request, now and at an earlier commit.

The two trees alternate in running ``benchmarks.inside``, each time in a new process, so that other work on the machine
affects both equally. The output has the medians, their difference, and the spread of each.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
FIGURE = re.compile(r"(\S+): ([0-9.]+) us per request")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="a commit of this repository, to compare the working tree with")
    parser.add_argument("kind", nargs="*", default=["produce-small", "produce-idempotent"])
    parser.add_argument("--rounds", type=int, default=8, help="how often each tree is measured")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="odradek-against-") as scratch:
        before = Path(scratch) / "before"
        _git("worktree", "add", "--detach", "--quiet", str(before), options.revision)
        try:
            for kind in options.kind:
                print(compare(kind, before, options.rounds), flush=True)
        finally:
            _git("worktree", "remove", "--force", str(before))
    return 0


def compare(kind: str, before: Path, rounds: int) -> str:
    taken: dict[Path, list[float]] = {before: [], HERE: []}
    for number in range(rounds):
        # Alternate which tree goes first: the second of a pair finds warmer caches.
        for tree in (before, HERE) if number % 2 else (HERE, before):
            taken[tree].append(measure(kind, tree))
    was, now = (statistics.median(taken[tree]) for tree in (before, HERE))
    spread = max(max(each) - min(each) for each in taken.values())
    return f"{kind}: {was:.2f} us before, {now:.2f} us now: {now - was:+.2f} us (spread {spread:.2f}, {rounds} rounds)"


def measure(kind: str, tree: Path) -> float:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.inside", kind],
        cwd=tree,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    match = FIGURE.search(done.stdout)
    assert match is not None, done.stdout
    return float(match[2])


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=HERE, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
