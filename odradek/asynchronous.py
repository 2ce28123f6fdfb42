"""Blocking calls as coroutines: each call runs in a thread of its own, and the event loop keeps running.

class Rule:
    def wait(self, hits: int = 1) -> Rule: ...

    wait_async = asynchronous(wait)

Cancelling the coroutine closes the connection of the call, so that its thread ends. The broker then
stops an advance of the clock at the time that it has reached. It completes a call of any other kind.
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


class CallInThread:
    """A blocking call that a thread makes for a coroutine."""

    def __init__(self, caller: FrameType) -> None:
        self.caller = caller
        """The stack frame that awaits the call."""
        self._connection: HTTPConnection | None = None
        self._has_hung_up = False

    def connected(self, connection: HTTPConnection) -> None:
        """Register the connection of the call. The thread calls this for each connection that it opens."""
        self._connection = connection
        if self._has_hung_up:
            self.hang_up()

    def hang_up(self) -> None:
        """Close the connection of the call now, or as soon as it is open.

        A lock is unnecessary: this method sets ``_has_hung_up`` and then reads ``_connection``. `connected` first sets
        ``_connection`` and then reads ``_has_hung_up``.
        """
        self._has_hung_up = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)


CURRENT_CALL: Final[ContextVar[CallInThread | None]] = ContextVar("odradek_current_call", default=None)
"""The call that the current thread makes for a coroutine; None in other threads."""


def asynchronous(
    call: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Return a coroutine method that runs ``call`` in a thread, with the same parameters and result."""

    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        method = getattr(self, call.__name__)  # a subclass may override the method
        return await _in_thread(CallInThread(sys._getframe(1)), lambda: method(*args, **kwargs))

    run.__name__ = f"{call.__name__}_async"
    run.__qualname__ = f"{call.__qualname__}_async"
    run.__doc__ = f"``{call.__name__}`` as a coroutine: the event loop keeps running while it waits."
    return run


async def _in_thread(pending_call: CallInThread, work: Callable[[], R]) -> R:
    # Not the loop's executor: it has few threads, and closing the loop waits for all of them.
    import asyncio
    from concurrent.futures import Future
    from threading import Thread

    context = copy_context()
    context.run(CURRENT_CALL.set, pending_call)
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
        pending_call.hang_up()
        raise
