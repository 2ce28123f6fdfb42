"""A minimal Kafka client with the parts that retries need: connections, metadata, coordinators, back-off."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from broker.clock import Domain
from broker.cluster import Cluster
from protocol.codec import client_codec
from protocol.errors import ErrorCode
from protocol.frame import request_header, response_body_offset
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.simulation.network import SimNetwork

if TYPE_CHECKING:
    from tests.simulation.watermarks import Watermarks

REQUEST_TIMEOUT_S: Final = 10.0
METADATA, FIND_COORDINATOR = 3, 10
GROUP, TRANSACTION = 0, 1

# (API, version) of requests that may arrive twice, or after the client has continued. Without KIP-890 a late EndTxn or
# TxnOffsetCommit applies to the producer's next transaction, in Kafka too, as the epoch is the same.
SENT_TWICE: Final = frozenset({(0, 11), (0, 12), (22, 4), (24, 3), (26, 5), (28, 5), (78, 2), (79, 2)})
TWICE: Final = 0.03
LATE_S_MAX: Final = 20.0
LATE_MARGIN_MS: Final = 15_000
"""Maximum milliseconds that a frame may be in flight: on a slow line, or after a reset of its connection."""

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
    """No response: the connection was refused, ended, or silent for too long."""


class Link(asyncio.Protocol):
    """One connection. Responses come in the order of the requests."""

    def __init__(self) -> None:
        self._data = b""
        self.transport: Any = None
        self._waiting: deque[asyncio.Future[bytes]] = deque()
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
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(frame)

    def ask(self, frame: bytes) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.is_open:
            self._waiting.append(answer)
            self.transport.write(struct.pack(">i", len(frame)) + frame)
        else:
            answer.set_exception(Gone("the connection has ended"))
        return answer

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(Gone(str(exc)))


class Facts:
    """The state inside the cluster, for checks that a client could not make by requests."""

    def __init__(self, cluster: Cluster, watermarks: Watermarks) -> None:
        self._cluster = cluster
        self._watermarks = watermarks

    def shown(self, topic: str, index: int, records: bytes) -> None:
        """Check that the batches that a consumer got were committed by a leader."""
        known = self._cluster.metadata.topics.get(topic)
        if known is not None:
            node = self._cluster.running(known.partitions[index].leader)
            leader = node.replicas.get(topic, index) if node is not None else None
            self._watermarks.shown((known.topic_id, index), records, leader)

    def leader_epoch(self, topic: str, index: int) -> int:
        """Leader epoch of a partition at the controller, -1 if the topic does not exist."""
        known = self._cluster.metadata.topics.get(topic)
        return known.partitions[index].leader_epoch if known is not None else -1

    def log_start(self, topic: str, index: int) -> int:
        """Log start of a partition at its leader, 0 without a leader."""
        known = self._cluster.metadata.topics.get(topic)
        node = self._cluster.running(known.partitions[index].leader) if known is not None else None
        partition = node.replicas.get(topic, index) if node is not None else None
        return partition.log_start_offset if partition is not None else 0

    def topic_id(self, name: str) -> UUID | None:
        topic = self._cluster.metadata.topics.get(name)
        return topic.topic_id if topic is not None else None

    def topic_name(self, topic_id: UUID) -> str:
        topic = self._cluster.metadata.topic_by_id(topic_id)
        assert topic is not None, topic_id
        return topic.name

    def ids_ms(self) -> int:
        """Time, in ms, of the clock domain in which producer ids expire."""
        return self._cluster.clock.now_ms(Domain.IDS)


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
        facts: Facts,
    ) -> None:
        self.name = name
        self.random = random
        self.now_ms = now_ms
        self.facts = facts
        self._network = network
        self._bootstrap = ports
        self._say = say
        self._links: dict[int, Link] = {}
        self._ports: dict[int, int] = {}
        self._leaders: dict[tuple[str, int], tuple[int, int]] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self.topic_ids: dict[str, UUID] = {}
        """Topic ids from the last Metadata response."""
        self._correlation_id = 0
        self._late: set[asyncio.Task[None]] = set()
        self.latest_frame_ms = 0
        """Time until which an earlier frame may arrive: a duplicate, or a frame on a connection that was closed.
        """

    def say(self, text: str) -> None:
        self._say(f"{self.name} {text}")

    async def back_off(self) -> None:
        await asyncio.sleep(self.random.uniform(0.02, 0.3))

    # ---- requests

    async def _link(self, port: int) -> Link:
        link = self._links.get(port)
        if link is None or not link.is_open:
            try:
                _, link = await self._network.connect(self.name, port, Link)
            except OSError as error:
                raise Gone(str(error)) from error
            self._links[port] = link
        return link

    async def _ask_port(self, port: int, key: int, version: int, request: Any) -> Any:
        (answer,) = await self._ask_port_all(port, key, version, [request])
        if isinstance(answer, Gone):
            raise answer
        return answer

    async def _ask_port_all(
        self,
        port: int,
        key: int,
        version: int,
        requests: Sequence[Any],
        repeatable: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Send several requests at once. Returns for each request the response, or ``Gone``.

        ``repeatable``: those that the network may deliver twice, perhaps before the others; by default all.
        """
        link = await self._link(port)
        asked = [self._ask(link, key, version, request) for request in requests]
        if (key, version) in SENT_TWICE and self.random.random() < TWICE:
            self._send_again(port, key, version, self.random.choice(repeatable or requests))
        answers: list[Any] = []
        for correlation_id, answer in asked:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    frame = await answer
            except (TimeoutError, Gone) as error:
                self.say(f"api {key} v{version} on {port}: no answer ({type(error).__name__})")
                self._drop(port, link)
                answers.append(Gone(str(error)))
                continue
            assert struct.unpack_from(">i", frame) == (correlation_id,)
            offset = response_body_offset(key, version, frame)
            answers.append(client_codec(key, version).decode(frame, offset))
        return answers

    async def connect(self, port: int) -> Link:
        """Open a separate connection, which the caller closes."""
        try:
            _, link = await self._network.connect(self.name, port, Link)
        except OSError as error:
            raise Gone(str(error)) from error
        return link

    async def exchange(self, link: Link, key: int, version: int, request: Any) -> Any:
        """Send a request over this connection and return the response."""
        _, answer = self._ask(link, key, version, request)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                frame = await answer
        except TimeoutError as error:
            link.transport.abort()
            raise Gone("no response") from error
        return client_codec(key, version).decode(frame, response_body_offset(key, version, frame))

    def _ask(self, link: Link, key: int, version: int, request: Any) -> tuple[int, asyncio.Future[bytes]]:
        self._correlation_id += 1
        header = request_header(key, version, self._correlation_id, self.name)
        return self._correlation_id, link.ask(header + b"".join(client_codec(key, version).encode(request)))

    def _send_again(self, port: int, key: int, version: int, request: Any) -> None:
        """Send the same request again over another connection, at once or later, and discard the response."""
        delay_s = self.random.choice((0.0, self.random.uniform(0, 0.5), self.random.uniform(0, LATE_S_MAX)))
        task = asyncio.ensure_future(self._send_late(delay_s, port, key, version, request))
        self._late.add(task)
        self.latest_frame_ms = max(self.latest_frame_ms, self.now_ms() + int(delay_s * 1000) + LATE_MARGIN_MS)
        task.add_done_callback(self._late.discard)

    async def _send_late(self, delay_s: float, port: int, key: int, version: int, request: Any) -> None:
        await asyncio.sleep(delay_s)
        self.say(f"api {key} v{version} on {port} comes once more")
        with suppress(OSError, Gone, TimeoutError):
            _, link = await self._network.connect(self.name, port, Link)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._ask(link, key, version, request)[1]
            link.transport.abort()

    def _drop(self, port: int, link: Link) -> None:
        if self._links.get(port) is link:
            del self._links[port]
        if link.is_open:
            link.transport.abort()
            self.latest_frame_ms = max(self.latest_frame_ms, self.now_ms() + LATE_MARGIN_MS)

    def link_to(self, node_id: int) -> Link | None:
        """The connection to a node, if there is one."""
        return self._links.get(self._ports.get(node_id, -1))

    def disconnect(self) -> None:
        """End all connections, as if the client had died."""
        for port, link in list(self._links.items()):
            self._drop(port, link)

    @property
    def nodes(self) -> list[int]:
        """Ids of the nodes whose addresses are known."""
        return sorted(self._ports)

    async def ask_node(self, node_id: int, key: int, version: int, request: Any) -> Any:
        port = self._ports.get(node_id)
        if port is None:
            raise Gone(f"the address of node {node_id} is not known")
        return await self._ask_port(port, key, version, request)

    async def ask_any(self, key: int, version: int, request: Any) -> Any:
        ports = sorted({*self._bootstrap, *self._ports.values()})
        return await self._ask_port(self.random.choice(ports), key, version, request)

    # ---- leaders and coordinators

    async def leader(self, topic: str, index: int) -> tuple[int, int]:
        """(node id, leader epoch) of the partition's leader. Raises ``Gone`` without a leader or a response."""
        known = self._leaders.get((topic, index))
        if known is not None:
            return known
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = await self.ask_any(METADATA, 12, request)
        self._ports = {broker.node_id: broker.port for broker in answer.brokers}
        for found in answer.topics:
            self.topic_ids[found.name] = found.topic_id
            for partition in found.partitions:
                if partition.leader_id >= 0:
                    key = (found.name, partition.partition_index)
                    self._leaders[key] = (partition.leader_id, partition.leader_epoch)
        try:
            return self._leaders[topic, index]
        except KeyError:
            raise Gone(f"{topic}-{index} has no leader") from None

    def forget_leader(self, topic: str, index: int) -> None:
        self._leaders.pop((topic, index), None)

    async def ask_leader(self, topic: str, index: int, key: int, version: int, request: Any) -> Any:
        (answer,) = await self.ask_leader_all(topic, index, key, version, [request])
        if isinstance(answer, Gone):
            raise answer
        return answer

    async def ask_leader_all(
        self,
        topic: str,
        index: int,
        key: int,
        version: int,
        requests: Sequence[Any],
        repeatable: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Send several requests to the leader at once, in order. Returns for each request the response, or ``Gone``."""
        node_id, _ = await self.leader(topic, index)
        port = self._ports.get(node_id)
        try:
            if port is None:
                raise Gone(f"the address of node {node_id} is not known")
            answers = await self._ask_port_all(port, key, version, requests, repeatable)
        except Gone:
            self.forget_leader(topic, index)
            raise
        if any(isinstance(answer, Gone) for answer in answers):
            self.forget_leader(topic, index)
        return answers

    async def send_and_forget(self, topic: str, index: int, key: int, version: int, request: Any) -> None:
        """Send a request to the leader without waiting for the response. Raises ``Gone`` if there is no leader."""
        node_id, _ = await self.leader(topic, index)
        port = self._ports.get(node_id)
        if port is not None:
            _, answer = self._ask(await self._link(port), key, version, request)
            answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
            self.latest_frame_ms = max(self.latest_frame_ms, self.now_ms() + LATE_MARGIN_MS)

    async def ask_coordinator(self, kind: int, name: str, key: int, version: int, request: Any) -> Any:
        node_id = self._coordinators.get((kind, name))
        if node_id is None:
            answer = await self.ask_any(FIND_COORDINATOR, 3, FindCoordinatorRequest(key=name, key_type=kind))
            if answer.error_code != NONE:
                self.say(f"no coordinator of {name}: {ErrorCode(answer.error_code).name}")
                raise Gone(f"FindCoordinator fails with error code {answer.error_code}")
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
        self.disconnect()
        for task in self._late:
            task.cancel()
