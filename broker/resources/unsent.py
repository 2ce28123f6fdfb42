"""Responses that clients have not taken yet: one budget for all connections of the process.

A response whose bytes the socket does not take at once stays in memory until it has left. Each connection alone is bounded
(`WRITE_BUFFER_HIGH_BYTES`), but a Fetch may answer with 55 MiB (fetch.max.bytes), and forty slow readers held 866 MiB. So
records are read only for what is left of the budget, and while nothing is left no further request is served to a client that
has not taken what it was answered. A client that has taken everything is always served, and a Fetch of its gets the first
batch whole (KIP-74), so that it gets on: by that much for each connection the budget may be exceeded.
"""

from __future__ import annotations

from typing import Final

QUEUED_MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
"""The default of odradek.queued.max.response.bytes."""


class ResponseBudget:
    """How many bytes of responses wait for their clients. It belongs to the thread of the loop."""

    __slots__ = ("bytes", "limit_bytes")

    def __init__(self, limit_bytes: int = QUEUED_MAX_RESPONSE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0

    @property
    def room_bytes(self) -> int:
        """What a response may bring into memory now; 0 if the budget is used up."""
        return max(0, self.limit_bytes - self.bytes)


UNSENT: Final = ResponseBudget()
"""Of this process, all of whose nodes share its memory; the broker sets the limit at its start."""


# Of one connection: above this its client is served no further request until it has taken all. (Kafka serves none before
# the response to the last one is sent.)
WRITE_BUFFER_HIGH_BYTES: Final = 256 * 1024


class Unsent:
    """The responses that the client of one connection has not taken whole. They stay in memory until it has taken all.

    The transport tells of the first byte that the socket does not take (``pause_writing``), and of the last that it takes:
    its limit for the write buffer is 0.
    """

    __slots__ = ("bytes", "some")

    def __init__(self) -> None:
        self.bytes = 0
        self.some = False
        """Has the socket not taken all?"""

    def wrote(self, size: int) -> bool:
        """Charge a response to the budget; must the client take it before it is served again?"""
        self.bytes += size
        UNSENT.bytes += size
        return self.bytes > WRITE_BUFFER_HIGH_BYTES or not UNSENT.room_bytes

    def taken(self) -> None:
        """All has left, or never will."""
        UNSENT.bytes -= self.bytes
        self.bytes, self.some = 0, False
