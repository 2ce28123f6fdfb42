"""The calls that wait, for coroutines: each runs in a thread of its own while the event loop goes on.

class Rule:
    def wait(self, hits: int = 1) -> Rule: ...

    wait_async = asynchronous(wait)

A call that is cancelled hangs up, so that its thread ends too. What the broker does then is what it does with any caller
that hangs up: an advance of the clock ends where it has got to, all else is carried out.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar, copy_context
from types import FrameType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from odradek.errors import HIDDEN_IN_TRACEBACKS

if TYPE_CHECKING:
    from http.client import HTTPConnection

__tracebackhide__ = HIDDEN_IN_TRACEBACKS

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class UnderWay:
    """A call of a coroutine while its thread carries it out."""

    def __init__(self, caller: FrameType) -> None:
        self.caller = caller
        """The frame that awaits it."""
        self._connection: HTTPConnection | None = None
        self._has_hung_up = False

    def connected(self, connection: HTTPConnection) -> None:
        """Called by the thread for each connection of the call."""
        self._connection = connection
        if self._has_hung_up:
            self.hang_up()

    def hang_up(self) -> None:
        """End the call, now or when it connects. The order of the lines makes a lock needless."""
        self._has_hung_up = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)


UNDER_WAY: Final[ContextVar[UnderWay | None]] = ContextVar("odradek_under_way", default=None)
"""The call of a coroutine that this thread carries out."""


def asynchronous(
    call: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """The method for coroutines, with the same parameters and result."""

    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        method = getattr(self, call.__name__)  # that of a subclass, if it has its own
        return await _in_thread(UnderWay(sys._getframe(1)), lambda: method(*args, **kwargs))

    run.__name__ = f"{call.__name__}_async"
    run.__qualname__ = f"{call.__qualname__}_async"
    run.__doc__ = f"``{call.__name__}`` for coroutines: the event loop goes on meanwhile."
    return run


async def _in_thread(under_way: UnderWay, work: Callable[[], R]) -> R:
    # Not the loop's executor: it has few threads, and a loop that is closed waits for all of them.
    import asyncio
    from concurrent.futures import Future
    from threading import Thread

    context = copy_context()
    context.run(UNDER_WAY.set, under_way)
    future: Future[R] = Future()

    def run() -> None:
        try:
            result = context.run(work)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    future.set_running_or_notify_cancel()
    Thread(target=run, name="odradek call", daemon=True).start()
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        under_way.hang_up()
        raise
