"""How requests wait: in a coroutine that is started eagerly and suspended at a `Waiter`.

`start` runs a coroutine up to the first place where it has to wait. A coroutine that never waits returns its value in
the same turn of the event loop, without a task or future. For a coroutine that waits, `start` returns a future of its
value. The event that the coroutine waits for wakes it by a call, and the coroutine resumes within that call, not in a
later turn.

A suspended coroutine belongs to one life of a node (`broker.loop.life`). When the life ends, the coroutine is closed.

    async def append(partition: Partition) -> ErrorCode:
        result = partition.append_internal(batch)
        committed: Waiter[ErrorCode] = Waiter()
        partition.on_committed(result.last_offset + 1, committed.wake)
        return await committed                   # does not suspend if this node has the only replica

    outcome = start(append(partition), node.life)    # the value, or a future of it

ARCHITECTURE.md, "How this broker waits", has the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from broker.logging import get_logger
from broker.loop.life import LifeOver

if TYPE_CHECKING:
    from broker.loop.life import NodeLife

T = TypeVar("T")
MISSING: Final = object()
"""Value of a waiter that was not woken yet."""

log = get_logger()


class Waiter(Generic[T]):
    """A value for which one coroutine waits. `wake` sets it; the coroutine may ``await`` it before or after.

    Only the first call of `wake` or `fail` has an effect. So different events (committed, timed out) can share one
    waiter.
    """

    __slots__ = ("_error", "_suspended", "_value")

    def __init__(self) -> None:
        self._value: object = MISSING
        self._error: Exception | None = None
        self._suspended: Suspended | None = None

    def done(self) -> bool:
        """Whether `wake` or `fail` was called."""
        return self._value is not MISSING

    def wake(self, value: T) -> None:
        """Resume the coroutine with ``value``. The coroutine runs up to its next wait before this call returns."""
        if self._value is not MISSING:
            return
        self._value = value
        suspended, self._suspended = self._suspended, None
        if suspended is not None:
            suspended.resume()

    def fail(self, error: Exception) -> None:
        """Raise ``error`` in the coroutine. Does nothing if `wake` or `fail` was called before."""
        if self._value is MISSING:
            self._error = error
            del error  # a traceback of the coroutine's later errors may lead to this frame, and must not keep this one alive
            self.wake(cast(T, None))

    # The names of a future's methods, so that a waiter can receive the value of another coroutine (`fork`).
    set_result = wake
    set_exception = fail

    def suspend(self, suspended: Suspended) -> None:
        """Register the coroutine that awaits this waiter. Called only if `wake` was not called yet."""
        assert self._suspended is None, "a waiter is for one coroutine"
        self._suspended = suspended

    def let_go(self) -> None:
        """Forget the coroutine because it was closed: `wake` then resumes nothing."""
        self._suspended = None

    # `await` needs an iterator. The waiter is its own iterator, and yields itself at most once.

    def __await__(self) -> Generator[Any, None, T]:
        return self  # type: ignore[return-value]

    def __iter__(self) -> Waiter[T]:
        return self

    def __next__(self) -> Waiter[T]:
        if self._value is MISSING:
            return self
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # break the cycle with its traceback, which would keep the request's objects alive
        raise StopIteration(self._value)


class Outcome(Protocol):
    """The receiver of a coroutine's value or exception: a future, a `Waiter`, or a waiting request."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: Any, /) -> None: ...


