"""Answers that are there at once, or later. Only the later ones cost a future, and a task to await it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")


class Reply(Generic[T]):
    """The answer to one request. Whoever asks for it before it was given gets a future."""

    __slots__ = ("_answer", "_future")

    def __init__(self) -> None:
        self._answer: list[T] = []
        self._future: asyncio.Future[T] | None = None

    def give(self, answer: T) -> None:
        if self._future is None:
            self._answer.append(answer)
        elif not self._future.done():
            # The client may have gone; its member stays until the session ends.
            self._future.set_result(answer)

    def result(self) -> T | Awaitable[T]:
        if self._answer:
            return self._answer[0]
        self._future = asyncio.get_running_loop().create_future()
        return self._future


def then(result: T | Awaitable[T], finish: Callable[[T], R]) -> R | Awaitable[R]:
    """``finish`` of the result, now or once it is there."""
    if isinstance(result, Awaitable):
        return _wait(result, finish)
    return finish(result)


async def _wait(result: Awaitable[T], finish: Callable[[T], R]) -> R:
    return finish(await result)


def all_of(results: Sequence[T | Awaitable[T]], finish: Callable[[Sequence[T]], R]) -> R | Awaitable[R]:
    """``finish`` of all results, now or once the last of them is there."""
    if any(isinstance(result, Awaitable) for result in results):
        return _wait_for_all(results, finish)
    return finish(cast(Sequence[T], results))


async def _wait_for_all(results: Sequence[T | Awaitable[T]], finish: Callable[[Sequence[T]], R]) -> R:
    answers: list[Any] = [await result if isinstance(result, Awaitable) else result for result in results]
    return finish(answers)
