"""Fetches on their way through the proxy: what their responses may take of the budget of unsent responses (ADR 13).

A node of the upstream answers a Fetch with up to 55 MiB. The proxy holds a response until it is whole and its client
has taken it. So a Fetch passes with a ``max_bytes`` for which there is room, and the budget is charged with it until
the response is there. Each gets a share of the room that the others have left, so all together never ask for more than
the budget. A share may be small: a node answers with the first batch whole in any case (KIP-74), and the client gets
on.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from broker.resources.unsent import UNSENT
from protocol.varint import read_unsigned_varint
from proxy.forwarding import Received
from proxy.rewriting import FETCH, SHARE_FETCH

SHARE: Final = 32
"""A Fetch may take this part of the room: 2 MiB of the whole budget, 84 KiB where a hundred others wait for data."""
FIRST_WITHOUT_REPLICA_ID: Final = 15
INT32: Final = 4


def bounded(key: int, version: int, received: Received) -> tuple[memoryview | bytes, int]:
    """The frame of a request as it goes on, and how many bytes of records its response may have; 0 where it has none."""
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
    """Until the response is there, or never will be. From then on its connection charges what the client has not taken."""
    UNSENT.bytes += size

    def give_back(_: asyncio.Future[Any]) -> None:
        UNSENT.bytes -= size

    response.add_done_callback(give_back)


def _max_bytes_at(key: int, version: int, received: Received) -> int | None:
    """Where it stands in the frame. None: the request has none."""
    at = received.offset
    if key == FETCH:
        # Behind max_wait_ms and min_bytes, in older versions behind the replica id too.
        return at + 2 * INT32 if version >= FIRST_WITHOUT_REPLICA_ID else at + 3 * INT32
    if key == SHARE_FETCH:
        for _ in ("group_id", "member_id"):
            length, at = read_unsigned_varint(received.frame, at)
            at += max(0, length - 1)
        return at + 3 * INT32  # behind the session epoch, max_wait_ms and min_bytes
    return None
