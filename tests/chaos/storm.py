"""Clients that connect all the time, so that a dying node accepts connections in its last turn of the event loop.

No such connection may ever get a response: the node that accepted it is dead, and the restarted node does not have it.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator

from odradek.deadlines import stretched
from protocol.codec import request_frame
from protocol.frame import response_body_offset
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.api_versions import ApiVersionsRequest
from tests.chaos.history import Place

API_VERSIONS, ALTER_PARTITION_REASSIGNMENTS = 18, 45
PAUSE_S = 0.005
"""Seconds between two rounds of connects (one to each node). In a gust there is no pause."""
GUST_CONNECTS = 30
"""Number of connects at once in a gust, so that the node's event loop always finds some in its backlog."""
KEPT_MAX = 400
"""Maximum open connections to each node."""
ANSWER_S = stretched(5.0)
LINGER_NOT = struct.pack("ii", 1, 0)


class Storm:
    """Connects to all nodes of ``ports`` (by node id) in a thread until ``end``."""

    def __init__(self, ports: dict[int, int]) -> None:
        self._ports = ports
        self._kept: dict[int, deque[socket.socket]] = {node_id: deque() for node_id in ports}
        self._lock = threading.Lock()
        self._gust_at: int | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._blow, name="storm", daemon=True)
        self.connects = 0
        self.answered: list[str] = []
        """Violations: one line for each connection that got a response after the death of its node."""

    def start(self) -> None:
        self._thread.start()

    @contextlib.contextmanager
    def gust(self, node_id: int) -> Iterator[None]:
        """Context manager: connect to a node as often as possible during the block, which kills the node."""
        self._gust_at = node_id
        try:
            yield
        finally:
            self._gust_at = None

    def _blow(self) -> None:
        while not self._ended.wait(0 if self._gust_at is not None else PAUSE_S):
            at = self._gust_at
            for node_id in self._ports if at is None else [at] * GUST_CONNECTS:
                self._connect(node_id)

    def _connect(self, node_id: int) -> None:
        made = socket.socket()
        made.setblocking(False)
        address = ("127.0.0.1", self._ports[node_id])
        made.connect_ex(address)  # on loopback it is complete by now, and the second call returns its result
        if made.connect_ex(address) not in (0, errno.EISCONN):
            made.close()
            return
        with self._lock:
            self.connects += 1
            kept = self._kept[node_id]
            kept.append(made)
            if len(kept) > KEPT_MAX:
                _close(kept.popleft())

    def examine(self, node_id: int) -> None:
        """Check a node that is down: its earlier connections must have ended without a response."""
        with self._lock:
            kept, self._kept[node_id] = self._kept[node_id], deque()
        for each in kept:
            if _is_answered(each):
                self.answered.append(f"node {node_id} is down, but a connection from before got a response")
            _close(each)

    def end(self) -> list[str]:
        self._ended.set()
        self._thread.join()
        for kept in self._kept.values():
            for each in kept:
                _close(each)
        return self.answered


def move(port: int, place: Place, replicas: list[int]) -> None:
    """Send AlterPartitionReassignments for a partition. Failures are ignored."""
    partition = ReassignablePartition(partition_index=place.partition, replicas=replicas)
    topic = ReassignableTopic(name=place.topic, partitions=[partition])
    request = AlterPartitionReassignmentsRequest(timeout_ms=5_000, topics=[topic])
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as made,
    ):
        _ask(made, ALTER_PARTITION_REASSIGNMENTS, 0, request)


def _is_answered(connection: socket.socket) -> bool:
    connection.settimeout(ANSWER_S)
    try:
        return bool(_ask(connection, API_VERSIONS, 0, ApiVersionsRequest()))
    except OSError:
        return False


def _ask(connection: socket.socket, key: int, version: int, request: object) -> bytes:
    connection.sendall(request_frame(key, version, 1, "storm", request))
    return connection.recv(response_body_offset(key, version, bytes(8)))


def _close(connection: socket.socket) -> None:
    """Close the connection with RST: otherwise thousands of ports would stay in TIME_WAIT."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    connection.close()
