"""One connection, byte by byte: how it handles what a client sends, and which guarantees a client has."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.clock import Domain
from broker.clock.virtual import VirtualClock
from broker.injection.points import FaultInjection
from broker.loop.coroutines import Waiter
from broker.loop.life import NodeLife
from broker.loop.slices import Slices
from broker.net.connection import Connection
from broker.net.connection_limits import BACKLOG_BYTES_MAX, FRAME_BYTES_PER_TURN, REQUESTS_PER_TURN
from broker.net.connections import IDLE_TICKS, LANDING_BYTES, ConnectionQuotas, Connections
from broker.net.frame_buffers import FRAME_BUFFER_START_BYTES
from broker.net.routes import Routes
from broker.node import Listener, Node
from broker.node.context import RequestContext
from broker.requests.api import NO_RESPONSE, Api, CloseConnection, Handler
from broker.requests.parking import ParkedHere
from broker.resources.unsent import UNSENT, WRITE_BUFFER_HIGH_BYTES, ResponseBudget
from protocol.codec import client_codec, read_response, request_frame
from protocol.frame import FIRST_FLEXIBLE, request_header, response_body_offset
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.source import ELEMENTS_AT_ONCE
from tests.support.clock import FakeClock

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, HEARTBEAT, API_VERSIONS = 0, 1, 3, 10, 12, 18
VERSIONS = {
    PRODUCE: range(3, 14),
    FETCH: range(4, 19),
    METADATA: range(14),
    FIND_COORDINATOR: range(7),
    HEARTBEAT: range(5),
    API_VERSIONS: range(5),
}
LISTENER = Listener("PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092)
NODE = cast(Node, SimpleNamespace(injection=FaultInjection(), life=NodeLife()))


class FakeTransport(asyncio.Transport):
    """A transport that collects what is written, and records its state."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 40000)})
        self.written = bytearray()
        self.writes = 0
        self.reading = True
        self.closing = False
        self.aborted = False
        self.is_full = False  # True: the client does not read
        self.writing_paused = False
        self.connection: Connection

    def writelines(self, chunks: Any) -> None:
        self.write(b"".join(chunks))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closing
        self.writes += 1
        self.written += data
        if self.is_full and not self.writing_paused:
            self.writing_paused = True
            self.connection.pause_writing()

    def drained(self) -> None:
        """Act as if the client had read everything."""
        self.is_full = self.writing_paused = False
        self.connection.resume_writing()

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None


class Broker:
    """The parts of a broker that a connection uses: handlers by API key, and limits."""

    def __init__(
        self,
        handlers: dict[int, Handler],
        limits: ConnectionQuotas | None = None,
        virtual: VirtualClock | None = None,
    ) -> None:
        served = {
            key: Api(key, f"api_{key}", VERSIONS[key], VERSIONS[key], handler)
            for key, handler in handlers.items()
        }
        self.clock = FakeClock()
        NODE.slices = Slices()
        self.connections = Connections(
            NODE,
            Routes(served),
            limits or ConnectionQuotas(),
            virtual or self.clock,
            asyncio.get_running_loop(),
        )
        self.connections.watch_idleness()

    def connect(self) -> Peer:
        return Peer(self)


class Peer:
    """A client: the other end of a broker's connection."""

    def __init__(self, broker: Broker) -> None:
        self.landing = broker.connections.landing
        self.connection = Connection(broker.connections, LISTENER)
        self.transport = FakeTransport()
        self.transport.connection = self.connection
        self.connection.connection_made(self.transport)

    def send(self, data: bytes, step: int | None = None) -> None:
        """Deliver ``data`` as the event loop would, in steps of at most ``step`` bytes, while the connection reads."""
        rest = memoryview(data)
        while rest and self.transport.reading and not self.transport.closing:
            with memoryview(self.connection.get_buffer(-1)) as buffer:
                size = min(len(buffer), len(rest), step or len(rest))
                buffer[:size] = rest[:size]
            self.connection.buffer_updated(size)
            rest = rest[size:]
            # Other connections receive into the same buffer next.
            self.landing[:] = b"\xee" * len(self.landing)
        self.connection._shared.answers.end_turn()
        self.unsent = bytes(rest)

    def lose(self) -> None:
        self.connection.connection_lost(None)

    def frames(self) -> Iterator[bytes]:
        position, written = 0, bytes(self.transport.written)
        while position < len(written):
            (size,) = struct.unpack_from(">i", written, position)
            yield written[position + 4 : position + 4 + size]
            position += 4 + size
        assert position == len(written)

    def answered(self) -> list[int]:
        """The correlation ids of the responses so far."""
        return [struct.unpack_from(">i", frame)[0] for frame in self.frames()]

    def answers(self, key: int, version: int) -> list[Any]:
        return [read_response(key, version, frame) for frame in self.frames()]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(
    key: int, version: int, message: object, correlation_id: int = 1, client_id: str | None = "c"
) -> bytes:
    return request_frame(key, version, correlation_id, client_id, message)


