"""The upstream connection for one client connection: opened at its first request, closed with it.

A client connection has one request in progress at a time. So frames are forwarded with the client's correlation ids, and
responses arrive in the order of the requests.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from broker.requests.api import NO_RESPONSE, CloseConnection, NoResponse
from protocol.codec import MalformedRequest
from protocol.slotted import slotted
from proxy.wire import Buffers, Frame, Wire

CONNECT_S_MAX: Final = 10.0
CORRELATION_ID: Final = slice(4, 8)
"""Position of the correlation id in a request. In a response it is at the start."""

Read = Callable[[Frame], Any]
"""Converts a response frame to the outcome of the request, or to an awaitable of it."""


class Far(Protocol):
    """The upstream node that the proxy connects to for a client's connection."""

    @property
    def in_words(self) -> str:
        """Name for log lines, such as: node 2 of the upstream (kafka-2:9092)."""
        ...

    @property
    def buffers(self) -> Buffers: ...

    async def dial(self, factory: Callable[[], Wire]) -> None:
        """Connect to the upstream node. Raises ``OSError`` if that fails."""
        ...

    def note(self, *, reachable: bool) -> None:
        """Note whether the last attempt to connect was successful."""
        ...


@slotted(eq=False)
class _Pending:
    correlation_id: bytes
    read: Read
    future: asyncio.Future[Any]


class Link:
    """One upstream connection. ``on_lost`` is called if the upstream closes it while no request is in progress."""

    __slots__ = (
        "_connecting",
        "_drained",
        "_ended",
        "_far",
        "_on_lost",
        "_pending",
        "_queue",
        "_reading",
        "_wire",
    )

    def __init__(self, far: Far, on_lost: Callable[[], object] = lambda: None) -> None:
        self._far = far
        self._on_lost = on_lost
        self._wire: Wire | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._queue: list[Frame] = []
        """Requests that wait for the connection to open."""
        self._pending: deque[_Pending] = deque()
        self._drained: list[asyncio.Future[NoResponse]] = []
        self._reading: set[asyncio.Future[Any]] = set()
        self._ended: str | None = None

    @property
    def has_ended(self) -> bool:
        return self._ended is not None

    def request(self, frame: Frame, read: Read) -> asyncio.Future[Any]:
        """Send a request. The future has the result of ``read`` for the response, or the exception `CloseConnection`."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._ended is not None:
            future.set_exception(CloseConnection(self._ended))
            return future
        self._pending.append(_Pending(bytes(frame[CORRELATION_ID]), read, future))
        self._send(frame)
        return future

    def tell(self, frame: Frame) -> NoResponse | asyncio.Future[NoResponse]:
        """Send a request to which the upstream sends no response.

        Returns a future if the socket cannot take more bytes now.
        """
        if self._ended is not None:
            raise CloseConnection(self._ended)
        self._send(frame)
        if self._wire is not None and not self._wire.is_full:
            return NO_RESPONSE
        drained: asyncio.Future[NoResponse] = asyncio.get_running_loop().create_future()
        self._drained.append(drained)
        return drained

    def close(self) -> None:
        """Close the connection, because the client has gone. Requests that were sent still reach the upstream."""
        self._end("its client's connection has ended")
        if self._connecting is not None:
            self._connecting.cancel()
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _send(self, frame: Frame) -> None:
        if self._wire is not None:
            self._wire.send(frame)
            return
        self._queue.append(frame)
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        wire = Wire(self, self._far.buffers)
        try:
            await asyncio.wait_for(self._far.dial(lambda: wire), CONNECT_S_MAX)
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            self._far.note(reachable=False)
            self._end(f"{self._far.in_words} cannot be reached: {_reason(error)}")
            return
        self._far.note(reachable=True)
        if self._ended is not None:
            wire.close()
            return
        self._wire = wire
        waiting, self._queue = self._queue, []
        for frame in waiting:
            wire.send(frame)
        if not wire.is_full:
            self.drained()

    # -- called by the wire -----------------------------------------------------------------------------------------

    def received(self, frame: Frame) -> None:
        if not self._pending or frame[:4] != self._pending[0].correlation_id:
            wire, self._wire = self._wire, None
            if wire is not None:
                wire.close()
            self._end(f"{self._far.in_words} sent a response to no request")
            return
        pending = self._pending.popleft()
        if pending.future.done():
            return  # the client's connection has ended
        try:
            outcome = pending.read(frame)
        except Exception as error:
            self._fail(pending.future, error)
            return
        if hasattr(outcome, "__await__"):
            reading = asyncio.ensure_future(outcome)
            self._reading.add(reading)
            reading.add_done_callback(partial(self._read, pending.future))
        else:
            pending.future.set_result(outcome)

    def _read(self, future: asyncio.Future[Any], reading: asyncio.Future[Any]) -> None:
        self._reading.discard(reading)
        if future.done() or reading.cancelled():
            return
        error = reading.exception()
        if error is None:
            future.set_result(reading.result())
        else:
            self._fail(future, error)

    def _fail(self, future: asyncio.Future[Any], error: BaseException) -> None:
        """Fail a request whose response could not be processed.

        A malformed response is an error of the upstream: the client's connection is closed without a traceback.
        """
        if isinstance(error, MalformedRequest):
            reason = f"{self._far.in_words} sent a response that cannot be read"
            future.set_exception(CloseConnection(reason, error=str(error)))
            self.close()
        else:
            future.set_exception(error)

    def lost(self, reason: str) -> None:
        self._wire = None
        idle = not self._pending
        self._end(f"{self._far.in_words} {reason}")
        if idle:
            self._on_lost()

    def drained(self) -> None:
        waiting, self._drained = self._drained, []
        for future in waiting:
            if not future.done():
                future.set_result(NO_RESPONSE)

    def _end(self, reason: str) -> None:
        if self._ended is not None:
            return
        self._ended = reason
        failed = [pending.future for pending in self._pending]
        waiting: list[asyncio.Future[Any]] = [*failed, *self._drained]
        self._pending.clear()
        self._drained.clear()
        self._queue.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(CloseConnection(reason))


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, ConnectionError) and error.errno is not None:
        return os.strerror(error.errno)  # the event loop's text would repeat the address
    return str(error) or "it does not respond"
