"""The number of CPU instructions of a request: ``python -m benchmarks.instructions transaction``.

Valgrind counts them, so the machine need not be quiet: the figure is reproducible within one percent. One process handles a
few requests and another one many, passed to a connection as in `benchmarks.inside`. The difference is the cost of the
requests, without the start and without the interpreter's specialization at the beginning. Instructions of the kernel are not
counted. ``callgrind_annotate`` shows the instructions by function, from the files that ``--keep`` keeps.

``make hot`` writes the list of the functions of compiled modules in which requests spend instructions (docs/adr/0025).
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
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop

import build_backend
from benchmarks.inside import KINDS, frames_of, started
from benchmarks.targets import ROOT

FEW: Final = 100
MANY: Final = 400
LARGE: Final = ("produce-large", "fetch-large")
LEAST: Final = 5  # instructions per request, from which on a function is to be optimised
FUNCTION: Final = re.compile(r"^ *([\d,]+) .*?:(__[Pp]yx_[\w.']+).*/compiled/modules/", re.MULTILINE)
COLLECTED: Final = re.compile(r"Collected : (\d+)")


async def handle(kind: str, number: int) -> None:
    """Handle ``number`` requests of one kind."""
    async with started() as inside:
        # Both processes build all frames, so the difference does not include that. `frames_of` builds one of 40 large ones.
        for frame in list(await frames_of(kind, inside, 40 * MANY if kind in LARGE else MANY))[:number]:
            inside.feed(frame)


def counted(kind: str, number: int, directory: Path) -> subprocess.Popen[str]:
    """Start a process that handles ``number`` requests under Valgrind."""
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
    """Number of CPU instructions of one request."""
    processes = {number: counted(kind, number, directory) for number in (FEW, MANY)}
    collected = {}
    for number, process in processes.items():
        _, said = process.communicate()
        found = COLLECTED.search(said)
        if process.returncode != 0 or found is None:
            raise SystemExit(f"valgrind failed, or printed no count of instructions: {said[-2000:]}")
        collected[number] = int(found[1])
    return (collected[MANY] - collected[FEW]) / (MANY - FEW)


def hot_functions(kind: str, directory: Path) -> set[str]:
    """The names of functions of the compiled modules in which a request of this kind spends instructions."""
    many, few = (spent(directory / f"{kind}.{number}") for number in (MANY, FEW))
    return {function for function in many if many[function] - few[function] >= LEAST * (MANY - FEW)}


def spent(profile: Path) -> Counter[str]:
    """Number of CPU instructions by function, from a profile of Valgrind."""
    command: list[str | Path] = ["callgrind_annotate", "--threshold=100", "--auto=no", profile]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    by_function: Counter[str] = Counter()
    for instructions, function in FUNCTION.findall(table):
        by_function[build_backend.name_of(function)] += int(instructions.replace(",", ""))
    return by_function


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.instructions", description=__doc__.splitlines()[0]
    )
    parser.add_argument("kind", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument("--keep", metavar="DIRECTORY", type=Path, help="keep the profiles in this directory")
    parser.add_argument(
        "--hot", metavar="FILE", type=Path, help="write the names of the functions to this file"
    )
    parser.add_argument("--handle", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.handle is not None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(handle(options.kind[0], options.handle))
        return 0
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed: install it, for example by apt-get install valgrind")
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        kinds = options.kind or KINDS
        for kind in kinds:
            print(f"{kind}: {instructions(kind, directory):,.0f}", flush=True)
        if options.hot is not None:
            hot = set[str]().union(*(hot_functions(kind, directory) for kind in kinds))
            options.hot.write_text("".join(f"{function}\n" for function in sorted(hot)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
