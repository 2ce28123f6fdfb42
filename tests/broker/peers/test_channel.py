"""Requests from one node to another, over real sockets and with a manual clock."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.injection.points import FaultInjection
from broker.loop.coroutines import Waiter, start_in_background
from broker.loop.life import NodeLife
from broker.metadata.values import BrokerRegistration, Endpoint
from broker.peers import Peers
from broker.peers.channel import RECONNECT_BACKOFF_MS, REQUESTS_PENDING_MAX
from protocol.codec import request_codec
from protocol.frame import RequestHeader, parse_request_header, response_header
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.clock import FakeClock

OWN, OTHER = 1, 2
MARKERS, ADD = 27, 24
SENDER = "broker-1-txn-marker-sender"
REQUEST_TIMEOUT_MS = 30_000


class OtherNode(asyncio.Protocol):
    """The listener of another node. The node collects requests, and responds when the test calls ``answer``."""

    def __init__(self) -> None:
        self.asked: list[tuple[RequestHeader, Any]] = []
        self.transports: list[asyncio.Transport] = []
        self.ends: list[Exception | None] = []
        self._server: asyncio.Server | None = None
        self.port = 0

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Conversation(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop_listening(self) -> None:
        assert self._server is not None
        self._server.close()

    def answer(self, number: int, response: Any) -> None:
        header = self.asked[number][0]
        body = b"".join(request_codec(header.api_key, header.api_version).encode(response))
        data = response_header(header.api_key, header.api_version, header.correlation_id) + body
        self.transports[-1].write(len(data).to_bytes(4, "big") + data)

    def close(self) -> None:
        self.stop_listening()
        for transport in self.transports:
            transport.abort()


class _Conversation(asyncio.Protocol):
    def __init__(self, node: OtherNode) -> None:
        self._node = node
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._node.transports.append(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._node.ends.append(exc)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4 and len(self._received) >= 4 + int.from_bytes(
            self._received[:4], "big"
        ):
            end = 4 + int.from_bytes(self._received[:4], "big")
            frame, self._received = self._received[4:end], self._received[end:]
            header = parse_request_header(frame)
            request = request_codec(header.api_key, header.api_version).decode(frame, header.body_offset)
            self._node.asked.append((header, request))


class Setting:
    """Node 1's channels to its peers, and node 2."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.injection = FaultInjection()
        self.other = OtherNode()
        self.brokers: dict[int, BrokerRegistration] = {}
        config: Any = SimpleNamespace(
            inter_broker_listener_name="INTERNAL", request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        metadata: Any = SimpleNamespace(brokers=self.brokers)
        self.peers = Peers(OWN, config, self.clock, metadata, self.injection)
        self.heard: list[Any] = []
        self.life = NodeLife()

    async def open(self) -> None:
        await self.other.listen()
        self.register(self.other.port)

    def register(self, port: int, *, fenced: bool = False) -> None:
        endpoints = (Endpoint("PUBLIC", "203.0.113.1", 9), Endpoint("INTERNAL", "127.0.0.1", port))
        self.brokers[OTHER] = BrokerRegistration(OTHER, 1, uuid.UUID(int=2), endpoints, fenced=fenced)

    def ask(self, producer_id: int = 7, client_id: str = SENDER) -> None:
        request = WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=producer_id)])
        self.hear(self.peers.send(OTHER, client_id, MARKERS, 2, request))

    def hear(self, answered: Waiter[Any]) -> None:
        async def wait() -> None:
            self.heard.append(await answered)

        start_in_background(wait(), self.life)

    async def asked(self, count: int) -> None:
        await until(lambda: len(self.other.asked) >= count)

    async def until_heard(self, count: int) -> None:
        await until(lambda: len(self.heard) >= count)


async def until(holds: Any) -> None:
    for _ in range(100_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("the awaited condition is still false after 100,000 turns of the event loop")


async def turns() -> None:
    """Run the event loop until all bytes in flight on this machine have arrived."""
    for _ in range(200):
        await asyncio.sleep(0)


def marked(producer_id: int) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=producer_id, topics=[])])


