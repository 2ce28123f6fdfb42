"""The machine-independent costs of a request: function calls, system calls and memory.

``python -m benchmarks.counts`` prints a table. For each kind of request it has the number of calls of Python functions,
of calls of built-in functions (``len`` and the like), of system calls on files, of writes to the socket, and the peak
of the memory that a request needs. Requests are passed to a connection of a broker in this process, as in
`benchmarks.inside`. `tests/broker/test_counts.py` checks the figures against upper bounds. ``ODRADEK_PURE=1`` counts
without the compiled core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final, NamedTuple

import uvloop

from benchmarks.inside import KINDS, frames_of, started
from storage import files

WARM: Final = 50
COUNTED: Final = 100


class Counts(NamedTuple):
    """Costs of one request or one transaction, as the mean of a hundred."""

    calls: float
    """Calls of functions written in Python, including resumptions of generators."""
    builtins: float
    """Calls of functions written in C."""
    file_calls: float
    """System calls that change files."""
    socket_writes: float
    peak_bytes: int
    """Peak of the memory that one request adds to the memory in use before it."""


class _Counting(files.System):
    """A `files.System` that counts the calls that change files."""

    def __init__(self) -> None:
        self.calls = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "calls":
            return object.__getattribute__(self, name)
        self.calls += 1
        return object.__getattribute__(self, name)


def profiled(work: Callable[[], object]) -> Counter[str]:
    """Number of events of ``sys.setprofile`` while ``work`` runs, by event."""
    events: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        events[event] += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return events


def peak_of(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


async def counts_of(kind: str) -> Counts:
    """Count one kind of request (`benchmarks.inside.KINDS`) in a broker that has just started."""
    async with started() as inside:
        number = WARM + 2 * COUNTED + 1
        frames = list(await frames_of(kind, inside, 40 * number))[:number]
        for frame in frames[:WARM]:
            inside.feed(frame)
        system = _Counting()
        before = files.use_system(system)
        try:
            for frame in frames[WARM : -COUNTED - 1]:
                inside.feed(frame)
        finally:
            files.use_system(before)
        # Profile only after removing the counting `System`: calls of its wrapper would be counted too.
        written = inside.writes
        events = profiled(lambda: [inside.feed(frame) for frame in frames[-COUNTED - 1 : -1]])
        written = inside.writes - written
        peak = peak_of(lambda: inside.feed(frames[-1]))
    return Counts(
        events["call"] / COUNTED,
        events["c_call"] / COUNTED,
        system.calls / COUNTED,
        written / COUNTED,
        peak,
    )


def count(kind: str) -> Counts:
    """Run `counts_of` in a new event loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(counts_of(kind))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.counts", description=__doc__.splitlines()[0])
    parser.add_argument("kind", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument("--json", action="store_true", help="print one JSON object, by kind")
    options = parser.parse_args(arguments)
    if options.json:
        print(json.dumps({kind: count(kind)._asdict() for kind in options.kind or KINDS}))
        return 0
    print("| request | calls | built-in calls | calls on files | writes to the socket | peak bytes |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in options.kind or KINDS:
        found = count(kind)
        print(
            f"| {kind} | {found.calls:.1f} | {found.builtins:.1f} | {found.file_calls:.1f} "
            f"| {found.socket_writes:.1f} | {found.peak_bytes:,} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
