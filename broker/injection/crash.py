"""Crash points: named steps at which the broker can be made to kill itself.

With ``ODRADEK_CRASH_POINTS=txn.prepare.before:3,file.write:17`` (or the setting ``odradek.crash.points``), the process sends
itself SIGKILL when it reaches the first point for the third time or the second point for the seventeenth, whichever comes
first. Nothing is flushed, closed or logged, so the files are as after a crash at that point.

Code marks a point with ``crash_point("txn.prepare.before")``, which costs one comparison while no point is armed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn

from storage import files

# "before" and "after" refer to writing the record that the point is named after. "file.write" is reached before every
# write system call on a log file, "file.change" before every other system call that changes a file (create, write a
# small file, sync, truncate, rename, remove): together they cover every single change on disk.
CRASH_POINTS: Final = frozenset(
    {
        "file.change",
        "file.write",
        "group.append.before",
        "group.append.after",
        "share.append.before",
        "share.append.after",
        "share.dlq.before",
        "share.dlq.after",
        "share.write.before",
        "share.write.after",
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
    """The text contains an unknown crash point, or an invalid number."""


def crash_point(name: str) -> None:
    """Mark the crash point ``name`` in the code. Does not return if the process is to be killed at this passage."""
    if _watcher is not None:
        _watcher(name)


def kill_this_process(_: str) -> NoReturn:
    """Kill this process as by kill -9: no signal handler, finally block or buffer flush runs."""
    os.kill(os.getpid(), signal.SIGKILL)
    # The kernel ignores a SIGKILL that the first process of a container sends itself. This exit is as abrupt, and has the
    # exit code that container engines show for SIGKILL.
    os._exit(128 + signal.SIGKILL)


def parse_crash_points(text: str) -> dict[str, int]:
    """Parse ``name[:n],...``. Returns crash point -> n: the n-th passage of the point kills the process (default 1)."""
    points: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, count = part.partition(":")
        if name not in CRASH_POINTS:
            raise UnknownCrashPoint(
                f"no crash point is called {name!r} (known: {', '.join(sorted(CRASH_POINTS))})"
            )
        if count and not (count.isascii() and count.isdigit() and int(count) > 0):
            raise UnknownCrashPoint(
                f"crash point {name}: {count!r} is not the number of the passage that kills the process (1, 2, ...)"
            )
        points[name] = int(count or 1)
    return points


class Countdown:
    """Counts down the passages of each crash point, and calls ``act`` with the name of a point at count 0."""

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
    """Arm the crash points in ``text`` for the rest of the process. An empty text disarms all."""
    points = parse_crash_points(text)
    _watch(Countdown(points) if points else None)


@contextlib.contextmanager
def on_passage(watcher: PassageWatcher) -> Iterator[None]:
    """Context manager: call ``watcher`` with the name of each crash point that the process passes within the block.

    The watcher may record the passage, or raise instead of killing the process.
    """
    before = _watcher
    _watch(watcher)
    try:
        yield
    finally:
        _watch(before)


class _WatchedSystem(files.System):
    """A file system interface that reaches a crash point before each change, since `storage` has no crash points itself."""

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
