"""Long work on the loop, a slice a turn, for all nodes together; what can run beside the loop goes into a thread.

    async def list_offsets(request, context):
        return await context.node.slices.run(search(request))    # at once, if that is one slice

Threads alone would not do: Python lets one of them run at a time and takes the turn away every 5 ms, so a walk over a
million records in a thread makes each of the loop's steps wait that long to go on. In slices it is half a millisecond, and
the order of things is the same in every run.
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
"""Jobs with work in a thread: each may hold a batch's decompressed bytes until it ends."""

T = TypeVar("T")
R = TypeVar("R")
ELEMENTS_PER_SLICE: Final = 100
"""Of a request's array, answered in one turn where each costs some microseconds."""


def each(elements: Iterable[T], answer: Callable[[T], R]) -> Generator[None, None, list[R]]:
    """An answer for each of the elements of a request; stops after each slice of them."""
    answers: list[R] = []
    for number, element in enumerate(elements, 1):
        answers.append(answer(element))
        if number % ELEMENTS_PER_SLICE == 0:
            yield
    return answers


class _Place(Waiter[None]):
    """A place in a queue. One whose job was closed, as its node died, is passed over."""

    __slots__ = ("is_left",)

    def __init__(self) -> None:
        super().__init__()
        self.is_left = False


class _Queue:
    """Jobs that wait for the same thing, in the order of their coming."""

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
        """What lets the first one go on; None if none waits."""
        while self._places:
            place = self._places.popleft()
            if not place.is_left:
                return partial(place.wake, None)
        return None

    def __len__(self) -> int:
        return len(self._places)


class Slices:
    """Any number of jobs; each turn of the loop continues one of them, in turns."""

    def __init__(self) -> None:
        self._ready = _Queue()
        self._waiting = _Queue()
        self._apart = 0
        self._armed = False

    async def run(self, steps: Steps[T]) -> T:
        """What the steps return. The first slice is done now; if it is the only one, this waits for nothing."""
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
                # A result may be large, and an error's traceback leads to this frame: neither gets a name here.
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
        """A job that had work in a thread has ended."""
        self._apart -= 1
        resume = self._waiting.next()
        if resume is not None:
            resume()


class _Thread:
    """Where a job does work beside the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] | None = None

    async def do(self, work: Callable[[], Any]) -> None:
        self._future = self._loop.run_in_executor(None, work)
        await asyncio.wait([self._future])

    def hand_over(self, steps: Steps[Any]) -> Callable[[], Any] | None:
        """Give the steps the result of their work, or its error."""
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
        """Call ``left`` in the next turn; if the job was closed while its thread works, once that has ended."""
        if self._future is None:
            self._loop.call_soon(left)
        else:
            self._future.add_done_callback(partial(_retrieve, left))


def _retrieve(left: Callable[[], object], future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
    left()


class TurnsApart:
    """For long pieces of work that no one may cut into slices: one in a turn of the loop, the next in a later turn."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def turn(self) -> None:
        """Return in a turn in which no other one has returned."""
        await self._lock.acquire()
        asyncio.get_running_loop().call_soon(self._lock.release)