class Suspended:
    """A suspended coroutine, and the receiver of its value. Without a receiver, the coroutine runs in the background."""

    __slots__ = ("_coroutine", "_future", "_life", "waits_at")

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], life: NodeLife, future: Outcome | None = None
    ) -> None:
        self._coroutine = coroutine
        self._life = life
        self._future = future
        self.waits_at: object = None

    def suspend(self, waits_at: object) -> None:
        """Resume the coroutine when ``waits_at``, which it has yielded, is done.

        ``waits_at`` is a `Waiter`, an asyncio future, or None for the next turn of the event loop. If the node's
        life has ended, the coroutine is closed instead.
        """
        if not self._life.alive:
            # The node died while the coroutine was running.
            self.close()
            return
        self.waits_at = waits_at
        self._life.suspended_coroutines[self] = None
        if isinstance(waits_at, Waiter):
            waits_at.suspend(self)
        elif waits_at is None:
            asyncio.get_running_loop().call_soon(self._on_turn)
        else:
            future = cast("asyncio.Future[Any]", waits_at)
            future._asyncio_future_blocking = False
            future.add_done_callback(self._on_turn)

    def _on_turn(self, _: object = None) -> None:
        """Resume in a callback of the event loop, unless the node has died since the callback was scheduled."""
        if self in self._life.suspended_coroutines:
            self.resume()

    def resume(self) -> None:
        """Resume the coroutine at the line where it waits."""
        if self._life.suspended_coroutines.pop(self, self) is self:
            misused("a coroutine was resumed after its node's life", self._coroutine)
            return
        try:
            waits_at = self._coroutine.send(None)
        except StopIteration as end:
            future = self._take_future()
            if future is not None and not future.done():
                future.set_result(end.value)
        except (Exception, asyncio.CancelledError) as error:
            # A task that the coroutine awaits is cancelled at the end of the process. The future is not kept in a local
            # variable: the error's traceback refers to this frame, and would form a cycle.
            _fail(self._take_future(), error)
        else:
            self.suspend(waits_at)

    def tell(self, outcome: Outcome) -> None:
        """Set the receiver of the coroutine's value or exception."""
        self._future = outcome

    def _take_future(self) -> Outcome | None:
        future, self._future = self._future, None
        return future

    def close(self) -> None:
        """Close the coroutine at the line where it waits. Its ``finally`` blocks run, and must not write anything."""
        if isinstance(self.waits_at, Waiter):
            self.waits_at.let_go()
        self._future = None
        try:
            self._coroutine.close()
        except Exception:
            log.exception("a coroutine failed when it was closed")


def start(coroutine: Coroutine[Any, Any, T], life: NodeLife) -> T | asyncio.Future[T]:
    """Run a coroutine up to the first place where it waits. Returns its value if it never waits, else a future of it.

    Raises an exception that the coroutine raises before it waits. Cancelling the future, for example after the client has
    gone, does not stop the coroutine: a request that has begun is handled to its end.
    """
    try:
        waits_at = coroutine.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    Suspended(coroutine, life, future).suspend(waits_at)
    return future


def begin(coroutine: Coroutine[Any, Any, T], life: NodeLife) -> T | Suspended:
    """Like `start`, but returns a `Suspended`, not a future, for callers that must know where the coroutine waits."""
    try:
        waits_at = coroutine.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    suspended = Suspended(coroutine, life)
    suspended.suspend(waits_at)
    return suspended


def fork(coroutine: Coroutine[Any, Any, T], life: NodeLife) -> Waiter[T]:
    """Like `start`, but returns a `Waiter` of the value, for a coroutine that runs beside the caller and is awaited
    later."""
    joined: Waiter[T] = Waiter()
    try:
        waits_at = coroutine.send(None)
    except StopIteration as end:
        joined.wake(end.value)
    else:
        Suspended(coroutine, life, joined).suspend(waits_at)
    return joined


def start_in_background(coroutine: Coroutine[Any, Any, object], life: NodeLife) -> None:
    """Like `start`, for a coroutine that no request waits for. Exceptions are logged. Does nothing if the life has ended."""
    if not life.alive:
        coroutine.close()
        return
    try:
        waits_at = coroutine.send(None)
    except StopIteration:
        return
    except LifeOver:
        return
    except Exception:
        log.exception("a coroutine failed, and no request waits for it")
        return
    Suspended(coroutine, life, None).suspend(waits_at)


def _fail(future: Outcome | None, error: BaseException) -> None:
    if future is not None and not future.done():
        future.set_exception(error)
    elif not isinstance(error, (LifeOver, asyncio.CancelledError)):
        log.error("a coroutine failed, and no request waits for it", exc_info=error)


def _report(event: str, coroutine: object) -> None:
    log.error(event, coroutine=getattr(coroutine, "__qualname__", repr(coroutine)))


misused: Callable[[str, object], None] = _report
"""Called with a message and the coroutine when a coroutine breaks the rules of this module. Logs an error.

Tests replace it with a function that fails the test.
"""
