"""Responses that clients have not read yet: one memory budget for all connections of the process.

The bytes of a response that the socket does not accept at once stay in memory until they are sent. Each connection is
bounded (`WRITE_BUFFER_HIGH_BYTES`), but a Fetch response may have 55 MiB (fetch.max.bytes): with forty slow clients the
responses took 866 MiB. So a Fetch reads only as many bytes as remain in the budget. While none remain, the broker serves
no further request of a client that has not read all its responses. A client that has read all its responses is always
served, and its Fetch gets the first batch as a whole (KIP-74), so that it makes progress: each connection may exceed the
budget by one batch.
"""

from __future__ import annotations

from typing import Final

QUEUED_MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
"""The default of odradek.queued.max.response.bytes."""


class ResponseBudget:
    """Counts the bytes of responses that wait for their clients. Only for the thread of the event loop."""

    __slots__ = ("bytes", "limit_bytes")

    def __init__(self, limit_bytes: int = QUEUED_MAX_RESPONSE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0

    @property
    def room_bytes(self) -> int:
        """Bytes that a response may add now; 0 if the budget is used up."""
        return max(0, self.limit_bytes - self.bytes)


UNSENT: Final = ResponseBudget()
"""The budget of this process, whose nodes share its memory; the broker sets the limit at its start."""


# Limit of one connection: above it the client's next request is not served until the client has read all responses. (Kafka
# serves no request before the response to the previous one is sent.)
WRITE_BUFFER_HIGH_BYTES: Final = 256 * 1024


class Unsent:
    """The unsent responses of one connection. They are charged to the budget until the client has read all of them.

    The transport calls ``pause_writing`` at the first byte that the socket does not accept, and ``resume_writing`` when the
    buffer is empty, because its limit for the write buffer is 0.
    """

    __slots__ = ("bytes", "some")

    def __init__(self) -> None:
        self.bytes = 0
        self.some = False
        """True while the socket has not accepted all bytes."""

    def wrote(self, size: int) -> bool:
        """Charge a response to the budget; returns whether the client must read it before its next request is served."""
        self.bytes += size
        UNSENT.bytes += size
        return self.bytes > WRITE_BUFFER_HIGH_BYTES or not UNSENT.room_bytes

    def taken(self) -> None:
        """Remove this connection's charge from the budget: all responses were sent, or the connection was closed."""
        UNSENT.bytes -= self.bytes
        self.bytes, self.some = 0, False