def heartbeat(correlation_id: int, member: str = "m") -> bytes:
    return request(HEARTBEAT, 4, HeartbeatRequest(group_id="g", member_id=member), correlation_id)


def produce(correlation_id: int, records: bytes) -> bytes:
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=[partition])
    return request(PRODUCE, 9, ProduceRequest(acks=-1, topic_data=[topic]), correlation_id)


def records_of(message: ProduceRequest) -> bytes:
    records = message.topic_data[0].partition_data[0].records
    assert records is not None
    return bytes(records)


def pong(message: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=0)


class Parking:
    """A handler whose requests wait for ``release``, which completes the oldest request."""

    def __init__(self, response: object | None = None) -> None:
        self.seen: list[Any] = []
        self.waiting: list[Waiter[object]] = []
        self._response = response or HeartbeatResponse()

    async def __call__(self, message: Any, context: RequestContext) -> object:
        self.seen.append(message)
        self.waiting.append(Waiter())
        return await self.waiting[-1]

    async def release(self) -> None:
        self.waiting.pop(0).wake(self._response)
        await turns()


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# ---- frames


@pytest.mark.parametrize("step", [None, 1, 3, 7, 64])
async def test_requests_are_answered_however_their_bytes_arrive(step: int | None) -> None:
    peer = Broker({HEARTBEAT: pong}).connect()
    peer.send(heartbeat(1) + heartbeat(2) + heartbeat(3), step)
    assert peer.answered() == [1, 2, 3]
    assert peer.answers(HEARTBEAT, 4) == [HeartbeatResponse()] * 3


SIZES = [0, 1, LANDING_BYTES - 60, LANDING_BYTES, LANDING_BYTES + 1, FRAME_BUFFER_START_BYTES, 3_000_000]


@pytest.mark.parametrize("step", [None, 50_000, 4_097])
@pytest.mark.parametrize("size", SIZES)
async def test_a_frame_of_any_size_arrives_whole_and_so_does_the_next(size: int, step: int | None) -> None:
    seen: list[bytes] = []

    def note(message: ProduceRequest, context: RequestContext) -> ProduceResponse:
        seen.append(records_of(message))
        return ProduceResponse()

    peer = Broker({PRODUCE: note, HEARTBEAT: pong}).connect()
    records = bytes(itertools.islice(itertools.cycle(range(251)), size))
    peer.send(heartbeat(1) + produce(2, records) + heartbeat(3) + produce(4, records[:10]), step)
    assert len(peer.answered()) == (2 if size >= FRAME_BYTES_PER_TURN else 4), "a large frame ends the turn"
    while peer.unsent:
        await turns()
        peer.send(peer.unsent, step)
    assert seen == [records, records[:10]]
    assert peer.answered() == [1, 2, 3, 4]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3 * LANDING_BYTES // 2), min_size=1, max_size=6),
    steps=st.lists(st.integers(1, LANDING_BYTES), min_size=1, max_size=20),
    parks=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_requests_do_not_depend_on_how_the_stream_is_split(
    sizes: list[int], steps: list[int], parks: list[bool]
) -> None:
    sent = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    seen: list[bytes] = []

    async def note(message: ProduceRequest, context: RequestContext) -> object:
        seen.append(records_of(message))
        if not parks[len(seen) - 1]:
            return ProduceResponse()
        await asyncio.sleep(0)
        return ProduceResponse()

    async def scenario() -> list[int]:
        peer = Broker({PRODUCE: note}).connect()
        stream = b"".join(produce(number, records) for number, records in enumerate(sent))
        for step in itertools.cycle(steps):
            peer.send(stream[:step], step)
            stream = peer.unsent + stream[step:]
            if peer.unsent or not stream:
                await turns(4)
            if not stream and len(seen) == len(sent):
                break
        await turns(4)
        return peer.answered()

    assert asyncio.run(scenario()) == list(range(len(sent)))
    assert seen == sent


