"""Named points at which the broker may be told to kill itself.

``ODRADEK_CRASH_POINTS=txn.prepare.before:3,file.write:17`` (or the setting ``odradek.crash.points``): at the
third passage of the one or the seventeenth of the other, whichever comes first, the process sends itself
SIGKILL. Nothing is flushed, closed or said: what is found afterwards is what a crash at that very point
leaves.

Code marks a point with ``crash_point("txn.prepare.before")``, which costs one comparison while none is armed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn

from storage import files

# "before" and "after" mean the write of the record that the name is about; "file.write" comes before every
# write system call on a log file and "file.change" before every other one that changes a file (create, small
# file, sync, cut, rename, remove): together they divide what is done into its smallest steps.
CRASH_POINTS: Final = frozenset(
    {
        "file.change",
        "file.write",
        "group.append.before",
        "group.append.after",
        "txn.begin.append",
        "txn.complete.before",
        "txn.complete.after",
        "txn.marker.before",
        "txn.marker.after",
        "txn.offset.commit.after",
        "txn.prepare.before",
        "txn.prepare.after",
    }
)

PassageWatcher = Callable[[str], object]

_watcher: PassageWatcher | None = None


class UnknownCrashPoint(ValueError):
    """The text that names crash points names one that does not exist, or a number that makes no sense."""


def crash_point(name: str) -> None:
    """The broker is at the point ``name`` now. Does not return if it was told to die there."""
    if _watcher is not None:
        _watcher(name)


def kill_this_process(_: str) -> NoReturn:
    """Die as by kill -9: no handler, no finally, no buffer of ours runs after this."""
    os.kill(os.getpid(), signal.SIGKILL)
    # The kernel ignores a SIGKILL that the first process of a container sends itself. This ends it as abruptly, with
    # the exit code that an engine shows for SIGKILL.
    os._exit(128 + signal.SIGKILL)


def parse_crash_points(text: str) -> dict[str, int]:
    """``name[:n],...`` as passages to go until death, by name; without n it is the first one."""
    points: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, count = part.partition(":")
        if name not in CRASH_POINTS:
            raise UnknownCrashPoint(
                f"no crash point is called {name!r}; there are {', '.join(sorted(CRASH_POINTS))}"
            )
        if count and not (count.isascii() and count.isdigit() and int(count) > 0):
            raise UnknownCrashPoint(f"crash point {name}: {count!r} is not a number of passages (1, 2, ...)")
        points[name] = int(count or 1)
    return points


class Countdown:
    """Counts passages down and acts once at the last one of each point."""

    def __init__(self, points: Mapping[str, int], act: PassageWatcher = kill_this_process) -> None:
        self._left = dict(points)
        self._act = act

    def __call__(self, name: str) -> None:
        left = self._left.get(name)
        if left is None:
            return
        if left > 1:
            self._left[name] = left - 1
            return
        del self._left[name]
        self._act(name)


def arm(text: str) -> None:
    """Arm this process for good with the points that ``text`` names. An empty text arms nothing."""
    points = parse_crash_points(text)
    _watch(Countdown(points) if points else None)


@contextlib.contextmanager
def on_passage(watcher: PassageWatcher) -> Iterator[None]:
    """Let ``watcher`` see every passage while the block runs: it may note it, or raise instead of dying."""
    before = _watcher
    _watch(watcher)
    try:
        yield
    finally:
        _watch(before)


class _WatchedSystem(files.System):
    """Passes a point before each system call that changes a file: the files are below us and know no points."""

    def __getattribute__(self, name: str) -> Any:
        call = super().__getattribute__(name)
        if name.startswith("_"):
            return call

        def passing(*arguments: Any) -> Any:
            if name == "pwritev":
                crash_point("file.write")
            else:
                crash_point("file.change")
            return call(*arguments)

        return passing


def _watch(watcher: PassageWatcher | None) -> None:
    global _watcher
    _watcher = watcher
    files.use_system(files.System() if watcher is None else _WatchedSystem())
