"""One client's connection: splits the stream into frames, and handles one request at a time, in order.

As in Kafka (``SocketServer.scala``, muting of ``SocketChannel``), later requests of the client wait until the response of
the current request is sent. A connection is a state machine that serves the next frame unless there is a reason to
wait. There are seven reasons: a request in progress, a long message that is decoded or encoded in slices, a client that
does not read its responses, the end of the connection's turn, a fault rule, a paused node, and closing. Up to
``BACKLOG_BYTES_MAX`` of further bytes are buffered; then the connection stops reading.
"""

from __future__ import annotations

import asyncio
from functools import partial
from struct import Struct
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, cast

from broker.logging import get_logger
from broker.loop.coroutines import Suspended, begin, start_in_background
from broker.loop.transports import WRITELINES_NEVER_PAUSES, addresses, as_java_writes, reset_transport
from broker.net.calls import Call, CallEvent
from broker.net.connection_limits import (
    ANSWERS_COLLECTED_BYTES,
    ANSWERS_JOINED_BYTES_MAX,
    BACKLOG_BYTES_MAX,
    FRAME_BYTES_PER_TURN,
    REQUESTS_PER_TURN,
)
from broker.net.frame_buffers import TOKEN_BUFFERS, PartialFrame
from broker.net.holds import CLOSED, HELD, IN_PROGRESS, PAUSED, SLICED, TURN_OVER, WRITE_BUFFER_FULL
from broker.net.interception import offer
from broker.net.paused_transport import paused, resumed
from broker.net.refusals import bad_size, refuse
from broker.net.refusals import failed as failed_answer
from broker.net.waiting_request import WaitingRequest
from broker.node.context import ClientInformation, RequestContext
from broker.requests.api import NO_RESPONSE, CloseConnection
from broker.resources.unsent import Unsent
from protocol.codec import MalformedRequest
from protocol.frame import RequestHeader, parse_request_header
from storage.steps import Steps

if TYPE_CHECKING:
    from broker.net.connections import Connections
    from broker.net.routes import Route
    from broker.node import Listener
    from broker.security.sasl.authenticator import SaslServerAuthenticator

FETCH: Final = 1
SIZE: Final = Struct(">i")
SIZE_AND_KEY: Final = Struct(">ih")
SIZE_AND_CORRELATION_ID: Final = Struct(">ii")

Frame = bytes | memoryview
log = get_logger()