async def test_an_announced_frame_costs_memory_only_as_it_arrives() -> None:
    peer = Broker({PRODUCE: pong}).connect()
    peer.send(struct.pack(">i", 100_000_000) + b"\0" * 10)
    assert len(peer.connection.get_buffer(-1)) <= FRAME_BUFFER_START_BYTES
    assert not peer.transport.closing


@pytest.mark.parametrize("size", [-1, -(2**31), 104_857_601, 2**31 - 1])
async def test_an_impossible_size_ends_the_connection_before_any_body_arrives(size: int) -> None:
    peer = Broker({HEARTBEAT: pong}).connect()
    with structlog.testing.capture_logs() as lines:
        peer.send(heartbeat(1) + struct.pack(">i", size))
    assert peer.transport.closing
    assert peer.answered() == [1]
    assert [line["reason"] for line in lines] == ["bad request size"]
    assert "hint" not in lines[0]


async def test_a_client_that_begins_with_tls_is_recognised() -> None:
    with structlog.testing.capture_logs() as (lines):
        Broker({HEARTBEAT: pong}).connect().send(bytes.fromhex("160301020001"))
    assert [(line["reason"], line["hint"]) for line in lines] == [
        ("bad request size", "the client begins a TLS handshake")
    ]


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP request"),
        (b"POST /v1/faults HTTP/1.1\r\n", "HTTP request"),
        (b"PUT /x HTTP/1.1\r\n", "HTTP request"),
        (b"HEAD / HTTP/1.1\r\n", "HTTP request"),
        (b"OPTIONS * HTTP/1.1\r\n", "HTTP request"),
        (b"CONNECT kafka:9092 HTTP/1.1\r\n", "HTTP request"),
        (b"DELETE /v1/faults HTTP/1.1\r\n", "HTTP request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 request"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"AMQP\0\0\x09\x01", "AMQP"),
        (b"*1\r\n$4\r\nPING\r\n", "Redis"),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 9092\r\n", "PROXY protocol"),
        (b"\r\n\r\n\0\r\nQUIT\n", "PROXY protocol"),
    ],
)
async def test_a_client_of_another_protocol_is_recognised(first: bytes, protocol: str) -> None:
    peer = Broker({HEARTBEAT: pong}).connect()
    with structlog.testing.capture_logs() as lines:
        peer.send(first)
    assert peer.transport.closing
    assert [protocol in line["hint"] for line in lines] == [True]


@pytest.mark.parametrize(
    ("key", "version", "said"),
    [
        (METADATA, 99, {"api": "Metadata", "served": "0 to 13"}),
        (59, 1, {"api": "FetchSnapshot"}),
        *((key, 0, {}) for key in FIRST_FLEXIBLE if key not in {HEARTBEAT, METADATA, API_VERSIONS, FETCH}),
        (4, 0, {"api": "LeaderAndIsr"}),
        (
            1,
            2,
            {
                "api": "Fetch",
                "served": "4 to 18",
                "hint": "the client's protocol is older than Kafka 2.1's; Apache Kafka 4 refuses it too (KIP-896)",
            },
        ),
    ],
)
async def test_what_is_not_served_is_named(key: int, version: int, said: dict[str, str]) -> None:
    peer = Broker({HEARTBEAT: pong, METADATA: pong, 1: pong}).connect()
    with structlog.testing.capture_logs() as lines:
        peer.send(framed(struct.pack(">hhihb", key, version, 1, -1, 0)))
    facts = {"reason": "API or version not served", "api_key": key, "api_version": version, **said}
    assert [{name: line[name] for name in line if name in {*facts, "hint"}} for line in lines] == [facts]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        b"\0\x12\0\0\0\0\0\1\0\x7f",
        b"\x03\xe7\0\0\0\0\0\1\xff\xff",
        b"\0\3\0\x63\0\0\0\1\xff\xff\0",
        b"\0\3\xff\xff\0\0\0\1\xff\xff",
        b"\xff\xff\0\0\0\0\0\1\xff\xff",
    ],
    ids=[
        "no header",
        "cut header",
        "client id beyond the frame",
        "API 999",
        "Metadata v99",
        "Metadata v-1",
        "API -1",
    ],
)
async def test_an_invalid_header_closes_the_connection_with_one_line(body: bytes) -> None:
    broker = Broker({HEARTBEAT: pong, METADATA: pong, API_VERSIONS: pong})
    peer, other = broker.connect(), broker.connect()
    with structlog.testing.capture_logs() as lines:
        peer.send(heartbeat(1) + framed(body) + heartbeat(2))
        other.send(heartbeat(3))
    assert peer.transport.closing
    assert (peer.answered(), other.answered()) == ([1], [3])
    assert [line["event"] for line in lines] == ["connection closed"]


