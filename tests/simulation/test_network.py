"""The simulated event loop and network behave like asyncio and TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.config.endpoints import Endpoint
from protocol.frame import SIZE, request_header
from tests.simulation.loop import NothingLeft, SimLoop
from tests.simulation.network import LATE_S_MAX, NODE, WRITE_BUFFER_HIGH_BYTES

ENDPOINT = Endpoint("PLAINTEXT", "127.0.0.1", 0)


class End(asyncio.Protocol):
    """One end of a connection, which records what it received and when."""

    def __init__(self) -> None:
        self.heard = b""
        self.lost: list[Exception | None] = []
        self.paused = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False


def simulated(story: Callable[[SimLoop], Coroutine[Any, Any, None]], seed: int = 1) -> SimLoop:
    loop = SimLoop(seed)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(story(loop))
    return loop


async def connected(loop: SimLoop, name: str = "c") -> tuple[End, End]:
    """Connect two ends, and return (client, server)."""
    servers: list[End] = []

    def accept() -> End:
        servers.append(End())
        return servers[-1]

    (bound,) = loop.network.bind(ENDPOINT)
    await loop.create_server(accept, sock=bound)
    _, client = await loop.network.connect(name, bound.port, End)
    await asyncio.sleep(0)  # connection_made of the server's end is called in the next turn
    return client, servers[0]


def test_time_jumps_to_the_next_timer():
    async def story(loop: SimLoop) -> None:
        await asyncio.sleep(1_000_000)
        assert loop.time() == pytest.approx(1_000_000)

    simulated(story)


def test_a_loop_without_timers_raises_an_error():
    async def story(loop: SimLoop) -> None:
        await loop.create_future()

    with pytest.raises(NothingLeft):
        simulated(story)


def test_work_for_a_thread_ends_in_a_later_turn():
    async def story(loop: SimLoop) -> None:
        done: list[str] = []
        future = loop.run_in_executor(None, done.append, "work")
        assert done == []
        await future
        assert done == ["work"]
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)

    simulated(story)


def test_bytes_arrive_whole_and_in_order():
    async def story(loop: SimLoop) -> None:
        client, server = await connected(loop)
        sent = b""
        for number in range(500):
            piece = b"%d," % number
            client.transport.write(piece)
            sent += piece
        client.transport.close()
        await asyncio.sleep(5)
        assert server.heard == sent
        assert (client.lost, server.lost) == ([None], [None])

    simulated(story)


@pytest.mark.parametrize(("late_frames", "heard"), [(0.0, b""), (1.0, b"late")])
def test_a_reset_loses_what_is_under_way_or_brings_it_late(late_frames: float, heard: bytes):
    async def story(loop: SimLoop) -> None:
        loop.network.late_frames = late_frames
        client, server = await connected(loop)
        client.transport.write(b"late")
        client.transport.abort()
        await asyncio.sleep(LATE_S_MAX + 5)
        assert server.heard == heard
        assert isinstance(server.lost[0], ConnectionResetError)

    simulated(story)


def test_a_request_that_is_held_arrives_late_although_its_sender_is_no_more():
    async def story(loop: SimLoop) -> None:
        loop.network.late_frames = 0.0
        client, server = await connected(loop, NODE)
        senders: list[str] = []

        def die(client_id: str) -> None:
            senders.append(client_id)
            client.transport.abort()

        held = SIZE.pack(40) + request_header(27, 2, 7, "broker-1") + b"markers"
        loop.network.hold_next(27, 10, die)
        client.transport.write(SIZE.pack(30) + request_header(1, 12, 6, "broker-1"))
        await asyncio.sleep(1)
        assert senders == []
        server.heard = b""
        client.transport.write(held)
        await asyncio.sleep(9)
        assert (senders, server.heard, server.lost) == (["broker-1"], b"", [])
        await asyncio.sleep(2)
        assert server.heard == held
        assert isinstance(server.lost[0], ConnectionResetError)

    simulated(story)


def test_a_cut_line_delivers_nothing_until_it_is_restored():
    async def story(loop: SimLoop) -> None:
        client, server = await connected(loop)
        line = client.transport.line
        loop.network.cut(line)
        client.transport.write(b"late")
        await asyncio.sleep(100)
        assert server.heard == b""
        name, port = line
        with pytest.raises(TimeoutError):
            await loop.network.connect(name, port, End)
        loop.network.mend(line)
        await asyncio.sleep(1)
        assert server.heard == b"late"

    simulated(story)


def test_a_lost_answer_was_written_and_never_arrives():
    async def story(loop: SimLoop) -> None:
        client, server = await connected(loop)
        loop.network.lose_answers(client.transport.line[1], 1)
        client.transport.write(b"question")
        await asyncio.sleep(1)
        server.transport.write(b"answer")
        await asyncio.sleep(1)
        assert server.heard == b"question"
        assert client.heard == b""
        assert isinstance(client.lost[0], ConnectionResetError)
        assert server.lost == [None]

    simulated(story)


def test_a_reader_that_is_slow_holds_the_writer_back():
    async def story(loop: SimLoop) -> None:
        client, server = await connected(loop)
        client.transport.pause_reading()
        server.transport.write(bytes(WRITE_BUFFER_HIGH_BYTES + 1))
        await asyncio.sleep(1)
        assert server.paused
        assert client.heard == b""
        client.transport.resume_reading()
        await asyncio.sleep(1)
        assert not server.paused
        assert len(client.heard) == WRITE_BUFFER_HIGH_BYTES + 1

    simulated(story)


def test_a_listener_that_closes_in_the_turn_of_an_accept_has_accepted():
    async def story(loop: SimLoop) -> None:
        (bound,) = loop.network.bind(ENDPOINT)
        servers: list[End] = []

        def accept() -> End:
            servers.append(End())
            return servers[-1]

        await loop.create_server(accept, sock=bound)
        loop.network.at_next_accept(bound.port, bound.close)
        _, client = await loop.network.connect("c", bound.port, End)
        client.transport.write(b"question")
        await asyncio.sleep(1)
        assert servers[0].heard == b"question"
        with pytest.raises(ConnectionRefusedError):
            await loop.network.connect("c", bound.port, End)

    simulated(story)


def test_all_connections_to_a_port_are_reset_at_once():
    async def story(loop: SimLoop) -> None:
        client, server = await connected(loop)
        loop.network.reset_all(client.transport.line[1])
        await asyncio.sleep(1)
        assert isinstance(client.lost[0], ConnectionResetError)
        assert server.lost == [None]

    simulated(story)


def test_no_process_listens():
    async def story(loop: SimLoop) -> None:
        (bound,) = loop.network.bind(ENDPOINT)
        await loop.create_server(End, sock=bound)
        bound.close()
        with pytest.raises(ConnectionRefusedError):
            await loop.network.connect("c", bound.port, End)

    simulated(story)
