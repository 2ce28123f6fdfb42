"""How many instructions a request takes: ``python -m benchmarks.instructions transaction``.

Valgrind counts them, which needs no quiet machine: the figure comes out the same within one in a hundred. Two processes
handle a few and many requests, handed to a connection as in `benchmarks.inside`; the difference is what the requests took,
and neither the start nor what the interpreter learns at first. The system's part is not in it.
``callgrind_annotate`` shows where they went, in the files that ``--keep`` names.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.inside import KINDS, frames_of, started
from benchmarks.targets import ROOT

FEW: Final = 100
MANY: Final = 400
LARGE: Final = ("produce-large", "fetch-large")
COLLECTED: Final = re.compile(r"Collected : (\d+)")


async def handle(kind: str, number: int) -> None:
    """So many requests of one kind."""
    async with started() as inside:
        # All are made in both processes: that is no request's part. Of large ones one in forty is made.
        for frame in list(await frames_of(kind, inside, 40 * MANY if kind in LARGE else MANY))[:number]:
            inside.feed(frame)


def counted(kind: str, number: int, directory: Path) -> subprocess.Popen[str]:
    """A process that does it, under Valgrind."""
    return subprocess.Popen(
        [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={directory / f'{kind}.{number}'}",
            *(sys.executable, "-m", "benchmarks.instructions", kind, f"--handle={number}"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def instructions(kind: str, directory: Path) -> float:
    """Of one request."""
    processes = {number: counted(kind, number, directory) for number in (FEW, MANY)}
    collected = {}
    for number, process in processes.items():
        _, said = process.communicate()
        found = COLLECTED.search(said)
        if process.returncode != 0 or found is None:
            raise SystemExit(f"valgrind said: {said[-2000:]}")
        collected[number] = int(found[1])
    return (collected[MANY] - collected[FEW]) / (MANY - FEW)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.instructions", description=__doc__.splitlines()[0]
    )
    parser.add_argument("kind", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument("--keep", metavar="DIRECTORY", type=Path, help="where the profiles are kept")
    parser.add_argument("--handle", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.handle is not None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(handle(options.kind[0], options.handle))
        return 0
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed")
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        for kind in options.kind or KINDS:
            print(f"{kind}: {instructions(kind, directory):,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