@pytest.fixture
async def nodes() -> AsyncIterator[Setting]:
    setting = Setting()
    await setting.open()
    yield setting
    setting.peers.close()
    setting.other.close()
    await asyncio.sleep(0)


async def test_a_request_and_its_answer(nodes: Setting) -> None:
    nodes.ask(7)
    assert nodes.heard == []
    await nodes.asked(1)
    header, request = nodes.other.asked[0]
    assert (header.api_key, header.api_version, header.client_id) == (MARKERS, 2, SENDER)
    assert request.markers[0].producer_id == 7
    nodes.other.answer(0, marked(7))
    await nodes.until_heard(1)
    assert nodes.heard[0].markers[0].producer_id == 7
    assert nodes.clock.timers == [], "the timeout of the request is cancelled"


async def test_several_requests_are_in_flight_on_one_connection(nodes: Setting) -> None:
    for producer_id in (7, 8, 9):
        nodes.ask(producer_id)
    await nodes.asked(3)
    for number in (2, 0, 1):
        nodes.other.answer(number, marked(7 + number))
    await nodes.until_heard(3)
    assert [response.markers[0].producer_id for response in nodes.heard] == [9, 7, 8]
    assert len(nodes.other.transports) == 1


async def test_each_purpose_has_its_own_connection(nodes: Setting) -> None:
    """Markers and verifications have a connection each, so that a marker that waits for its replicas delays no
    verification."""
    nodes.ask(7)
    client_id = "AddPartitionsManager-client-1"
    nodes.hear(nodes.peers.send(OTHER, client_id, ADD, 5, AddPartitionsToTxnRequest()))
    await nodes.asked(2)
    assert len(nodes.other.transports) == 2
    assert {header.client_id for header, _ in nodes.other.asked} == {SENDER, client_id}


async def test_an_unreachable_node_is_retried_after_a_backoff(nodes: Setting) -> None:
    nodes.other.stop_listening()
    nodes.ask()
    await nodes.until_heard(1)
    assert nodes.heard == [None]
    await nodes.other.listen()
    nodes.ask()
    await asyncio.sleep(0)
    assert nodes.other.transports == [], "no connection before the backoff is over"
    nodes.clock.advance(RECONNECT_BACKOFF_MS)
    await nodes.asked(1)


async def test_an_unknown_node_does_not_answer(nodes: Setting) -> None:
    del nodes.brokers[OTHER]
    assert not nodes.peers.is_alive(OTHER)
    nodes.ask()
    await nodes.until_heard(1)
    assert nodes.heard == [None]


async def test_a_fenced_node_is_not_alive(nodes: Setting) -> None:
    assert nodes.peers.is_alive(OTHER)
    nodes.register(nodes.other.port, fenced=True)
    assert not nodes.peers.is_alive(OTHER)


async def test_a_lost_connection_fails_its_requests_and_the_next_request_reconnects(
    nodes: Setting,
) -> None:
    nodes.ask(7)
    nodes.ask(8)
    await nodes.asked(2)
    nodes.other.transports[0].abort()
    await nodes.until_heard(2)
    assert nodes.heard == [None, None]
    nodes.ask(9)
    await nodes.asked(3)
    nodes.other.answer(2, marked(9))
    await nodes.until_heard(3)
    assert nodes.heard[2].markers[0].producer_id == 9


async def test_without_a_response_in_time_the_request_fails_and_the_connection_closes(nodes: Setting) -> None:
    nodes.ask()
    await nodes.asked(1)
    nodes.clock.advance(REQUEST_TIMEOUT_MS)
    assert nodes.heard == [None]
    await until(lambda: nodes.other.ends)


