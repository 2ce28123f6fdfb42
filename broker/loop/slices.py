"""Runs long work in slices, one in each turn of the event loop, for all nodes together.

Parts of the work may run in a thread.

    async def list_offsets(request, context):
        return await context.node.slices.run(search(request))    # does not suspend if the search is one slice

Threads alone are not sufficient: Python runs one thread at a time and switches every 5 ms, so a thread that
iterates over a million records would delay each step of the event loop by 5 ms. A slice takes half a millisecond,
and the order of events is the same in every run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from broker.loop.coroutines import Waiter
from storage.steps import Steps

APART_AT_ONCE: Final = 2
"""Maximum number of jobs that use a thread at the same time. Each job may keep a batch's decompressed bytes in memory
until the job ends."""

T = TypeVar("T")
R = TypeVar("R")
ELEMENTS_PER_SLICE: Final = 100
"""Number of elements of a request's array that are handled in one turn, if each element takes some microseconds."""


def each(elements: Iterable[T], answer: Callable[[T], R]) -> Generator[None, None, list[R]]:
    """Call ``answer`` for each element of a request and return the list of results.

    A generator for `Slices.run`.
    """
    answers: list[R] = []
    for number, element in enumerate(elements, 1):
        answers.append(answer(element))
        if number % ELEMENTS_PER_SLICE == 0:
            yield
    return answers


class _Place(Waiter[None]):
    """The place of a job in a `_Queue`. It is skipped if the job was closed because the node died."""

    __slots__ = ("is_left",)

    def __init__(self) -> None:
        super().__init__()
        self.is_left = False


class _Queue:
    """Jobs that wait for a turn of the event loop, or for a thread, in order of arrival."""

    def __init__(self) -> None:
        self._places: deque[_Place] = deque()

    async def wait(self) -> None:
        place = _Place()
        self._places.append(place)
        try:
            await place
        finally:
            place.is_left = True

    def next(self) -> Callable[[], None] | None:
        """Remove the first waiting job, and return a function that resumes it; None if no job waits."""
        while self._places:
            place = self._places.popleft()
            if not place.is_left:
                return partial(place.wake, None)
        return None

    def __len__(self) -> int:
        return len(self._places)


class Slices:
    """The scheduler of long work. Each turn of the event loop runs a slice of one job, round-robin."""

    def __init__(self) -> None:
        self._ready = _Queue()
        self._waiting = _Queue()
        self._apart = 0
        self._armed = False

    async def run(self, steps: Steps[T]) -> T:
        """Run ``steps``, a generator that yields after each slice, and return its result.

        The generator yields None, or a function to run in a thread; the function's result is sent to the
        generator. The first slice runs at once, so a job of one slice never suspends.
        """
        thread: _Thread | None = None
        try:
            work = next(steps)
            while True:
                if work is None:
                    await self._turn()
                    work = next(steps)
                    continue
                if thread is None:
                    if self._apart == APART_AT_ONCE:
                        await self._waiting.wait()
                    self._apart += 1
                    thread = _Thread()
                # Neither a result, which may be large, nor an error, whose traceback refers to this frame, is kept in a
                # local variable.
                await thread.do(work)
                await self._turn()
                work = thread.hand_over(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            if thread is not None:
                thread.end(self._left)

    async def _turn(self) -> None:
        self._arm()
        await self._ready.wait()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._armed = False
        resume = self._ready.next()
        if self._ready:
            self._arm()
        if resume is not None:
            resume()

    def _left(self) -> None:
        """Resume the next job that waits for a thread, because a job that used a thread has ended."""
        self._apart -= 1
        resume = self._waiting.next()
        if resume is not None:
            resume()


class _Thread:
    """Runs the work of one job in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] | None = None

    async def do(self, work: Callable[[], Any]) -> None:
        self._future = self._loop.run_in_executor(None, work)
        await asyncio.wait([self._future])

    def hand_over(self, steps: Steps[Any]) -> Callable[[], Any] | None:
        """Resume ``steps`` with the result of the work, or its exception. Returns what ``steps`` yields next."""
        future, self._future = self._future, None
        assert future is not None
        error = future.exception()
        if error is None:
            return steps.send(future.result())
        try:
            return steps.throw(error)
        finally:
            del error, future

    def end(self, left: Callable[[], object]) -> None:
        """Call ``left`` in the next turn of the event loop, or when the thread has finished if it still works.

        The thread still works if its job was closed because the node died.
        """
        if self._future is None:
            self._loop.call_soon(left)
        else:
            self._future.add_done_callback(partial(_retrieve, left))


def _retrieve(left: Callable[[], object], future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
    left()


class TurnsApart:
    """Spreads long work that cannot be sliced: callers of `turn` run in different turns of the event loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def turn(self) -> None:
        """Return in a turn of the event loop in which no other call of this method returns."""
        await self._lock.acquire()
        asyncio.get_running_loop().call_soon(self._lock.release)
