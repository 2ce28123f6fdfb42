"""Limits the size of Fetch responses to the budget of unsent responses (ADR 13).

An upstream node may send a Fetch response of up to 55 MiB. The proxy holds a response until it is complete and its client
has read it. So the proxy reduces the ``max_bytes`` of a Fetch to a share of the remaining budget, and charges that share to
the budget until the response arrives. Since each Fetch gets only a share of what remains, all Fetches together never request
more than the budget. The share may be small: a node sends the first batch completely in any case (KIP-74), so the client
makes progress.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from broker.resources.unsent import UNSENT
from protocol.varint import read_unsigned_varint
from proxy.forwarding import Received
from proxy.rewriting import FETCH, SHARE_FETCH

SHARE: Final = 32
"""A Fetch gets 1/32 of the remaining budget: 2 MiB of a full one, 84 KiB if a hundred others wait for data."""
FIRST_WITHOUT_REPLICA_ID: Final = 15
INT32: Final = 4


def bounded(key: int, version: int, received: Received) -> tuple[memoryview | bytes, int]:
    """Return the frame to send, and the maximum bytes of records in its response.

    The frame has a lower ``max_bytes`` than ``received`` if the client requests more than its share. The maximum
    is 0 if the request has no ``max_bytes``.
    """
    at = _max_bytes_at(key, version, received)
    frame = received.frame
    if at is None or at + INT32 > len(frame):
        return frame, 0
    asked = int.from_bytes(frame[at : at + INT32], "big", signed=True)
    granted = max(1, UNSENT.room_bytes // SHARE)
    if asked <= granted:
        return frame, max(0, asked)
    return b"".join((frame[:at], granted.to_bytes(INT32, "big"), frame[at + INT32 :])), granted


def charge(size: int, response: asyncio.Future[Any]) -> None:
    """Charge bytes to the budget until the response arrives or fails. From then on the client's connection charges them."""
    UNSENT.bytes += size

    def give_back(_: asyncio.Future[Any]) -> None:
        UNSENT.bytes -= size

    response.add_done_callback(give_back)


def _max_bytes_at(key: int, version: int, received: Received) -> int | None:
    """Position of ``max_bytes`` in the frame; None if the request has none."""
    at = received.offset
    if key == FETCH:
        # max_bytes follows max_wait_ms and min_bytes, in older versions also the replica id.
        return at + 2 * INT32 if version >= FIRST_WITHOUT_REPLICA_ID else at + 3 * INT32
    if key == SHARE_FETCH:
        for _ in ("group_id", "member_id"):
            length, at = read_unsigned_varint(received.frame, at)
            at += max(0, length - 1)
        return at + 3 * INT32  # behind session epoch, max_wait_ms, min_bytes
    return None
