"""Consumers that fetch from followers (KIP-392), and a topic with unclean elections.

No consumer may get uncommitted records of this topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from protocol.batch import build_batch
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulation.clients import Stop
from tests.simulation.consumers import FETCH, Reader
from tests.simulation.ledger import Spot, View
from tests.simulation.wire import NONE, Gone, Wire

DRAFTS: Final = "drafts"
"""A topic with min.insync.replicas=1 and unclean elections: its records may be lost, unlike those of the other topics."""
DRAFTS_SETTINGS: Final = "min.insync.replicas=1"
PRODUCE: Final = 0
WAITS_MS: Final = (0, 2_000)
READ_PAUSE_S: Final = (0.1, 1.5)
SEND_PAUSE_S: Final = (0.1, 2.0)


class FollowerReader(Reader):
    """A consumer that sends each Fetch to a random node, leader or follower."""

    def __init__(self, wire: Wire, spot: Spot, isolation: str, view: View | None, *, loses: bool) -> None:
        """``loses``: whether records of this partition may be lost, including records that the consumer has read."""
        super().__init__(wire, spot, isolation)
        self._seen = view
        self._loses = loses

    async def fetch_anywhere(self) -> list[tuple[int, bytes]]:
        """Send one Fetch to a random node and return the new records, if any. Raises ``Gone`` without a response."""
        with suppress(Gone):
            await self.wire.leader(*self.spot)
        if not self.wire.nodes:
            raise Gone("no addresses of nodes are known")
        node_id = self.wire.random.choice(self.wire.nodes)
        request = self._request(-1, self.wire.random.choice(WAITS_MS))
        answer = await self.wire.ask_node(node_id, FETCH, 12, request)
        if not answer.responses:
            raise Gone(f"Fetch fails with error code {answer.error_code}")
        data = answer.responses[0].partitions[0]
        error = ErrorCode(data.error_code)
        if error is not NONE:
            self.wire.say(f"fetch {self.spot} of node {node_id} at {self.position}: {error.name}")
            if error is ErrorCode.offset_out_of_range and self._loses:
                self.position = self.wire.random.randint(0, self.position)
            raise Gone(error.name)
        found = self._take(data, -1)
        if self._seen is not None:
            self._seen.saw(found, data.high_watermark)
        return found


async def read_from_any(
    wire: Wire, spot: Spot, isolation: str, view: View | None, stop: Stop, *, loses: bool
) -> None:
    """Consume a partition until stopped, from leaders and followers in turn."""
    reader = FollowerReader(wire, spot, isolation, view, loses=loses)
    while not stop.now:
        try:
            found = await reader.fetch_anywhere()
        except Gone:
            await wire.back_off()
            continue
        if found:
            wire.say(f"read {spot[0]}-{spot[1]} {found[0]} .. {found[-1]}")
        await asyncio.sleep(wire.random.uniform(*READ_PAUSE_S))
    wire.close()


async def draft(wire: Wire, spots: Sequence[Spot], stop: Stop) -> None:
    """Produce with acks=1. The records may be lost, and consumers must not get them before they are committed."""
    number = 0
    while not stop.now:
        await asyncio.sleep(wire.random.uniform(*SEND_PAUSE_S))
        spot = wire.random.choice(spots)
        number += 1
        try:
            answer = await wire.ask_leader(*spot, PRODUCE, 9, _one_record(wire, spot, b"draft %d" % number))
        except Gone:
            continue
        error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if error is not NONE:
            wire.say(f"draft {number}: {error.name}")
            wire.forget_leader(*spot)
    wire.close()


def _one_record(wire: Wire, spot: Spot, value: bytes) -> Any:
    data = PartitionProduceData(index=spot[1], records=build_batch([(wire.now_ms(), None, value)]))
    return ProduceRequest(
        acks=1, timeout_ms=5_000, topic_data=[TopicProduceData(name=spot[0], partition_data=[data])]
    )
