"""The depth of the call stack of a request when it writes: Python frames from its handler to its last write to a log.

``python -m benchmarks.depth`` prints a table. For each request of a transaction it has the number of open frames at its last
write, from the handler that the connection calls to the caller of the system call, both included. Code that is written as
consecutive calls returns from each before the next. Code that is written as callbacks continues inside them, and its reader
has to remember all of them. ``--frames EndTxn`` lists the frames, outermost first. `tests/broker/test_counts.py` has the
figures as upper bounds.

Compiled functions have no frames, so the broker of this process runs in pure Python.
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
    """The stack at the last write of one request."""

    request: str
    """Name and version of the request: ``EndTxn v5``."""
    frames: tuple[str, ...]
    """Names of the Python functions on the stack, outermost first."""


class _Watching(files.System):
    """A `files.System` that records the open frames at the last write."""

    def __init__(self) -> None:
        self.last: tuple[str, ...] = ()

    def __getattribute__(self, name: str) -> Any:
        call: Callable[..., Any] = object.__getattribute__(self, name)
        if name in WRITES:
            self.last = open_frames(sys._getframe(1))
        return call


def open_frames(frame: FrameType | None) -> tuple[str, ...]:
    """Names of the frames from the handler that a connection called to ``frame``; empty without a connection."""
    found: list[str] = []
    while frame is not None and frame.f_code.co_filename != CONNECTION:
        found.append(_name(frame.f_code))
        frame = frame.f_back
    return () if frame is None else tuple(reversed(found))


def _name(code: CodeType) -> str:
    module = os.path.relpath(code.co_filename).removesuffix(".py").replace("/", ".")
    return f"{module}.{code.co_qualname}"


def requests_in(frames: bytes) -> Iterator[tuple[str, bytes]]:
    """Split the frames of several requests. Yields the name with the version, and the bytes, of each."""
    while frames:
        end = SIZE.size + SIZE.unpack_from(frames)[0]
        key, version = struct.unpack_from(">hh", frames, SIZE.size)
        yield f"{message_name(APIS[key][0])} v{version}", frames[:end]
        frames = frames[end:]


async def depths_of(kind: str) -> dict[str, Depth]:
    """Deepest stack for each request of one kind (`benchmarks.inside.KINDS`), by name and version."""
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
    """Stack depths of all requests of `KINDS` that write to a log, by name with version."""
    found: dict[str, Depth] = {}
    for kind in KINDS:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found |= runner.run(depths_of(kind))
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.depth", description=__doc__.splitlines()[0])
    parser.add_argument("--frames", metavar="API", help="list the frames of this request")
    parser.add_argument("--json", action="store_true", help="print one JSON object: frames by request")
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
