"""Sends random frames to a broker in virtual time: ``python -m tests.fuzz.frames --seed 1 --frames 2000``.

Each frame must get a response that matches its schema, or its connection must be closed. Another connection must get its
response at once, and the broker must log no error. Waiting takes no real time (`tests.simulation`), so thousands of frames
take seconds.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import MutableMapping
from pathlib import Path
from random import Random
from typing import Any, Final

import structlog

from broker.clock.virtual import VirtualClock
from broker.cluster import Cluster
from broker.requests.api import discover
from lab.metrics.request_metrics import RequestMetrics
from server.options import parse
from tests.fuzz.playing import Failure, play, play_seeds
from tests.fuzz.requests import Frame, Requests, World
from tests.simulation.loop import SimClock, SimLoop
from tests.support import raw

PORT: Final = 9092
TOPICS: Final = ("orders", "copies")
DAMAGE: Final = 0.5
FRAMES_PER_CONNECTION: Final = 20
WAIT_S: Final = 600.0
"""Virtual seconds to wait for a response. No random request may take longer."""
NEIGHBOUR_WAIT_S: Final = 1.0
FRAME_BYTES_MAX: Final = 8 << 20
PATIENT: Final = ("join_group", "sync_group")
"""APIs whose responses wait for other members, with random timeouts. The test does not wait for these responses."""
OF_ACLS: Final = ("create_acls", "delete_acls", "describe_acls")
"""APIs whose connection is closed if a field of the request has an unknown code (such as an operation), as in Kafka."""


class Client(asyncio.Protocol):
    """One connection: the received frames, and whether it has been closed."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.is_open = True
        self._data = b""
        self._news = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._news.set()

    def send(self, frame: bytes) -> None:
        self.transport.write(struct.pack(">i", len(frame)) + frame)

    async def receive(self, wait_s: float) -> bytes | None:
        """Return the next frame, or None if the connection has been closed. Raises TimeoutError after ``wait_s``."""
        async with asyncio.timeout(wait_s):
            while True:
                size = struct.unpack_from(">i", self._data)[0] if len(self._data) >= 4 else None
                if size is not None and len(self._data) >= 4 + size:
                    frame, self._data = self._data[4 : 4 + size], self._data[4 + size :]
                    return frame
                if not self.is_open:
                    return None
                self._news.clear()
                await self._news.wait()


class Fuzz:
    """A broker, random frames from one seed, and a second connection (the neighbour) with valid requests."""

    def __init__(self, seed: int, directory: Path, loop: SimLoop) -> None:
        self._seed = seed
        self._directory = directory
        self._loop = loop
        self._errors: list[str] = []
        self.answered = self.closed = 0

    def log(self, _: Any, name: str, event: MutableMapping[str, Any]) -> Any:
        """A structlog processor that collects error lines of the broker: each of them fails the test."""
        if name in ("error", "critical", "exception") or "exc_info" in event:
            self._errors.append(f"{event}")
        raise structlog.DropEvent

    async def run(self, frames: int) -> None:
        await self._start()
        neighbour = await self._connect()
        client = await self._connect()
        requests = self._requests(Random(f"{self._seed}/frames"))
        for number in range(1, frames + 1):
            if not client.is_open or number % FRAMES_PER_CONNECTION == 0:
                client.transport.abort()
                client = await self._connect()
            frame = requests.frame(number, DAMAGE)
            may_close = frame.is_damaged or frame.is_mute or frame.api in (*PATIENT, *OF_ACLS)
            try:
                answered = await self._send(client, frame)
                if not answered and not client.is_open and not may_close:
                    raise Failure("the broker closed the connection after a valid request")
                await self._check_neighbour(neighbour, number)
            except Failure as failure:
                what = f"seed {self._seed}, frame {number} ({frame.api} v{frame.version})"
                raise Failure(f"{what}: {failure}: {frame.data.hex()}") from failure
        client.transport.abort()
        await self._cluster.stop()

    def _requests(self, random: Random) -> Requests:
        topics = self._cluster.metadata.topics.values()
        apis = {raw_name(key): api.versions for key, api in discover().items()}
        return Requests(random, World(TOPICS, [topic.topic_id for topic in topics]), apis)

    async def _start(self) -> None:
        arguments = ["--port", str(PORT), "--data-dir", str(self._directory)]
        for topic in TOPICS:
            arguments += ["--topic", f"{topic}:2"]
        self._cluster = Cluster(
            parse(arguments, {}),
            clock=VirtualClock(SimClock(self._loop)),
            random=Random(f"{self._seed}/broker"),
            bind=self._loop.network.bind,
        )
        await self._cluster.start()
        # Metrics decode requests, too.
        RequestMetrics(self._cluster.calls, self._cluster.metadata.topic_name).start()

    async def _connect(self) -> Client:
        _, client = await self._loop.network.connect("fuzz", PORT, Client)
        return client

    async def _send(self, client: Client, frame: Frame) -> bool:
        """Send a frame, and return whether there was a response."""
        client.send(frame.data)
        try:
            answer = await client.receive(WAIT_S)
        except TimeoutError:
            if not frame.is_mute and frame.api not in PATIENT:
                raise Failure("neither a response nor a closed connection") from None
            client.transport.abort()
            return False
        if answer is None:
            self.closed += 1
            return False
        self.answered += 1
        self._note(frame, _check_answer(frame.data, answer))
        return True

    def _note(self, frame: Frame, answer: dict[str, Any]) -> None:
        """Called with each response."""

    async def _check_neighbour(self, neighbour: Client, number: int) -> None:
        neighbour.send(raw.encode_request("api_versions", 0, {}, number))
        try:
            answer = await neighbour.receive(NEIGHBOUR_WAIT_S)
        except TimeoutError:
            raise Failure("the neighbour, a connection with valid requests only, gets no response") from None
        if answer is None or raw.decode_response("api_versions", 0, answer)[0] != number:
            raise Failure(
                "the neighbour, a connection with valid requests only, was closed or got a wrong response"
            )
        if self._errors:
            raise Failure(self._errors[0])


def _check_answer(frame: bytes, answer: bytes) -> dict[str, Any]:
    """Check that a response matches the correlation id and version in the frame, which may be damaged. Return its body."""
    key, version, correlation_id = struct.unpack_from(">hhi", frame)
    try:
        found, body = raw.decode_response(raw_name(key), version, answer)
    except (KeyError, raw.Malformed) as error:
        raise Failure(f"the response does not parse: {error!r}: {answer.hex()}") from error
    if found != correlation_id:
        raise Failure(f"the response has correlation id {found}, not {correlation_id}")
    return body


def raw_name(key: int) -> str:
    return next(name for name, known in raw.API_KEYS.items() if known == key)


def fuzz(seed: int, frames: int) -> Fuzz:
    """Run one seed. Raises ``Failure`` if a frame is not handled correctly."""
    return play(Fuzz, seed, frames)


def main(arguments: list[str]) -> int:
    return play_seeds(
        arguments,
        __doc__,
        "frames",
        2000,
        fuzz,
        lambda work: f"{work.answered} answered, {work.closed} closed",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