class Connection:
    """One client connection. The server creates it for each accepted socket; it ends with ``connection_lost``."""

    __slots__ = (
        "_answers",
        "_answers_bytes",
        "_contexts",
        "_frame",
        "_holds",
        "_kept",
        "_muted",
        "_pending",
        "_reading",
        "_shared",
        "_transport",
        "_unsent",
        "address",
        "authentication",
        "client",
        "connection_id",
        "host",
        "last_active_tick",
        "listener",
        "peer",
        "port",
    )

    def __init__(self, shared: Connections, listener: Listener) -> None:
        self._shared = shared
        self.listener = listener
        self.connection_id = 0
        self.host, self.port, self.peer = "", 0, ""
        self.address = ("", 0)  # the local address, to which the client has connected
        self.authentication: SaslServerAuthenticator | None = None
        self.last_active_tick = shared.tick
        self._transport: asyncio.Transport | None = None
        self._holds, self._reading, self._muted = 0, True, False
        self._kept = b""  # received, and not yet split into frames
        self._frame: PartialFrame | None = None
        self._pending: WaitingRequest | None = None
        self._contexts: dict[int, RequestContext] = {}  # contexts of the last requests, by API and version
        self._answers: list[bytes | memoryview] = []
        self._answers_bytes = 0
        self._unsent = Unsent()

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        (self.host, self.port), self.address = addresses(transport)
        self.peer, self.client = f"/{as_java_writes(self.host)}", ClientInformation(self.port)
        if not self._shared.life.alive:
            # Accepted before the node was killed. The kernel would have reset it at the death of the process.
            self.reset()
            return
        self._transport.set_write_buffer_limits(high=0)  # see Unsent
        security = self._shared.security.get(self.listener.name)
        if security is not None:
            security.begin(self, transport, self._shared.large_tokens.turn)
            self.authentication = self.client.authentication
        refusal = self._shared.admit(self)
        if refusal is not None:
            self.close(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._holds |= CLOSED
        self._transport = None
        self._kept, self._frame = b"", None
        self._answers.clear()
        self._unsent.taken()
        self._shared.forget(self)
        if self.authentication is not None:
            self.authentication.end()
        if self._pending is not None:
            self._pending.client_gone()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared.landing if self._frame is None else self._frame.room()

    def buffer_updated(self, nbytes: int) -> None:
        shared = self._shared
        self.last_active_tick = shared.tick
        if self._frame is not None:
            frame = self._frame
            if (whole := frame.received(nbytes)) is not None:
                self._frame = None
                with whole:
                    self._serve(whole)
                self.write_answers()
                shared.frame_buffers.give_back(frame.buffer)
                if frame.size >= FRAME_BYTES_PER_TURN:
                    # Serve other connections first: the next frame may be as large.
                    self._end_turn(is_large=True)
                    self._start_or_stop_reading()
        elif self._holds:
            self._kept += shared.landing[:nbytes]
            self._give_way()
            self._start_or_stop_reading()
        elif self._kept:
            # The rest of a size field, or bytes buffered at the end of the last turn.
            data, self._kept = self._kept + shared.landing[:nbytes], b""
            self._cut(memoryview(data))
        else:
            self._cut(shared.landing[:nbytes])

    def pause_writing(self) -> None:
        self._unsent.some = True

    def resume_writing(self) -> None:
        self._unsent.taken()
        self._lift(WRITE_BUFFER_FULL)

    # ---- called by the server and by interceptors

    @property
    def is_closed(self) -> bool:
        """Whether the connection handles no further requests. Held requests get no response."""
        return bool(self._holds & CLOSED)

    @property
    def in_progress(self) -> bool:
        """Whether a request waits for its response, or is held or decoded in slices."""
        return self._pending is not None or bool(self._holds & (HELD | SLICED))

    def close(self, reason: str, **facts: object) -> None:
        """Close the connection because of an error or limit, and log the reason."""
        log.warning(
            "connection closed", reason=reason, peer=self.host, connection=self.connection_id, **facts
        )
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection once pending responses are written. A second call aborts the connection."""
        if self._transport is None:
            return
        if self._holds & CLOSED:
            self._transport.abort()
            return
        self.write_answers()
        self._holds |= CLOSED
        self._kept, self._frame = b"", None
        self._transport.close()

    def pause(self) -> None:
        """Stop reading, handling and writing until `resume`. The connection stays open."""
        if self._transport is not None:
            self._holds |= PAUSED
            self._transport = paused(self._transport, reads=self._reading)

    def resume(self) -> None:
        """Continue after `pause`. Bytes that arrived meanwhile are handled first."""
        if self._holds & PAUSED and self._transport is not None:
            self.last_active_tick = self._shared.tick
            self._transport = resumed(self._transport)
            self._lift(PAUSED)

    # ---- frames

    def _cut(self, data: memoryview) -> None:
        """Serve the complete frames in ``data``, and buffer the rest."""
        position, end, served = 0, len(data), 0
        authentication = self.authentication
        limit = self._shared.quotas.request_bytes_max
        while not self._holds and end - position >= SIZE.size:
            (size,) = SIZE.unpack_from(data, position)
            if authentication is not None:
                limit = authentication.frame_bytes_max or self._shared.quotas.request_bytes_max
            if not 0 <= size <= limit:
                bad_size(self, size)
                break
            start = position + SIZE.size
            if size > end - start:
                is_known = authentication is None or authentication.is_complete
                buffers = self._shared.frame_buffers if is_known else TOKEN_BUFFERS
                self._frame = PartialFrame(buffers, size, data[start:])
                position = end
                break
            position = start + size
            # A copy: decoded objects may refer to their frame for long, and the landing buffer is reused.
            self._serve(bytes(data[start:position]))
            served += 1
            if served == REQUESTS_PER_TURN and position < end:
                self._end_turn()
        if position < end and not self._holds & CLOSED:
            self._kept = bytes(data[position:])
            self._give_way()
        if self._answers:
            self._shared.answers.write(self)
        if self._kept or not self._reading or self._holds & WRITE_BUFFER_FULL:
            self._start_or_stop_reading()

    def _end_turn(self, is_large: bool = False) -> None:
        # Otherwise libuv would read from this socket up to 32 times before it continues with the next one.
        self._holds |= TURN_OVER
        call_soon, lift = self._shared.loop.call_soon, partial(self._lift, TURN_OVER)
        call_soon(partial(call_soon, lift) if is_large else lift)

    def _lift(self, hold: int) -> None:
        """Clear one reason to wait (a bit of `broker.net.holds`). Serve buffered frames if no reason remains."""
        self._holds &= ~hold
        kept, self._kept = self._kept, b""
        self._cut(memoryview(kept))

    def _start_or_stop_reading(self) -> None:
        # Do not read from a client that does not read its responses. While a request waits, continue reading within limits:
        # the end of the stream must be noticed, so that a parked Fetch does not outlive its connection.
        wanted = not self._holds & (WRITE_BUFFER_FULL | TURN_OVER) and len(self._kept) < BACKLOG_BYTES_MAX
        if wanted == self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = wanted
        change = self._transport.resume_reading if wanted else self._transport.pause_reading
        change()

    # ---- requests

    def _serve(self, frame: Frame) -> None:
        """Handle one request. The bytes of ``frame`` must not change later, since decoded records are views of it."""
        shared, authentication = self._shared, self.authentication
        assert shared.life.alive, "a node that died has reset all of its connections"
        if authentication is not None and authentication.takes_raw_tokens:
            self._holds |= HELD
            security = shared.security[self.listener.name]
            start_in_background(security.answer_token(self, bytes(frame)), shared.life)
            return
        try:
            header = parse_request_header(frame)
            identity = header.api_key << 16 | header.api_version
            route = shared.routes[identity]
            if route is None:
                refuse(self, header, frame)
                return
            if authentication is not None:
                route = shared.security[self.listener.name].checked(authentication, route)
            request = route.decode_steps(frame, header.body_offset)
        except CloseConnection as error:
            self.close(str(error), **error.facts)
            return
        except MalformedRequest as error:
            self.close("malformed request", error=str(error), bytes=len(frame))
            return
        shared.requests += 1
        context = self._contexts.get(identity)
        if context is None or context.client_id != header.client_id or shared.calls.chain is not None:
            context = self._begin_context(header, identity)
        if isinstance(request, GeneratorType):
            # ``frame`` is released after this call; a view of its own keeps the bytes.
            start_in_background(
                self._decode_long(header, route, memoryview(frame), context, request), shared.life
            )
        elif shared.calls.chain is None:
            self._handle(route, header.correlation_id, request, context, None)
        else:
            self._decoded(header, route, frame, context, request)

    def _begin_context(self, header: RequestHeader, identity: int) -> RequestContext:
        """Return a context for this request. Once the client is authenticated, the context is cached for requests with the
        same API, version and client id, unless there is an interceptor, which may change the context.
        """
        shared = self._shared
        key, version, client_id = header.api_key, header.api_version, header.client_id
        client, ends = self.client, (self.peer, self.connection_id)
        context = RequestContext(
            shared.node, self.listener, key, version, client_id, *ends, client, client.principal
        )
        is_known = self.authentication is None or self.authentication.is_complete
        if is_known and shared.calls.chain is None:
            self._contexts[identity] = context
        return context

    def _decoded(
        self, header: RequestHeader, route: Route, frame: Frame, context: RequestContext, request: Any
    ) -> None:
        interceptors = self._shared.calls.chain
        if interceptors is not None and interceptors.wants(header.api_key):
            offer(self, header, route, frame, request, context)
        else:
            self._handle(route, header.correlation_id, request, context, None)

    async def _decode_long(
        self, header: RequestHeader, route: Route, frame: Frame, context: RequestContext, steps: Steps[Any]
    ) -> None:
        """Decode a request in slices, handle it, and then continue with the next frames."""
        try:
            request = await self._in_slices(steps)
        except Exception as error:
            if not self._holds & CLOSED:
                self.close("malformed request", error=str(error), bytes=len(frame))
            return
        if not self._holds & CLOSED:
            self._decoded(header, route, frame, context, request)
            # Serve buffered frames, unless the request holds them: a waiting handler, a long response.
            self._lift(0)

    async def _in_slices(self, steps: Steps[Any]) -> Any:
        """Run the steps in slices and return their result. The connection handles no other request before they end."""
        self._holds |= SLICED
        try:
            return await self._shared.node.slices.run(steps)
        finally:
            self._holds &= ~SLICED
            self.last_active_tick = self._shared.tick

    def _handle(
        self, route: Route, correlation_id: int, request: Any, context: RequestContext, call: Call | None
    ) -> None:
        try:
            outcome: Any = route.handler(request, context)
            if hasattr(outcome, "send"):  # a coroutine
                outcome = begin(outcome, context.node.life)
        except Exception as error:
            # Not kept in a local variable: its traceback refers to this frame, and the cycle would keep the request alive.
            self._answer(route, correlation_id, error, call)
            return
        if not isinstance(outcome, Suspended):
            self._answer(route, correlation_id, outcome, call)
            return
        self._holds |= IN_PROGRESS
        self._pending = WaitingRequest(self, route, correlation_id, call, outcome)
        if call is not None:
            call.note(CallEvent.DELAYED)

    def proceed(self, call: Call) -> None:
        """Handle a held request. Does nothing if the connection is closed."""
        if self._holds & CLOSED:
            return
        self._handle(call.route, call.header.correlation_id, call.received, call.context, call)
        self._lift(HELD)

    def answer_held(self, call: Call, response: object) -> None:
        """Send a response to a held request without handling it."""
        if self._holds & CLOSED:
            return
        self._answer(call.route, call.header.correlation_id, response, call)
        self._lift(HELD)

    def answer_token(self, token: bytes) -> None:
        """Send the response to a SASL token that came without a request header (after SaslHandshake v0)."""
        if not self._holds & CLOSED:
            self._answers += [SIZE.pack(len(token)), token]
            self._answers_bytes += SIZE.size + len(token)
            self._lift(HELD)

    def mute(self) -> None:
        """Write nothing to the client from now on. Its requests are still handled."""
        self._muted = True
        self._answers.clear()

    def reset(self) -> None:
        """Reset the connection at once, as the death of a process does. Unwritten responses are lost."""
        if self._transport is not None:
            self._answers.clear()
            self._holds |= CLOSED
            self._kept, self._frame = b"", None
            reset_transport(self._transport)

    def _give_way(self) -> None:
        """Make a parked Fetch respond early if another request follows it on the connection; in Kafka the following request
        waits. A parked Fetch does not end for another Fetch, since two Fetches that end each other would be a busy loop.
        """
        if (
            self._pending is not None
            and len(self._kept) >= SIZE_AND_KEY.size
            and SIZE_AND_KEY.unpack_from(self._kept)[1] != FETCH
        ):
            self._pending.give_way()

    # ---- responses

    def _answer(self, route: Route, correlation_id: int, outcome: Any, call: Call | None = None) -> None:
        """Encode and send the result of a request: a response, ``NO_RESPONSE``, or the exception that was raised."""
        if call is not None:
            outcome = call.outcome = call.hooked(outcome)
        if outcome is NO_RESPONSE:
            if call is not None and call.interceptor.answering(call):
                call.note(CallEvent.UNANSWERED)
            return
        chunks: Any = None  # stays None on a closed connection, for example if the node was killed meanwhile
        if not self._holds & CLOSED:
            failed = isinstance(outcome, BaseException)
            try:
                chunks = failed_answer(self, route, outcome) if failed else route.encode_steps(outcome)
            except Exception as error:
                chunks = failed_answer(self, route, error)
        if isinstance(chunks, GeneratorType):
            start_in_background(self._send_long(route, correlation_id, call, chunks), self._shared.life)
        else:
            self._send(route, correlation_id, call, chunks)

    async def _send_long(
        self, route: Route, correlation_id: int, call: Call | None, steps: Steps[Any]
    ) -> None:
        """Encode a response in slices, send it, and then continue with the next frames."""
        try:
            chunks = await self._in_slices(steps)
        except Exception as error:
            if self._holds & CLOSED:
                return
            chunks = failed_answer(self, route, error)
        if not self._holds & CLOSED:
            self._send(route, correlation_id, call, chunks)
            self._lift(0)

    def _send(self, route: Route, correlation_id: int, call: Call | None, chunks: Any) -> None:
        if chunks is None:
            if call is not None:
                call.note(CallEvent.GONE)
            return
        tail = route.header_tail
        size = 4 + len(tail)
        for chunk in chunks:
            size += len(chunk)
        kept_back = self._muted
        if call is not None:
            call.answer = b"".join((correlation_id.to_bytes(4, "big", signed=True), tail, *chunks))
            # The interceptor that saw the request may suppress the response.
            kept_back = not call.interceptor.answering(call) or kept_back
            call.note(CallEvent.KEPT_BACK if kept_back else CallEvent.ANSWERED)
        if kept_back:
            return
        self._answers.append(SIZE_AND_CORRELATION_ID.pack(size, correlation_id) + tail)
        self._answers += chunks
        self._answers_bytes += size
        if self._answers_bytes >= ANSWERS_COLLECTED_BYTES:
            self.write_answers()

    def write_answers(self) -> None:
        """Pass the collected responses to the transport, in one write."""
        if not self._answers or self._transport is None:
            return
        answers, size, self._answers, self._answers_bytes = self._answers, self._answers_bytes, [], 0
        if size < ANSWERS_JOINED_BYTES_MAX or WRITELINES_NEVER_PAUSES:
            self._transport.write(b"".join(answers))
        else:
            self._transport.writelines(answers)
        if self._unsent.some and self._unsent.wrote(size):
            self._holds |= WRITE_BUFFER_FULL
            self._start_or_stop_reading()
