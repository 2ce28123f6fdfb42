"""A Kafka client reduced to what retries need: connections, metadata, coordinators, back-off."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from random import Random
from typing import Any, Final

from protocol.codec import client_codec
from protocol.errors import ErrorCode
from protocol.frame import request_header, response_body_offset
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.simulation.network import SimNetwork

REQUEST_TIMEOUT_S: Final = 10.0
METADATA, FIND_COORDINATOR = 3, 10
GROUP, TRANSACTION = 0, 1

NONE = ErrorCode.none
ASK_COORDINATOR_AGAIN: Final = frozenset(
    {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress}
)
ASK_LEADER_AGAIN: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.kafka_storage_error,
        ErrorCode.offset_not_available,
    }
)
TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.concurrent_transactions,
        ErrorCode.unstable_offset_commit,
        ErrorCode.unknown_server_error,
    }
)


class Gone(Exception):
    """No answer: the connection could not be made, ended, or was silent for too long."""


class _Link(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self) -> None:
        self._data = b""
        self.transport: Any = None
        self.answer: asyncio.Future[bytes] | None = None
        self.is_open = True

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4:
            (size,) = struct.unpack_from(">i", self._data)
            if len(self._data) < 4 + size:
                return
            frame, self._data = self._data[4 : 4 + size], self._data[4 + size :]
            assert self.answer is not None, "an answer that nobody asked for"
            if not self.answer.done():
                self.answer.set_result(frame)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(Gone(str(exc)))


class Wire:
    """The connections of one client. ``say`` writes a line of the trace."""

    def __init__(
        self,
        name: str,
        network: SimNetwork,
        ports: list[int],
        random: Random,
        say: Callable[[str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.name = name
        self.random = random
        self.now_ms = now_ms
        self._network = network
        self._bootstrap = ports
        self._say = say
        self._links: dict[int, _Link] = {}
        self._ports: dict[int, int] = {}
        self._leaders: dict[tuple[str, int], tuple[int, int]] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._correlation_id = 0

    def say(self, text: str) -> None:
        self._say(f"{self.name} {text}")

    async def back_off(self) -> None:
        await asyncio.sleep(self.random.uniform(0.02, 0.3))

    # ---- one exchange

    async def _ask_port(self, port: int, key: int, version: int, request: Any) -> Any:
        link = self._links.get(port)
        if link is None or not link.is_open:
            try:
                _, link = await self._network.connect(self.name, port, _Link)
            except OSError as error:
                raise Gone(str(error)) from error
            self._links[port] = link
        self._correlation_id += 1
        codec = client_codec(key, version)
        frame = request_header(key, version, self._correlation_id, self.name) + b"".join(
            codec.encode(request)
        )
        link.answer = asyncio.get_running_loop().create_future()
        link.transport.write(struct.pack(">i", len(frame)) + frame)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                answer = await link.answer
        except (TimeoutError, Gone) as error:
            self.say(f"api {key} v{version} on {port}: no answer ({type(error).__name__})")
            self._drop(port)
            raise Gone(str(error)) from error
        assert struct.unpack_from(">i", answer) == (self._correlation_id,)
        return codec.decode(answer, response_body_offset(key, version, answer))

    def _drop(self, port: int) -> None:
        link = self._links.pop(port, None)
        if link is not None and link.is_open:
            link.transport.abort()

    async def ask_node(self, node_id: int, key: int, version: int, request: Any) -> Any:
        port = self._ports.get(node_id)
        if port is None:
            raise Gone(f"no address of node {node_id}")
        return await self._ask_port(port, key, version, request)

    async def ask_any(self, key: int, version: int, request: Any) -> Any:
        ports = sorted({*self._bootstrap, *self._ports.values()})
        return await self._ask_port(self.random.choice(ports), key, version, request)

    # ---- who is where

    async def leader(self, topic: str, index: int) -> tuple[int, int]:
        """(node id, leader epoch); ``Gone`` if nobody leads or nobody can tell."""
        known = self._leaders.get((topic, index))
        if known is not None:
            return known
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = await self.ask_any(METADATA, 9, request)
        self._ports = {broker.node_id: broker.port for broker in answer.brokers}
        for found in answer.topics:
            for partition in found.partitions:
                if partition.leader_id >= 0:
                    key = (found.name, partition.partition_index)
                    self._leaders[key] = (partition.leader_id, partition.leader_epoch)
        try:
            return self._leaders[topic, index]
        except KeyError:
            raise Gone(f"nobody leads {topic}-{index}") from None

    def forget_leader(self, topic: str, index: int) -> None:
        self._leaders.pop((topic, index), None)

    async def ask_leader(self, topic: str, index: int, key: int, version: int, request: Any) -> Any:
        node_id, _ = await self.leader(topic, index)
        try:
            return await self.ask_node(node_id, key, version, request)
        except Gone:
            self.forget_leader(topic, index)
            raise

    async def ask_coordinator(self, kind: int, name: str, key: int, version: int, request: Any) -> Any:
        node_id = self._coordinators.get((kind, name))
        if node_id is None:
            answer = await self.ask_any(FIND_COORDINATOR, 3, FindCoordinatorRequest(key=name, key_type=kind))
            if answer.error_code != NONE:
                raise Gone(f"no coordinator: {answer.error_code}")
            node_id = self._coordinators[kind, name] = answer.node_id
            self._ports[node_id] = answer.port
        try:
            return await self.ask_node(node_id, key, version, request)
        except Gone:
            self.forget_coordinator(kind, name)
            raise

    def forget_coordinator(self, kind: int, name: str) -> None:
        self._coordinators.pop((kind, name), None)

    def close(self) -> None:
        for port in list(self._links):
            self._drop(port)
