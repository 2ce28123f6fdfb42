"""A fixture that fails a test in which a coroutine is resumed after the end of its node's life (`broker.loop.coroutines`).

A coroutine that is never awaited causes Python's RuntimeWarning, which fails the test like every warning.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import pytest

from broker.loop import coroutines
from broker.loop.life import NodeLife

if TYPE_CHECKING:
    from broker.node.context import RequestContext

T = TypeVar("T")


class Misuse:
    """Context manager that collects in ``found`` the misuses of coroutines that `broker.loop.coroutines` reports."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __enter__(self) -> Self:
        self._before = coroutines.misused
        coroutines.misused = lambda event, coroutine: self.found.append(f"{event}: {coroutine!r}")
        return self

    def __exit__(self, *exc_info: object) -> None:
        coroutines.misused = self._before


@pytest.fixture(autouse=True)
def coroutines_as_ruled() -> Iterator[None]:
    with Misuse() as misuse:
        yield
    assert not misuse.found, misuse.found


def handled(handler: Callable[[Any, Any], object], request: object, context: RequestContext) -> Any:
    """Call a handler as a connection does: return its response, or a future of the response."""
    outcome = handler(request, context)
    if hasattr(outcome, "send"):
        return coroutines.start(cast("Coroutine[Any, Any, object]", outcome), context.node.life)
    return outcome


def values_of(coroutine: Coroutine[Any, Any, T], life: NodeLife | None = None) -> list[T]:
    """Start a coroutine without an event loop; return a list, to which the coroutine's value is appended later."""
    values: list[T] = []

    async def run() -> None:
        values.append(await coroutine)

    coroutines.start_in_background(run(), life or NodeLife())
    return values


def served(handler: Callable[[Any, Any], object]) -> Callable[[Any, Any], Any]:
    """Return a function that calls ``handler`` as a connection does, see `handled`."""
    return partial(handled, handler)
