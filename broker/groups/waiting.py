"""What follows from answers that are there at once, or later. Only the later ones cost futures; none costs a task.

A client that goes cancels what it waits for, and that only: the answer before it, which may be a member's, stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")


def then(result: T | asyncio.Future[T], finish: Callable[[T], R]) -> R | asyncio.Future[R]:
    """``finish`` of the result, now or once it is there."""
    if not isinstance(result, asyncio.Future):
        return finish(result)
    following: asyncio.Future[R] = result.get_loop().create_future()
    result.add_done_callback(partial(_arrived, following, finish))
    return following


def _arrived(following: asyncio.Future[R], finish: Callable[[T], R], result: asyncio.Future[T]) -> None:
    if following.done():
        return
    try:
        following.set_result(finish(result.result()))
    except asyncio.CancelledError:
        following.cancel()
    except Exception as error:
        following.set_exception(error)


def all_of(
    results: Sequence[T | asyncio.Future[T]], finish: Callable[[Sequence[T]], R]
) -> R | asyncio.Future[R]:
    """``finish`` of all results, now or once the last of them is there."""
    later = [result for result in results if isinstance(result, asyncio.Future)]
    if not later:
        return finish(cast(Sequence[T], results))

    def finish_all(_: list[T]) -> R:
        return finish([each.result() if isinstance(each, asyncio.Future) else each for each in results])

    return then(asyncio.gather(*later), finish_all)
