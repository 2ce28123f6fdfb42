"""The upstream connection of one client's connection: opened at its first request, closed with it.

The client's connection has one request under way at a time, so the frames pass with the correlation ids that the client
gave them, and responses come in the order of the requests.
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
"""In a request; in a response it stands at the start."""

Read = Callable[[Frame], Any]
"""What becomes of a response: the outcome of its request, or an awaitable of it."""


class Far(Protocol):
    """The node at the far end."""

    @property
    def in_words(self) -> str:
        """For log lines: node 2 of the upstream (kafka-2:9092)."""
        ...

    @property
    def buffers(self) -> Buffers: ...

    async def dial(self, factory: Callable[[], Wire]) -> None:
        """Connect; ``OSError`` if that cannot be."""
        ...

    def note(self, *, reachable: bool) -> None:
        """What the last attempt to connect came to."""
        ...


@slotted(eq=False)
class _Pending:
    correlation_id: bytes
    read: Read
    future: asyncio.Future[Any]


class Link:
    """See above. ``on_lost`` is called when the far end ends it while no request is under way."""

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
        """Requests that wait for the connection."""
        self._pending: deque[_Pending] = deque()
        self._drained: list[asyncio.Future[NoResponse]] = []
        self._reading: set[asyncio.Future[Any]] = set()
        self._ended: str | None = None

    @property
    def has_ended(self) -> bool:
        return self._ended is not None

    def request(self, frame: Frame, read: Read) -> asyncio.Future[Any]:
        """Send a request; the future has what ``read`` makes of the response, or `CloseConnection`."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._ended is not None:
            future.set_exception(CloseConnection(self._ended))
            return future
        self._pending.append(_Pending(bytes(frame[CORRELATION_ID]), read, future))
        self._send(frame)
        return future

    def tell(self, frame: Frame) -> NoResponse | asyncio.Future[NoResponse]:
        """Send a request that gets no response; a future while the far end does not take what it was sent."""
        if self._ended is not None:
            raise CloseConnection(self._ended)
        self._send(frame)
        if self._wire is not None and not self._wire.is_full:
            return NO_RESPONSE
        drained: asyncio.Future[NoResponse] = asyncio.get_running_loop().create_future()
        self._drained.append(drained)
        return drained

    def close(self) -> None:
        """The client has gone; what was sent is on its way."""
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
        except (OSError, UnicodeError) as error:  # TimeoutError is one
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

    # ---- what the wire tells

    def received(self, frame: Frame) -> None:
        if not self._pending or frame[:4] != self._pending[0].correlation_id:
            wire, self._wire = self._wire, None
            if wire is not None:
                wire.close()
            self._end(f"{self._far.in_words} sent a response to no request")
            return
        pending = self._pending.popleft()
        if pending.future.done():
            return  # the client has gone
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
        """A response has come to nothing. One that cannot be read is the upstream's fault, and no defect of the proxy."""
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
        return os.strerror(error.errno)  # the loop's own words repeat the address
    return str(error) or "it does not answer"