async def test_an_invalid_response_closes_the_connection(nodes: Setting) -> None:
    nodes.ask()
    await nodes.asked(1)
    nodes.other.transports[0].write(b"\x00\x00\x00\x04\x00\x00\x00\x63")
    await nodes.until_heard(1)
    assert nodes.heard == [None]
    nodes.ask()
    await nodes.asked(2)
    nodes.other.transports[1].write(b"\x7f\xff\xff\xff")
    await nodes.until_heard(2)
    assert nodes.heard == [None, None]


async def test_more_than_a_channel_holds_fails_at_once(nodes: Setting) -> None:
    for _ in range(REQUESTS_PENDING_MAX + 1):
        nodes.ask()
    await nodes.until_heard(1)
    assert nodes.heard == [None]


# -- links --------------------------------------------------------------------------------------------------


async def test_a_link_that_is_cut_ends_the_connection_until_it_is_mended(nodes: Setting) -> None:
    nodes.ask(7)
    await nodes.asked(1)
    nodes.injection.links.cut(OWN, OTHER)
    assert nodes.heard == [None]
    nodes.ask(8)
    assert nodes.heard == [None], "the callback is not called inside the call"
    await nodes.until_heard(2)
    await until(lambda: nodes.other.ends)
    nodes.injection.links.mend(OWN, OTHER)
    nodes.ask(9)
    await nodes.asked(2)
    assert nodes.other.asked[1][1].markers[0].producer_id == 9


async def test_on_a_link_that_is_cut_in_one_direction_responses_are_lost(nodes: Setting) -> None:
    nodes.ask(7)
    await nodes.asked(1)
    nodes.injection.links.cut(OTHER, OWN)
    nodes.ask(8)
    await nodes.asked(2)
    assert nodes.heard == [], "requests still pass, only the responses are lost"
    nodes.other.answer(0, marked(7))
    await nodes.until_heard(2)
    assert nodes.heard == [None, None]
    nodes.ask(9)
    await nodes.until_heard(3)
    assert len(nodes.other.transports) == 1, "there is no new connection"


async def test_a_slow_link_delays_both_ways_and_keeps_the_order(nodes: Setting) -> None:
    nodes.ask(6)
    await nodes.asked(1)
    nodes.injection.links.slow(OWN, OTHER, 100)
    nodes.ask(7)
    nodes.injection.links.quicken(OWN, OTHER, 100)
    nodes.ask(8)
    await turns()
    assert len(nodes.other.asked) == 1
    nodes.clock.advance(100)
    await nodes.asked(3)
    assert [request.markers[0].producer_id for _, request in nodes.other.asked] == [6, 7, 8]
    nodes.injection.links.slow(OTHER, OWN, 50)
    nodes.other.answer(0, marked(6))
    await turns()
    assert nodes.heard == []
    nodes.clock.advance(50)
    assert len(nodes.heard) == 1


# -- the end ------------------------------------------------------------------------------------------------


async def test_a_killed_node_resets_its_connections_and_calls_no_callback(nodes: Setting) -> None:
    nodes.ask(7)
    await nodes.asked(1)
    nodes.other.answer(0, marked(7))
    nodes.peers.abandon()
    await until(lambda: nodes.other.ends)
    assert isinstance(nodes.other.ends[0], ConnectionResetError)
    nodes.ask(8)
    nodes.clock.advance(2 * REQUEST_TIMEOUT_MS)
    await turns()
    assert nodes.heard == []
    nodes.injection.links.cut(OWN, OTHER)  # has no effect on a killed node


async def test_a_node_that_is_killed_while_it_connects_leaves_nothing(nodes: Setting) -> None:
    nodes.ask(7)
    await asyncio.sleep(0)
    nodes.peers.abandon()
    await turns()
    assert nodes.other.asked == []
    assert nodes.clock.timers == []


async def test_a_node_that_stops_closes_its_connections(nodes: Setting) -> None:
    nodes.ask(7)
    await nodes.asked(1)
    nodes.peers.close()
    await until(lambda: nodes.other.ends)
    assert nodes.other.ends == [None]
