"""One connection from this node to another, and the requests on it.

The waiter of a request gets the response, or None if the connection could not be made, was closed, or brought no response
within ``request.timeout.ms``. With None it is unknown what the other node did with the request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

from broker.clock import Clock, Domain, Timer
from broker.logging import get_logger
from broker.loop.coroutines import Waiter
from broker.loop.transports import reset_transport
from broker.peers.lane import Lane
from protocol.codec import MalformedRequest, read_response, request_frame
from protocol.frame import BadSize, correlation_id_of, whole_frames
from protocol.slotted import slotted

REQUESTS_PENDING_MAX: Final = 1024
"""Maximum number of requests that wait for a response or for the connection: further requests fail at once."""
RECONNECT_BACKOFF_MS: Final = 50
"""Milliseconds from a failed attempt to connect until the next one, as in Kafka's connections between brokers."""
RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024

ProtocolFactory = Callable[[], asyncio.Protocol]
Connect = Callable[[str, int, ProtocolFactory], Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]]

log = get_logger()


@slotted(frozen=True)
class LinkState:
    """Functions that return the state of the link between two nodes; the channel calls them for each transfer."""

    address: Callable[[], tuple[str, int] | None]
    is_cut: Callable[[], bool]
    """Whether the link to the other node is cut, so that nothing reaches it."""
    is_deaf: Callable[[], bool]
    """Whether the link from the other node is cut, so that no response arrives."""
    delay_ms: Callable[[], int]
    delay_back_ms: Callable[[], int]


@slotted(eq=False)
class _Pending:
    api_key: int
    api_version: int
    frame: bytes
    answered: Waiter[Any]
    timer: Timer | None = None


