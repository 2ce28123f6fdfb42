"""Long work on the loop, a slice a turn, for all nodes together; what can run beside the loop goes into a thread.

Threads alone would not do: Python lets one of them run at a time and takes the turn away every 5 ms, so a walk over a
million records in a thread makes each of the loop's steps wait that long. In slices it is half a millisecond, and the order
of things is the same in every run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, TypeVar

from storage.steps import Steps

APART_AT_ONCE: Final = 2
"""Jobs with work in a thread: each may hold a batch's decompressed bytes until it ends."""

T = TypeVar("T")
R = TypeVar("R")
Then = Callable[[Any], object]
"""Called with what the steps return, or with the exception that they raise."""
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


class _Job:
    __slots__ = ("apart", "result", "steps", "then", "work")

    def __init__(self, steps: Steps[Any], then: Then) -> None:
        self.steps = steps
        self.then = then
        self.result: Any = None
        self.work: Callable[[], Any] | None = None
        self.apart = False


class Slices:
    """Any number of jobs; each turn of the loop continues one of them, in turns."""

    def __init__(self) -> None:
        self._ready: deque[_Job] = deque()
        self._waiting: deque[_Job] = deque()
        self._apart = 0
        self._armed = False

    def start(self, steps: Steps[Any], then: Then) -> None:
        """Do the first slice now. If that is all, ``then`` is called before this returns."""
        self._go_on(_Job(steps, then))

    def answer(self, steps: Steps[T]) -> T | asyncio.Future[T]:
        """What the steps return, if they take one slice; otherwise a future of it, for a handler to wait for."""
        try:
            work = next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(outcome: Any) -> None:
            if future.done():
                return  # its connection is gone
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        job = _Job(steps, done)
        job.work = work
        self._queue(job)
        return future

    def _go_on(self, job: _Job) -> None:
        result, job.result = job.result, None
        try:
            if isinstance(result, BaseException):
                try:
                    job.work = job.steps.throw(result)
                finally:
                    del result  # its traceback leads to this frame: the two would keep what the steps have
            else:
                job.work = job.steps.send(result)
        except StopIteration as end:
            self._end(job, end.value)
        except Exception as error:
            self._end(job, error)
        else:
            self._queue(job)

    def _queue(self, job: _Job) -> None:
        """Its next slice is for a later turn, its work for a thread."""
        if job.work is None:
            self._make_ready(job)
        elif job.apart or self._apart < APART_AT_ONCE:
            self._run_apart(job)
        else:
            self._waiting.append(job)

    def _end(self, job: _Job, outcome: object) -> None:
        if job.apart:
            self._apart -= 1
            if self._waiting:
                self._run_apart(self._waiting.popleft())
        # An error's traceback leads to the job, and ``then`` to the future that has the error.
        then = job.then
        del job.then
        then(outcome)

    def _make_ready(self, job: _Job) -> None:
        self._ready.append(job)
        if not self._armed:
            self._armed = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._armed = False
        job = self._ready.popleft()
        if self._ready:
            self._armed = True
            asyncio.get_running_loop().call_soon(self._turn)
        self._go_on(job)

    def _run_apart(self, job: _Job) -> None:
        if not job.apart:
            job.apart = True
            self._apart += 1
        work, job.work = job.work, None
        assert work is not None
        future = asyncio.get_running_loop().run_in_executor(None, work)

        def done(future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                return  # the loop ends
            error = future.exception()
            job.result = future.result() if error is None else error
            self._make_ready(job)

        future.add_done_callback(done)


class TurnsApart:
    """For long pieces of work that no one may cut into slices: one in a turn of the loop, the next in a later turn."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def turn(self) -> None:
        """Return in a turn in which no other one has returned."""
        await self._lock.acquire()
        asyncio.get_running_loop().call_soon(self._lock.release)
