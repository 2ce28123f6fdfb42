"""The stacks of this process: a line for each thread and each asyncio task, the innermost call first.

The server writes them to standard error on SIGQUIT (``kill -QUIT PID``), as a JVM with Apache Kafka writes a thread dump.
They show what a broker that does not respond is waiting for. A thread writes them, so that a full pipe blocks nothing else;
further signals meanwhile are ignored. The handler runs between two bytecodes, so a process in a long call into C writes the
stacks when the call returns.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task

DEPTH: Final = 12
"""Largest number of calls of a stack that a line shows."""


def stacks_writer(descriptor: int = 2) -> Callable[[int, FrameType | None], None]:
    """A signal handler that writes the stacks, to standard error by default."""
    writing = allocate_lock()

    def write(loop: AbstractEventLoop | None) -> None:
        with suppress(OSError):
            os.write(descriptor, "".join(f"{line}\n" for line in stack_lines(loop)).encode(errors="replace"))
        writing.release()

    def handle(_: int, __: FrameType | None) -> None:
        if writing.acquire(blocking=False):
            start_new_thread(write, (_running_loop(),))

    return handle


def _running_loop() -> AbstractEventLoop | None:
    """The event loop of this thread. asyncio may not have been imported yet."""
    events = sys.modules.get("asyncio.events")
    find: Callable[[], AbstractEventLoop | None] = getattr(events, "_get_running_loop", lambda: None)
    return find()


def stack_lines(loop: AbstractEventLoop | None = None) -> Iterator[str]:
    """All threads, then all tasks. ``loop`` is a loop whose tasks are included even if ``gc.freeze`` hides it."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}: {_calls(_of_thread(frame))}"
    for task in _tasks(loop):
        yield f"task {task.get_name()}: {_calls(_of_task(task))}"


def _of_thread(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    while frame is not None:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back


def _tasks(loop: AbstractEventLoop | None) -> list[Task[Any]]:
    """The unfinished tasks of all loops, by name."""
    import asyncio  # imported here, because a signal may come in the middle of its import

    loops = [each for each in (loop, *gc.get_objects()) if isinstance(each, asyncio.AbstractEventLoop)]
    tasks = {task for each in loops if not each.is_closed() for task in asyncio.all_tasks(each)}
    return sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name()))


def _of_task(task: Task[Any]) -> Iterator[tuple[CodeType, int]]:
    """(code, line number) of each coroutine of a task, the innermost first.

    Compiled coroutines (Cython's) have code, but no frame.
    """
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
    """The last three parts of a path: enough to identify the file in a readable line."""
    return "/".join(path.split("/")[-3:])


write_stacks: Final = stacks_writer()
"""The SIGQUIT handler of the server's processes."""
