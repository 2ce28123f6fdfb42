"""How deep a request is in calls when it writes: Python frames from its handler to the last write of a log.

``python -m benchmarks.depth`` prints a table: for each request of a transaction the frames that are open at its last write,
from the handler, which the connection calls, to the caller of the system, both included. A walk that is written as lines
comes back before it goes on. One that is written as callbacks goes on inside of them, and its reader has all in mind.
``--frames EndTxn`` names the frames, outermost first. `tests/broker/test_counts.py` holds the figures, as upper bounds.

Compiled functions have no frames: the broker of this process runs the pure form.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

os.environ["ODRADEK_PURE"] = "1"

import uvloop

from benchmarks.client import SIZE
from benchmarks.inside import frames_of, started
from broker.net.connection import Connection
from protocol.messages.index import APIS
from protocol.versions import message_name
from storage import files

CONNECTION: Final = Connection.buffer_updated.__code__.co_filename
WRITES: Final = ("pwritev", "pwrite", "write")
KINDS: Final = ("produce-idempotent", "transaction", "transaction-v1", "init")
WARM: Final = 20
COUNTED: Final = 5


class Depth(NamedTuple):
    """Of the last write of one request."""

    request: str
    """With its version: ``EndTxn v5``."""
    frames: tuple[str, ...]
    """Outermost first."""


class _Watching(files.System):
    """Keeps the frames that are open at the last write."""

    def __init__(self) -> None:
        self.last: tuple[str, ...] = ()

    def __getattribute__(self, name: str) -> Any:
        call: Callable[..., Any] = object.__getattribute__(self, name)
        if name in WRITES:
            self.last = open_frames(sys._getframe(1))
        return call


def open_frames(frame: FrameType | None) -> tuple[str, ...]:
    """From the function that the connection calls to ``frame``; none if no connection called it."""
    found: list[str] = []
    while frame is not None and frame.f_code.co_filename != CONNECTION:
        found.append(_name(frame.f_code))
        frame = frame.f_back
    return () if frame is None else tuple(reversed(found))


def _name(code: CodeType) -> str:
    module = os.path.relpath(code.co_filename).removesuffix(".py").replace("/", ".")
    return f"{module}.{code.co_qualname}"


def requests_in(frames: bytes) -> Iterator[tuple[str, bytes]]:
    """Each request by its name and version."""
    while frames:
        end = SIZE.size + SIZE.unpack_from(frames)[0]
        key, version = struct.unpack_from(">hh", frames, SIZE.size)
        yield f"{message_name(APIS[key][0])} v{version}", frames[:end]
        frames = frames[end:]


async def depths_of(kind: str) -> dict[str, Depth]:
    """The requests of one kind (`benchmarks.inside.KINDS`), by name; of several the deepest."""
    found: dict[str, Depth] = {}
    async with started() as inside:
        number = WARM + COUNTED
        frames = list(await frames_of(kind, inside, number))
        for each in frames[:WARM]:
            inside.feed(each)
        system = _Watching()
        before = files.use_system(system)
        try:
            for each in frames[WARM:]:
                for name, request in requests_in(each):
                    system.last = ()
                    inside.feed(request)
                    if len(system.last) > len(found.get(name, Depth(name, ())).frames):
                        found[name] = Depth(name, system.last)
        finally:
            files.use_system(before)
    return found


def depths() -> dict[str, Depth]:
    """Every request of `KINDS` that writes, by name and version."""
    found: dict[str, Depth] = {}
    for kind in KINDS:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found |= runner.run(depths_of(kind))
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.depth", description=__doc__.splitlines()[0])
    parser.add_argument("--frames", metavar="API", help="name the frames of this request")
    parser.add_argument("--json", action="store_true", help="one object: frames by request")
    options = parser.parse_args(arguments)
    found = depths()
    if options.json:
        print(json.dumps({name: len(each.frames) for name, each in found.items()}))
        return 0
    if options.frames:
        for name, each in found.items():
            if name.partition(" ")[0] == options.frames:
                print(f"{name}\n", *each.frames, sep="\n  ")
        return 0
    print("| request | frames at its last write |")
    print("| --- | --- |")
    for name, each in sorted(found.items()):
        print(f"| {name} | {len(each.frames)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