async def test_a_body_that_does_not_parse_ends_the_connection_with_one_line() -> None:
    peer = Broker({METADATA: pong}).connect()
    with structlog.testing.capture_logs() as lines:
        peer.send(framed(request_header(METADATA, 12, 1, "c") + b"\xff" * 20))
    assert peer.transport.closing
    assert peer.answered() == []
    assert [line["reason"] for line in lines] == ["malformed request"]


async def test_what_follows_a_message_in_its_frame_is_ignored() -> None:
    peer = Broker({HEARTBEAT: pong}).connect()
    peer.send(framed(heartbeat(1)[4:] + b"more") + heartbeat(2))
    assert peer.answered() == [1, 2]


async def test_a_later_api_versions_is_answered_as_version_0() -> None:
    peer = Broker({API_VERSIONS: fail, HEARTBEAT: pong}).connect()
    peer.send(framed(struct.pack(">hhih", API_VERSIONS, 99, 77, -1) + b"\0") + heartbeat(78))
    first, _ = peer.frames()
    # Recorded on Kafka 4.4.0: error 35, and only ApiVersions in the list.
    assert first == struct.pack(">ihihhh", 77, 35, 1, API_VERSIONS, 0, 5)
    assert peer.answered() == [77, 78]


async def test_the_context_has_the_client() -> None:
    contexts: list[RequestContext] = []

    def note(message: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        contexts.append(context)
        return HeartbeatResponse()

    peer = Broker({HEARTBEAT: note}).connect()
    peer.send(request(HEARTBEAT, 3, HeartbeatRequest(), 1, None) + heartbeat(2))
    assert [context.client_id for context in contexts] == [None, "c"]
    assert [context.api_version for context in contexts] == [3, 4]
    assert {context.peer for context in contexts} == {"/192.0.2.7"}
    assert contexts[0].node is NODE
    assert contexts[0].listener is LISTENER


# ---- waiting requests


async def test_requests_behind_a_waiting_one_are_not_handled() -> None:
    parking = Parking(MetadataResponse())
    handled: list[str] = []

    def note(message: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        handled.append(message.member_id)
        return HeartbeatResponse()

    peer = Broker({METADATA: parking, HEARTBEAT: note}).connect()
    peer.send(request(METADATA, 9, MetadataRequest(), 1) + heartbeat(2, "behind") + heartbeat(3, "last"))
    await turns()
    assert (peer.answered(), handled) == ([], [])
    await parking.release()
    assert (peer.answered(), handled) == ([1, 2, 3], ["behind", "last"])


async def test_answers_keep_the_order_of_several_waiting_requests() -> None:
    parking = Parking()
    peer = Broker({HEARTBEAT: parking}).connect()
    peer.send(b"".join(map(heartbeat, range(4))), 5)
    for answered in range(4):
        await turns()
        assert len(parking.waiting) == 1
        assert peer.answered() == list(range(answered))
        await parking.release()
    assert peer.answered() == list(range(4))


def fetch(correlation_id: int) -> bytes:
    return request(FETCH, 12, FetchRequest(max_wait_ms=500), correlation_id)


def fetching(parked: list[ParkedHere], *, gives_way: bool = True) -> Broker:
    async def park(message: FetchRequest, context: RequestContext) -> FetchResponse:
        parked.append(ParkedHere(gives_way=gives_way))
        await parked[-1]
        return FetchResponse()

    return Broker({FETCH: park, HEARTBEAT: pong})


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("step", [None, 1])
async def test_a_parked_fetch_gives_way_to_another_kind_of_request(together: bool, step: int | None) -> None:
    parked: list[ParkedHere] = []
    peer = fetching(parked).connect()
    if together:
        peer.send(fetch(1) + heartbeat(2), step)
    else:
        peer.send(fetch(1), step)
        await turns()
        assert (peer.answered(), parked[0].done()) == ([], False)
        peer.send(heartbeat(2), step)
    await turns()
    assert (peer.answered(), parked[0].done()) == ([1, 2], True)


async def test_a_parked_fetch_does_not_give_way_if_that_is_disabled() -> None:
    parked: list[ParkedHere] = []
    peer = fetching(parked, gives_way=False).connect()
    peer.send(fetch(1) + heartbeat(2))
    await turns()
    assert (peer.answered(), parked[0].done()) == ([], False)
    parked[0].wake(True)
    await turns()
    assert peer.answered() == [1, 2]


async def test_a_parked_fetch_does_not_give_way_to_a_fetch() -> None:
    parked: list[ParkedHere] = []
    peer = fetching(parked).connect()
    peer.send(fetch(1) + fetch(2))
    await turns()
    assert (peer.answered(), len(parked), parked[0].done()) == ([], 1, False)
    parked[0].wake(True)
    await turns()
    assert (peer.answered(), len(parked), parked[1].done()) == ([1], 2, False)


async def test_a_parked_fetch_waits_on_while_it_is_not_clear_what_follows() -> None:
    parked: list[ParkedHere] = []
    peer = fetching(parked).connect()
    peer.send(fetch(1) + heartbeat(2)[:5])
    await turns()
    assert not parked[0].done()


async def test_a_coroutine_is_waited_for_as_a_future_is() -> None:
    async def slowly(message: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        await asyncio.sleep(0)
        return HeartbeatResponse(error_code=27)

    peer = Broker({HEARTBEAT: slowly}).connect()
    peer.send(heartbeat(1) + heartbeat(2))
    await turns(8)
    assert [answer.error_code for answer in peer.answers(HEARTBEAT, 4)] == [27, 27]


async def test_the_bytes_of_a_waiting_request_are_not_overwritten() -> None:
    parking = Parking(ProduceResponse())
    broker = Broker({PRODUCE: parking})
    peer, other = broker.connect(), broker.connect()
    sizes = [200, LANDING_BYTES - 100, LANDING_BYTES + 500, 2_000_000]
    for number, size in enumerate(sizes):
        peer.send(produce(number, b"a" * size))
        other.send(produce(number, b"b" * size))
        await parking.release()
        await parking.release()
    assert [records_of(message) for message in parking.seen] == [
        letter * size for size in sizes for letter in (b"a", b"b")
    ]


async def test_what_is_sent_behind_a_waiting_request_is_bounded() -> None:
    parking = Parking()
    peer = Broker({HEARTBEAT: parking}).connect()
    flood = b"".join(heartbeat(number) for number in range(20_000))
    peer.send(flood)
    assert not peer.transport.reading
    taken = len(flood) - len(peer.unsent)
    assert BACKLOG_BYTES_MAX <= taken <= BACKLOG_BYTES_MAX + 2 * LANDING_BYTES
    while not peer.transport.reading:
        await parking.release()
    assert peer.answered() == list(range(len(peer.answered())))


@pytest.mark.parametrize("gives_way", [True, False])
async def test_the_end_of_a_connection_ends_what_is_parked(gives_way: bool) -> None:
    parked: list[ParkedHere] = []
    broker = fetching(parked, gives_way=gives_way)
    peer = broker.connect()
    peer.send(fetch(1) + fetch(2))
    with structlog.testing.capture_logs() as lines:
        peer.lose()
        assert parked[0].done()
        await turns()
    assert lines == []
    assert len(parked) == 1
    assert len(broker.connections) == 0


async def test_what_is_not_parked_is_carried_out_after_the_connection_ended() -> None:
    committed: Waiter[None] = Waiter()
    done: list[str] = []

    async def commit(message: HeartbeatRequest, context: RequestContext) -> object:
        await committed
        done.append(message.member_id)
        return HeartbeatResponse()

    broker = Broker({HEARTBEAT: commit})
    peer = broker.connect()
    peer.send(heartbeat(1, "first") + heartbeat(2, "behind"))
    with structlog.testing.capture_logs() as lines:
        peer.lose()
        await turns()
        committed.wake(None)
        await turns()
    assert lines == []
    assert done == ["first"]
    assert len(broker.connections) == 0


# ---- without a response, and failed handlers


async def test_a_request_may_have_no_response() -> None:
    answers = iter([NO_RESPONSE, HeartbeatResponse()])
    peer = Broker({HEARTBEAT: lambda message, context: next(answers)}).connect()
    peer.send(heartbeat(1) + heartbeat(2))
    assert peer.answered() == [2]


async def test_a_handler_may_end_the_connection() -> None:
    def refuse(message: HeartbeatRequest, context: RequestContext) -> object:
        raise CloseConnection("no such topic")

    peer = Broker({HEARTBEAT: refuse}).connect()
    with structlog.testing.capture_logs() as lines:
        peer.send(heartbeat(1) + heartbeat(2))
    assert peer.transport.closing
    assert peer.answered() == []
    assert [line["reason"] for line in lines] == ["no such topic"]


def fail(message: object, context: RequestContext) -> object:
    raise ZeroDivisionError("a mistake of ours")


async def fail_later(message: object, context: RequestContext) -> object:
    await asyncio.sleep(0)
    raise ZeroDivisionError("a mistake of ours")


@pytest.mark.parametrize("handler", [fail, fail_later, lambda message, context: object()])
async def test_a_handler_that_fails_is_answered_unknown_server_error(handler: Handler) -> None:
    peer = Broker({FIND_COORDINATOR: handler, HEARTBEAT: pong}).connect()
    with structlog.testing.capture_logs() as lines:
        peer.send(request(FIND_COORDINATOR, 2, FindCoordinatorRequest(), 1) + heartbeat(2))
        await turns(6)
    first, _ = peer.frames()
    codec = client_codec(FIND_COORDINATOR, 2)
    assert codec.decode(first, 4) == FindCoordinatorResponse(error_code=-1)
    assert peer.answered() == [1, 2]
    assert [line["event"] for line in lines] == ["request failed"]
    assert lines[0]["exc_info"] is not None


@pytest.mark.parametrize("version", [4, 12])
async def test_an_error_without_a_field_in_the_response_closes_the_connection(version: int) -> None:
    peer = Broker({METADATA: fail, HEARTBEAT: pong}).connect()
    peer.send(request(METADATA, version, MetadataRequest(), 1) + heartbeat(2))
    assert peer.transport.closing
    assert peer.answered() == []


async def test_a_failure_after_the_connection_ended_is_logged_all_the_same() -> None:
    class Stubborn(Exception):
        pass

    late: Waiter[None] = Waiter()

    async def stubborn(message: HeartbeatRequest, context: RequestContext) -> object:
        await late
        raise Stubborn

    peer = Broker({HEARTBEAT: stubborn}).connect()
    with structlog.testing.capture_logs() as lines:
        peer.send(heartbeat(1))
        await turns()
        peer.lose()
        await turns()
        late.wake(None)
        await turns()
    assert [line["event"] for line in lines] == ["request failed"]
    assert lines[0]["api"] == "api_12"


# ---- fairness and limits


def as_many_bytes(message: FetchRequest, context: RequestContext) -> FetchResponse:
    """A Fetch response with as many bytes as the request's max_bytes."""
    partition = PartitionData(records=bytes(message.max_bytes))
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def fetch_of(size: int, correlation_id: int) -> bytes:
    return request(FETCH, 12, FetchRequest(max_bytes=size), correlation_id)


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> Iterator[ResponseBudget]:
    """The process's budget for unsent bytes, limited to 1 MB. At the end of the test no bytes may be charged to it."""
    monkeypatch.setattr(UNSENT, "limit_bytes", 1_000_000)
    yield UNSENT
    assert UNSENT.bytes == 0


async def test_a_slow_reader_costs_only_itself(budget: ResponseBudget) -> None:
    broker = Broker({FETCH: as_many_bytes, HEARTBEAT: pong})
    slow, other = broker.connect(), broker.connect()
    slow.transport.is_full = True
    slow.send(fetch_of(WRITE_BUFFER_HIGH_BYTES, 1) + heartbeat(2))
    other.send(heartbeat(2))
    assert not slow.transport.reading
    assert (slow.answered(), other.answered()) == ([1], [2])
    slow.transport.drained()
    assert slow.answered() == [1, 2]
    assert slow.transport.reading


async def test_a_reader_that_is_a_little_behind_is_served(budget: ResponseBudget) -> None:
    slow = Broker({FETCH: as_many_bytes}).connect()
    slow.transport.is_full = True
    slow.send(b"".join(fetch_of(WRITE_BUFFER_HIGH_BYTES // 4, number) for number in range(1, 6)))
    assert slow.answered() == [1, 2, 3, 4]
    slow.transport.drained()
    assert slow.answered() == [1, 2, 3, 4, 5]


async def test_when_the_budget_is_used_up_slow_clients_wait(budget: ResponseBudget) -> None:
    broker = Broker({FETCH: as_many_bytes, HEARTBEAT: pong})
    large, small, quick = broker.connect(), broker.connect(), broker.connect()
    large.transport.is_full = small.transport.is_full = True
    large.send(fetch_of(900_000, 1))
    small.send(fetch_of(100_000, 1) + heartbeat(2))
    quick.send(heartbeat(1) + heartbeat(2))
    assert (large.answered(), small.answered(), quick.answered()) == ([1], [1], [1, 2])
    small.transport.drained()
    assert small.answered() == [1, 2]
    large.lose()


async def test_unsent_bytes_of_a_disconnected_client_are_released(budget: ResponseBudget) -> None:
    slow = Broker({FETCH: as_many_bytes}).connect()
    slow.transport.is_full = True
    slow.send(fetch_of(2_000_000, 1))
    assert budget.bytes > 2_000_000
    assert budget.room_bytes == 0
    slow.lose()


async def test_the_answer_of_a_waiting_request_reaches_a_slow_reader_too(budget: ResponseBudget) -> None:
    parking = Parking()
    peer = Broker({HEARTBEAT: parking, FETCH: as_many_bytes}).connect()
    peer.send(heartbeat(1) + fetch_of(WRITE_BUFFER_HIGH_BYTES, 2) + heartbeat(3))
    peer.transport.is_full = True
    await parking.release()
    assert (peer.answered(), len(parking.seen)) == ([1, 2], 1)
    peer.transport.drained()
    await parking.release()
    assert peer.answered() == [1, 2, 3]


async def test_a_flood_of_small_requests_takes_turns() -> None:
    peer = Broker({HEARTBEAT: pong}).connect()
    count = 3 * REQUESTS_PER_TURN + 1
    peer.send(b"".join(map(heartbeat, range(count))))
    assert len(peer.answered()) == REQUESTS_PER_TURN
    assert peer.transport.writes == 1
    await turns(4)
    assert peer.answered() == list(range(count))


async def test_after_a_large_frame_other_connections_have_a_turn() -> None:
    peer = Broker({PRODUCE: lambda *_: ProduceResponse()}).connect()
    peer.send(produce(1, bytes(FRAME_BYTES_PER_TURN)))
    assert peer.answered() == [1]
    await turns(1)
    assert not peer.transport.reading, "other connections are read first"
    await turns(1)
    assert peer.transport.reading


async def test_limits_reject_the_newest_connection() -> None:
    broker = Broker({HEARTBEAT: pong}, ConnectionQuotas(connections_per_ip_max=2))
    first, second = broker.connect(), broker.connect()
    with structlog.testing.capture_logs() as lines:
        third = broker.connect()
    assert [peer.transport.closing for peer in (first, second, third)] == [False, False, True]
    assert [line["reason"] for line in lines] == ["max.connections.per.ip reached"]
    third.lose()
    second.lose()
    assert not broker.connect().transport.closing


async def test_an_idle_connection_is_closed_but_not_a_waiting_one() -> None:
    parking = Parking()
    broker = Broker(
        {HEARTBEAT: parking, METADATA: lambda *_: MetadataResponse()}, ConnectionQuotas(idle_ms_max=12_000)
    )
    idle, waiting, talking = broker.connect(), broker.connect(), broker.connect()
    waiting.send(heartbeat(1))
    for second in range(12):
        assert not idle.transport.closing
        broker.clock.advance(1_000)
        talking.send(request(METADATA, 9, MetadataRequest(), second))
    broker.clock.advance(2 * 12_000 // IDLE_TICKS)
    assert idle.transport.closing
    assert not talking.transport.closing
    broker.clock.advance(60_000)
    assert not waiting.transport.closing
    # The idle time of a waiting connection begins with its response.
    await parking.release()
    broker.clock.advance(11_000)
    assert not waiting.transport.closing
    broker.clock.advance(3_000)
    assert waiting.transport.closing


async def test_an_advance_of_the_clock_closes_only_idle_connections() -> None:
    """An advance closes the connections that have been idle for too long, and only these, although it skips the
    rounds of the periodic check in which none is due."""
    virtual = VirtualClock(FakeClock())
    broker = Broker({METADATA: lambda *_: MetadataResponse()}, ConnectionQuotas(idle_ms_max=12_000), virtual)
    silent, talking = broker.connect(), broker.connect()
    await virtual.advance(11_000, [Domain.CONNECTIONS])
    assert not silent.transport.closing
    talking.send(request(METADATA, 9, MetadataRequest(), 1))
    await virtual.advance(4_000, [Domain.CONNECTIONS])
    assert (silent.transport.closing, talking.transport.closing) == (True, False)
    await virtual.advance(60_000, [Domain.CONNECTIONS])
    assert talking.transport.closing


async def test_a_peer_that_never_takes_its_last_answers_is_cut_off() -> None:
    broker = Broker({HEARTBEAT: pong}, ConnectionQuotas(idle_ms_max=1_000))
    peer = broker.connect()
    broker.clock.advance(1_060)
    assert (peer.transport.closing, peer.transport.aborted) == (True, False)
    broker.clock.advance(100)
    assert peer.transport.aborted


async def test_a_topic_name_is_read_as_it_was_sent() -> None:
    names: list[str | None] = []

    def note(message: MetadataRequest, context: RequestContext) -> MetadataResponse:
        names.extend(topic.name for topic in message.topics or ())
        return MetadataResponse()

    peer = Broker({METADATA: note}).connect()
    peer.send(request(METADATA, 9, MetadataRequest(topics=[MetadataRequestTopic(name="a/é")])), 2)
    assert names == ["a/é"]


# ---- requests and responses with many elements

MANY = 5 * ELEMENTS_AT_ONCE


def named(message: MetadataRequest, context: RequestContext) -> MetadataResponse:
    assert message.topics is not None
    return MetadataResponse(topics=[MetadataResponseTopic(name=one.name) for one in message.topics])


def many_names(correlation_id: int, count: int = MANY) -> bytes:
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(count)]
    return request(METADATA, 12, MetadataRequest(topics=topics), correlation_id)


@pytest.mark.parametrize("step", [None, 10_000])
async def test_a_long_request_and_its_answer_take_many_turns_and_keep_their_place(step: int | None) -> None:
    peer = Broker({METADATA: named, HEARTBEAT: pong}).connect()
    peer.send(many_names(1) + heartbeat(2) + many_names(3) + heartbeat(4), step)
    assert peer.answered() == []
    assert peer.connection.in_progress
    other = Peer(cast(Broker, SimpleNamespace(connections=peer.connection._shared)))
    other.send(heartbeat(9))
    assert other.answered() == [9], "another connection does not wait for the long request"
    while len(peer.answered()) < 4:
        await turns(1)
        if peer.unsent:
            peer.send(peer.unsent, step)
    assert peer.answered() == [1, 2, 3, 4]
    first = client_codec(METADATA, 12).decode(
        next(peer.frames()), response_body_offset(METADATA, 12, next(peer.frames()))
    )
    assert [topic.name for topic in first.topics] == [f"t{number}" for number in range(MANY)]


async def test_a_long_answer_of_a_handler_that_waits() -> None:
    response = MetadataResponse(topics=[MetadataResponseTopic(name=str(number)) for number in range(MANY)])
    parking = Parking(response)
    peer = Broker({METADATA: parking, HEARTBEAT: pong}).connect()
    peer.send(many_names(1, 1) + heartbeat(2))
    await parking.release()
    await turns(MANY // ELEMENTS_AT_ONCE + 5)
    assert peer.answered() == [1, 2]


async def test_a_long_request_that_is_cut_ends_the_connection() -> None:
    peer = Broker({METADATA: named}).connect()
    peer.send(framed(many_names(1)[4:-20]))
    with structlog.testing.capture_logs() as lines:
        await turns(20)
    assert peer.transport.closing
    assert [line["reason"] for line in lines] == ["malformed request"]


async def test_a_long_request_of_a_client_that_is_gone_is_not_handled() -> None:
    parking = Parking()
    peer = Broker({METADATA: parking}).connect()
    peer.send(many_names(1))
    peer.lose()
    await turns(20)
    assert parking.seen == []


async def test_a_long_answer_that_cannot_be_written_says_so_with_an_error() -> None:
    topics = [MetadataResponseTopic(name=str(number)) for number in range(MANY)]
    broken = MetadataResponse(topics=[*topics, MetadataResponseTopic(name="x" * 40_000)])
    peer = Broker({METADATA: lambda message, context: broken, HEARTBEAT: pong}).connect()
    peer.send(many_names(1, 1) + heartbeat(2))
    await turns(20)
    assert 2 in peer.answered() or peer.transport.closing
