"""The one way in which a request waits: a coroutine, started eagerly, suspended at a `Waiter`.

`start` runs a coroutine up to the first place where it has to wait. One that never waits gives its value in the same turn of
the loop, without a task and without a future; one that waits becomes one future of its value. What it waits for wakes it by
a call, and it goes on in the turn of that call: the order of steps is the order of the lines, on whatever turn they run.

A suspended coroutine belongs to one life of a node (`broker.loop.life`) and is closed with it, at the line where it waits.

    async def append(partition: Partition) -> ErrorCode:
        result = partition.append_internal(batch)
        committed: Waiter[ErrorCode] = Waiter()
        partition.on_committed(result.last_offset + 1, committed.wake)
        return await committed                   # at once where this node is the only replica

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
"""The value of a waiter that has not been woken."""

log = get_logger()


class Waiter(Generic[T]):
    """A place where one coroutine waits for one value. The first call of `wake` counts; it may come before the `await`.

    So what may end in several ways (committed, out of time) gives the same waiter to all of them.
    """

    __slots__ = ("_error", "_suspended", "_value")

    def __init__(self) -> None:
        self._value: object = MISSING
        self._error: Exception | None = None
        self._suspended: Suspended | None = None

    def done(self) -> bool:
        """`wake` or `fail` was called."""
        return self._value is not MISSING

    def wake(self, value: T) -> None:
        """Resume the coroutine with ``value``, in this turn; it runs up to where it waits next before this returns."""
        if self._value is not MISSING:
            return
        self._value = value
        suspended, self._suspended = self._suspended, None
        if suspended is not None:
            suspended.resume()

    def fail(self, error: Exception) -> None:
        """Resume the coroutine with an exception."""
        if self._value is MISSING:
            self._error = error
            del error  # what the coroutine makes of it may have a traceback that leads to this frame
            self.wake(cast(T, None))

    # As a future has them, for the value of a coroutine that runs beside another (`fork`).
    set_result = wake
    set_exception = fail

    def suspend(self, suspended: Suspended) -> None:
        """The coroutine has come here, and `wake` was not called yet."""
        assert self._suspended is None, "a waiter is for one coroutine"
        self._suspended = suspended

    def let_go(self) -> None:
        """The coroutine is closed: `wake` resumes nothing any more."""
        self._suspended = None

    # `await` asks for an iterator: the waiter is its own, which yields itself once at most.

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
                del error  # its traceback leads to this frame: the two would keep what the request has
        raise StopIteration(self._value)


class Outcome(Protocol):
    """What is told the value of a coroutine: a future, a `Waiter`, a request that waits."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: Any, /) -> None: ...


class Suspended:
    """A coroutine that waits, and what is told its value; without this it runs in the background."""

    __slots__ = ("_coroutine", "_future", "_life", "waits_at")

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], life: NodeLife, future: Outcome | None = None
    ) -> None:
        self._coroutine = coroutine
        self._life = life
        self._future = future
        self.waits_at: object = None

    def suspend(self, waits_at: object) -> None:
        """It has yielded what it waits for: a `Waiter`, a future of asyncio, or None for the next turn of the loop."""
        if not self._life.alive:
            # It was running while its node died: it ends here as all others did.
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
        """The loop calls what it had taken in before the node died, too."""
        if self in self._life.suspended_coroutines:
            self.resume()

    def resume(self) -> None:
        """Go on at the line where it waits."""
        if self._life.suspended_coroutines.pop(self, self) is self:
            misused("a coroutine was resumed after its node's life", self._coroutine)
            return
        try:
            waits_at = self._coroutine.send(None)
        except StopIteration as end:
            future = self._take_future()
            if future is not None and not future.done():
                future.set_result(end.value)
        except (Exception, asyncio.CancelledError) as error:  # a task that it awaited ends with the process
            # Its traceback leads to this frame: no future in it, which would keep the error, and what the request has.
            _fail(self._take_future(), error)
        else:
            self.suspend(waits_at)

    def tell(self, outcome: Outcome) -> None:
        """Give its value, or its exception, to ``outcome``."""
        self._future = outcome

    def _take_future(self) -> Outcome | None:
        future, self._future = self._future, None
        return future

    def close(self) -> None:
        """End it at the line where it waits: its ``finally`` runs, and writes nothing."""
        if isinstance(self.waits_at, Waiter):
            self.waits_at.let_go()
        self._future = None
        try:
            self._coroutine.close()
        except Exception:
            log.exception("a coroutine failed when it was closed")


def start(coroutine: Coroutine[Any, Any, T], life: NodeLife) -> T | asyncio.Future[T]:
    """Run a coroutine up to where it waits first: its value if it never does, otherwise a future of it.

    Raises what the coroutine raises before it waits. A future that is cancelled, as the client has gone, does not stop the
    coroutine: what was decided is carried out.
    """
    try:
        waits_at = coroutine.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    Suspended(coroutine, life, future).suspend(waits_at)
    return future


def begin(coroutine: Coroutine[Any, Any, T], life: NodeLife) -> T | Suspended:
    """The same for one that has to know where the coroutine waits: its value, or what `Suspended.tell` is called of."""
    try:
        waits_at = coroutine.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    suspended = Suspended(coroutine, life)
    suspended.suspend(waits_at)
    return suspended


def fork(coroutine: Coroutine[Any, Any, T], life: NodeLife) -> Waiter[T]:
    """The same for a coroutine that runs beside the one which calls, and which awaits the waiter of its value."""
    joined: Waiter[T] = Waiter()
    try:
        waits_at = coroutine.send(None)
    except StopIteration as end:
        joined.wake(end.value)
    else:
        Suspended(coroutine, life, joined).suspend(waits_at)
    return joined


def start_in_background(coroutine: Coroutine[Any, Any, object], life: NodeLife) -> None:
    """The same for what no request waits for: an exception is logged. In a life that is over nothing is started."""
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
"""Called where the rules are broken. Tests replace it, and fail."""