class Channel:
    """A connection to another node. If it is closed, a request opens it, after a pause if the last attempt failed."""

    def __init__(
        self, client_id: str, clock: Clock, connect: Connect, link_state: LinkState, request_timeout_ms: int
    ) -> None:
        self.client_id = client_id
        self._clock = clock
        self._connect = connect
        self._line = link_state
        self._request_timeout_ms = request_timeout_ms
        self._out = Lane(clock, link_state.delay_ms)
        self._back = Lane(clock, link_state.delay_back_ms)
        self._wire: _Wire | None = None
        self._opening: _Wire | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pause: Timer | None = None
        self._queue: deque[int] = deque()
        """Correlation ids of the requests that wait for a connection."""
        self._pending: dict[int, _Pending] = {}
        self._next_id = 0
        self._ended = False

    # -- requests -----------------------------------------------------------------------------------------------

    def send(self, api_key: int, api_version: int, request: Any, answered: Waiter[Any]) -> None:
        """Send a request. ``answered`` gets the response, or None after a failure, but never within this call."""
        if self._ended:
            return
        if len(self._pending) >= REQUESTS_PENDING_MAX or self._line.is_cut():
            asyncio.get_running_loop().call_soon(self._tell, answered, None)
            return
        correlation_id = self._next_id
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        frame = request_frame(api_key, api_version, correlation_id, self.client_id, request)
        pending = _Pending(api_key, api_version, frame, answered)
        pending.timer = self._clock.call_later_ms(
            self._request_timeout_ms, partial(self._timed_out, correlation_id), Domain.REQUESTS
        )
        self._pending[correlation_id] = pending
        if self._wire is not None:
            self._out.put(partial(self._write, self._wire, pending.frame))
        else:
            self._queue.append(correlation_id)
            self._begin_to_connect()

    @property
    def has_ended(self) -> bool:
        return self._ended

    def _tell(self, answered: Waiter[Any], response: Any) -> None:
        if not self._ended:
            answered.wake(response)

    def _write(self, wire: _Wire, frame: bytes) -> None:
        if wire is self._wire and wire.transport is not None:
            wire.transport.write(frame)

    def _timed_out(self, correlation_id: int) -> None:
        """Drop the connection after a request timeout. All its requests fail, as in Kafka: responses come in order."""
        if correlation_id in self._pending:
            log.info("no response from another node", client_id=self.client_id)
            self.drop()

    # -- the connection -----------------------------------------------------------------------------------------

    def _begin_to_connect(self) -> None:
        if self._connecting is None and self._pause is None:
            self._connecting = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        wire = self._opening = _Wire(self)
        try:
            address = self._line.address()
            if address is None or self._line.is_cut() or self._line.is_deaf():
                raise ConnectionError("the other node cannot be reached")
            await self._connect(*address, lambda: wire)
            if self._line.is_cut() or self._line.is_deaf():
                wire.reset()
                raise ConnectionError("the link was cut")
        except (OSError, UnicodeError) as error:
            log.debug("connection to another node failed", client_id=self.client_id, reason=str(error))
            self._connecting = self._opening = None
            self._not_reached()
            return
        self._connecting = self._opening = None
        if self._ended or wire.transport is None:
            wire.reset()
            self._not_reached()
            return
        self._wire = wire
        waiting, self._queue = self._queue, deque()
        for correlation_id in waiting:
            if correlation_id in self._pending:
                self._out.put(partial(self._write, wire, self._pending[correlation_id].frame))

    def _not_reached(self) -> None:
        if self._ended:
            return
        self._pause = self._clock.call_later_ms(RECONNECT_BACKOFF_MS, self._pause_over, Domain.REQUESTS)
        self._fail_all()

    def _pause_over(self) -> None:
        self._pause = None
        if self._queue:
            self._begin_to_connect()

    def lost(self, wire: _Wire) -> None:
        """Fail all requests to the other node, because the connection ``wire`` was closed."""
        if wire is self._wire:
            self._forget_wire()
            self._fail_all()

    def drop(self) -> None:
        """Reset the connection and fail all requests on it."""
        if self._wire is not None:
            self._wire.reset()
            self._forget_wire()
        self._fail_all()

    def check_link(self) -> None:
        """Drop the connection if its link was cut. Called after each change of the links."""
        if (self._wire is not None or self._pending) and self._line.is_cut():
            self.drop()

    def _forget_wire(self) -> None:
        self._wire = None
        self._out.clear()
        self._back.clear()

    def _fail_all(self) -> None:
        failed = list(self._pending.values())
        self._pending.clear()
        self._queue.clear()
        for pending in failed:
            if pending.timer is not None:
                pending.timer.cancel()
        for pending in failed:
            self._tell(pending.answered, None)

    # -- responses ----------------------------------------------------------------------------------------------

    def received(self, wire: _Wire, frame: bytes) -> None:
        if wire is not self._wire:
            return
        if self._line.is_deaf():
            self.drop()  # the other node has handled the request, but the response is lost
        else:
            self._back.put(partial(self._answered, wire, frame))

    def _answered(self, wire: _Wire, frame: bytes) -> None:
        if wire is not self._wire:
            return
        pending = self._pending.pop(correlation_id_of(frame), None)
        if pending is None:
            log.warning("response without a request", client_id=self.client_id)
            self.drop()
            return
        if pending.timer is not None:
            pending.timer.cancel()
        try:
            response = read_response(pending.api_key, pending.api_version, frame)
        except MalformedRequest as error:
            log.warning("malformed response from another node", client_id=self.client_id, reason=str(error))
            self._tell(pending.answered, None)
            self.drop()
            return
        self._tell(pending.answered, response)

    # -- the end ------------------------------------------------------------------------------------------------

    def end(self, *, resets: bool) -> None:
        """Close the channel for good, without waking a waiter. ``resets``: reset the connection, as when a process dies."""
        self._ended = True
        for timer in (self._pause, *(pending.timer for pending in self._pending.values())):
            if timer is not None:
                timer.cancel()
        self._pending.clear()
        self._queue.clear()
        if self._connecting is not None:
            self._connecting.cancel()
        wires = (self._wire, self._opening)
        self._forget_wire()
        for wire in wires:
            if wire is not None:
                wire.reset() if resets else wire.close()


class _Wire(asyncio.Protocol):
    """One TCP connection of a channel: splits the stream into frames."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._received = bytearray()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._channel.has_ended:
            self.reset()  # the node was killed while the connection was being made

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._channel.lost(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            for frame in whole_frames(self._received, RESPONSE_BYTES_MAX):
                self._channel.received(self, frame)
        except BadSize:
            self._channel.drop()

    def reset(self) -> None:
        transport, self.transport = self.transport, None
        if transport is not None:
            with contextlib.suppress(OSError):
                reset_transport(transport)

    def close(self) -> None:
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.close()
