"""An answer that may be ready at once or later, without a task for the common case that it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from protocol.slotted import slotted

T = TypeVar("T")
MISSING = object()
"""The value of an answer that is not there yet."""


@slotted(frozen=True)
class _Failure:
    error: Exception


class Deferred(Generic[T]):
    """Resolved by a callback; ``outcome`` is the value itself when that has happened, else a future of it.

    >>> answer: Deferred[int] = Deferred()
    >>> answer.resolve(7)
    >>> answer.outcome()
    7
    """

    __slots__ = ("_future", "_value")

    def __init__(self) -> None:
        self._value: object = MISSING
        self._future: asyncio.Future[T] | None = None

    def resolve(self, value: T) -> None:
        """Give the answer. Later ones are ignored: a request that timed out may still be completed."""
        if self._value is not MISSING:
            return
        self._value = value
        if self._future is not None and not self._future.done():
            self._future.set_result(value)

    def fail(self, error: Exception) -> None:
        """There will be no value: the caller that waits for it gets the exception."""
        if self._value is not MISSING:
            return
        self._value = _Failure(error)
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)

    def guarded(self, callback: Callable[[], object]) -> Callable[[], None]:
        """``callback``; an exception in it is the answer, whatever turn of the loop it runs in."""

        def run() -> None:
            try:
                callback()
            except Exception as error:
                self.fail(error)

        return run

    def outcome(self) -> T | asyncio.Future[T]:
        if isinstance(self._value, _Failure):
            raise self._value.error
        if self._value is not MISSING:
            return self._value  # type: ignore[return-value]
        self._future = asyncio.get_running_loop().create_future()
        return self._future
