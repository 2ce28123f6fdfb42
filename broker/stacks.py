"""The stacks of this process: a line for each thread and each asyncio task, the innermost call first.

The server writes them to standard error on SIGQUIT (``kill -QUIT PID``), as the JVM writes a thread dump of Apache Kafka.
They show what a broker waits for that does not respond. The handler runs between two bytecodes: a process that is held by a
call into C writes them when the call returns.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any, Final

DEPTH: Final = 12
"""Calls that a line shows."""


def stacks_writer(descriptor: int = 2) -> Callable[[int, FrameType | None], None]:
    """A handler of SIGQUIT that writes the stacks, to standard error by default."""

    def write(_: int, frame: FrameType | None) -> None:
        text = "".join(f"{line}\n" for line in stack_lines(frame))
        # Not through `sys.stderr`: the signal may have come in the middle of a write there, which may not be entered twice.
        with suppress(OSError):
            os.write(descriptor, text.encode(errors="replace"))

    return write


def stack_lines(here: FrameType | None = None) -> Iterator[str]:
    """All threads, then all tasks. ``here`` is the frame of this thread that is of interest; its own by default."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, top in sys._current_frames().items():
        frame = here or top if ident == threading.get_ident() else top
        yield f"thread {names.get(ident, ident)}: {_calls(_of_thread(frame))}"
    for task in _tasks():
        yield f"task {task.get_name()}: {_calls(_of_task(task))}"


def _of_thread(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    while frame is not None:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back


def _tasks() -> list[asyncio.Task[Any]]:
    """Those of all loops that have not ended, in the order of their names."""
    # The collector does not name what `gc.freeze` has kept from it, as the loop of a broker that has started.
    candidates = [asyncio._get_running_loop(), *gc.get_objects()]
    loops = [each for each in candidates if isinstance(each, asyncio.AbstractEventLoop)]
    tasks = {task for loop in loops if not loop.is_closed() for task in asyncio.all_tasks(loop)}
    return sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name()))


def _of_task(task: asyncio.Task[Any]) -> Iterator[tuple[CodeType, int]]:
    """The coroutines that wait for each other. Compiled ones (Cython's) have the code and no frame."""
    chain: list[tuple[CodeType, int]] = []
    coroutine: Any = task.get_coro()
    while coroutine is not None:
        code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if code is not None:
            chain.append((code, frame.f_lineno if frame is not None else code.co_firstlineno))
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return reversed(chain)


def _calls(calls: Iterable[tuple[CodeType, int]]) -> str:
    shown = [f"{_short(code.co_filename)}:{line} {code.co_name}" for code, line in calls]
    return " < ".join(shown[:DEPTH]) + (f" < {len(shown) - DEPTH} more" if len(shown) > DEPTH else "")


def _short(path: str) -> str:
    """The last three parts: which file it is, in a line that can be read."""
    return "/".join(path.split("/")[-3:])
