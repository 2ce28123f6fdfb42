"""Large responses of the upstream: each turn of the event loop reads from some of the connections, and all responses are
complete at the end."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from typing import cast

from proxy.wire import LARGE_READ_BYTES, LARGE_READS_PER_TURN, Buffers, Frame, Wire

WIRES = 40
RESPONSE_BYTES = 5 * LARGE_READ_BYTES + 12_345


class FakeTransport(asyncio.Transport):
    """A transport that always has bytes to read until the response is complete."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire
        self._left = struct.pack(">i", RESPONSE_BYTES) + bytes(RESPONSE_BYTES)
        self._reading = True
        wire.connection_made(self)

    def read(self) -> int:
        """Read until the wire pauses, like uvloop in one turn of the event loop. Returns the number of reads."""
        reads = 0
        while self._reading and self._left:
            room = self._wire.get_buffer(-1)
            size = min(len(room), len(self._left))
            room[:size], self._left = self._left[:size], self._left[size:]
            del room  # a buffer that has a view does not grow
            self._wire.buffer_updated(size)
            reads += 1
        return reads

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True


class Owner:
    def __init__(self) -> None:
        self.sizes: Counter[int] = Counter()

    def received(self, frame: Frame) -> None:
        self.sizes[len(frame)] += 1

    def lost(self, reason: str) -> None:
        raise AssertionError(reason)

    def drained(self) -> None:
        pass


async def test_large_responses_take_turns() -> None:
    owner, buffers = Owner(), Buffers()
    transports = [FakeTransport(Wire(owner, buffers)) for _ in range(WIRES)]
    # The first reads of all connections happen in one turn, as they are small.
    assert [transport.read() for transport in transports] == [1] * WIRES
    turns = 0
    while owner.sizes[RESPONSE_BYTES] < WIRES:
        await asyncio.sleep(0)
        assert sum(transport.read() for transport in transports) <= 2 * LARGE_READS_PER_TURN
        turns += 1
        assert turns < 1000, owner.sizes
    assert turns >= WIRES * 5 // LARGE_READS_PER_TURN


async def test_a_connection_that_has_gone_keeps_no_other_waiting() -> None:
    owner, buffers = Owner(), Buffers()
    transports = [FakeTransport(Wire(owner, buffers)) for _ in range(WIRES)]
    for transport in transports:
        transport.read()
    for transport in transports[::2]:
        transport._wire.transport = cast(asyncio.Transport, None)
    for _ in range(1000):
        await asyncio.sleep(0)
        for transport in transports[1::2]:
            transport.read()
    assert owner.sizes == {RESPONSE_BYTES: WIRES // 2}
