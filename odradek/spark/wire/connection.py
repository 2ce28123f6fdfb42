"""One connection to one broker, with pipelined requests: the broker responds in the order of the requests."""

from __future__ import annotations

import math
import socket
import ssl
from collections import deque
from typing import Any

from odradek._protocol.codec import request_frame
from odradek._protocol.frame import BadSize, correlation_id_of, whole_frames
from odradek.spark.wire.errors import ConnectionLost, MalformedAnswer, TimedOut, WireError
from odradek.spark.wire.messages import (
    ANSWER_SIZE_BYTES_MAX,
    Api,
    Versions,
    choose_version,
    decode_answer,
)

_READ_BYTES = 256 * 1024
_CORRELATION_MASK = 0x7FFF_FFFF


class Call:
    """A request, and its response (``answer``) or error.

    ``sent``: the kernel accepted bytes of the request, so the broker may act on the request.
    """

    __slots__ = ("answer", "api", "broker", "correlation_id", "deadline", "error", "sent", "version")

    def __init__(self, api: Api, version: int, broker: str, correlation_id: int, deadline: float) -> None:
        self.api = api
        self.version = version
        self.broker = broker
        self.correlation_id = correlation_id
        self.deadline = deadline
        self.answer: Any = None
        self.error: WireError | None = None
        self.sent = False

    @property
    def done(self) -> bool:
        return self.answer is not None or self.error is not None


class Connection:
    """A connected, authenticated non-blocking socket; ``address`` is host:port."""

    def __init__(self, sock: socket.socket, address: str, versions: Versions, client_id: str) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.address = address
        self.versions = versions
        self.closed = False
        self.closed_because = ""
        self.answered = False
        self._client_id = client_id
        self._next_correlation_id = 0
        self._calls: deque[Call] = deque()
        self._unsent: deque[tuple[Call, memoryview]] = deque()
        self._arrived = bytearray()

    @property
    def outstanding(self) -> int:
        """Number of requests without a response."""
        return len(self._calls)

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    @property
    def deadline(self) -> float:
        """Monotonic time at which the oldest request times out; infinity if there is none."""
        return self._calls[0].deadline if self._calls else math.inf

    def submit(self, api: Api, request: Any, deadline: float) -> Call:
        """Queue a request, send as many bytes as the socket accepts, and return the call to wait for.

        Raises ``UnsupportedVersion`` if the broker has no version of the API that this client needs.
        """
        version = choose_version(api, self.versions, self.address)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_MASK
        frame = request_frame(api.key, version, correlation_id, self._client_id, request)
        call = Call(api, version, self.address, correlation_id, deadline)
        self._calls.append(call)
        self._unsent.append((call, memoryview(frame)))
        self.write()
        return call

    def write(self) -> None:
        """Send queued bytes until the socket accepts no more."""
        try:
            while self._unsent:
                call, left = self._unsent[0]
                taken = self.socket.send(left)
                call.sent = True
                if taken == len(left):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = (call, left[taken:])
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self.close(f"the connection to {self.address} broke: {error}")

    def read(self) -> None:
        """Read all bytes that have arrived, and complete the calls with their responses."""
        try:
            while True:
                data = self.socket.recv(_READ_BYTES)
                if not data:
                    self.close(f"the broker at {self.address} closed the connection")
                    return
                self._arrived += data
                if not self._take_frames():
                    return
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self.close(f"the connection to {self.address} broke: {error}")

    def _take_frames(self) -> bool:
        """Handle all complete frames that have arrived; return False if one was invalid, and close the connection."""
        try:
            return all(self._settle(frame) for frame in whole_frames(self._arrived, ANSWER_SIZE_BYTES_MAX))
        except BadSize as bad:
            self.close(f"the broker at {self.address} announced a response of {bad.size} bytes")
            return False

    def _settle(self, frame: bytes) -> bool:
        if not self._calls or correlation_id_of(frame) != self._calls[0].correlation_id:
            self.close(f"the broker at {self.address} sent a response that belongs to no request")
            return False
        call = self._calls[0]
        try:
            call.answer = decode_answer(call.api, call.version, frame, self.address)
        except MalformedAnswer as error:
            # The frame was complete, so the connection is usable, and the same request would get the same response.
            call.error = error
        self._calls.popleft()
        self.answered = True
        return True

    def expire(self, now: float) -> None:
        """Close the connection if its oldest request has timed out: the late response would belong to no request."""
        if self._calls and now >= self._calls[0].deadline:
            self.close(
                f"the broker at {self.address} did not respond to {self._calls[0].api.name} in time",
                late=True,
            )

    def close(self, reason: str = "the client closed the connection", *, late: bool = False) -> None:
        """Close the socket; every call without a response fails with ``reason`` (``late``: as timed out)."""
        if self.closed:
            return
        self.closed = True
        self.closed_because = reason
        self.socket.close()
        for call in self._calls:
            call.error = (
                TimedOut("REQUEST_TIMED_OUT", reason) if late else ConnectionLost(reason, sent=call.sent)
            )
        self._calls.clear()
        self._unsent.clear()
