"""All connections of a client: opened when needed, polled together, and opened again after a back-off when lost."""

from __future__ import annotations

import math
import random
import selectors
import time
from typing import Any

from odradek.spark.wire.connection import Call, Connection
from odradek.spark.wire.dial import dial
from odradek.spark.wire.errors import BadSettings, ConnectionLost
from odradek.spark.wire.messages import Api
from odradek.spark.wire.settings import ClientSettings
from odradek.spark.wire.tls import tls_context

Address = tuple[str, int]

_JITTER = 0.2


def backoff_seconds(first_ms: int, max_ms: int, failures: int) -> float:
    """Back-off in seconds after ``failures`` consecutive failures; doubles with each failure, with a jitter of 20 %."""
    exact = min(first_ms << min(max(failures - 1, 0), 30), max_ms) / 1000
    return exact * random.uniform(1 - _JITTER, 1 + _JITTER)


def parse_bootstrap(text: str) -> list[Address]:
    """Parse ``host:port``, several separated by commas; an IPv6 address is in brackets."""
    addresses = []
    for piece in filter(None, (each.strip() for each in text.split(","))):
        host, colon, port = piece.rpartition("://")[2].rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise BadSettings(
                "INVALID_CONFIG", f"kafka.bootstrap.servers has {piece!r}, which is not host:port"
            )
        addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return addresses


class Peer:
    """A broker's address with its connection (None if there is none), and the number of its consecutive failures."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connection: Connection | None = None
        self.failures = 0
        self.retry_at = 0.0
        # Why the connection was lost, or could not be opened, the last time.
        self.lost_because = ""

    @property
    def outstanding(self) -> int:
        """Number of requests without a response."""
        return self.connection.outstanding if self.connection else 0

    @property
    def deadline(self) -> float:
        """Monotonic time at which the oldest request times out; infinity if there is none."""
        return self.connection.deadline if self.connection else math.inf


class Network:
    """The connections to all brokers, by node id. The bootstrap addresses are used until brokers are known."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._tls = tls_context(settings)
        self._bootstrap = [Peer(address) for address in parse_bootstrap(settings.bootstrap_servers)]
        random.shuffle(self._bootstrap)
        self._brokers: dict[int, Peer] = {}
        self._selector = selectors.DefaultSelector()

    # -- brokers ------------------------------------------------------------------------------------------------

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Store a broker's address from a response. If it has changed, the connection to the old address is closed."""
        known = self._brokers.get(node_id)
        if known is not None and known.address == (host, port):
            return
        if known is not None and known.connection is not None:
            self._forget(known, f"broker {node_id} has moved to {host}:{port}")
        self._brokers[node_id] = Peer((host, port))

    def knows(self, node_id: int) -> bool:
        return node_id in self._brokers

    def outstanding(self, node_id: int) -> int:
        """Number of requests without a response on the connection to a broker."""
        return self._brokers[node_id].outstanding

    def anyone(self) -> Peer:
        """The connected broker with the fewest outstanding requests; if none is connected, connect to one.

        Raises ``ConnectionLost`` if no broker can be reached now.
        """
        everyone = [*self._brokers.values(), *self._bootstrap]
        connected = [peer for peer in everyone if peer.connection is not None]
        if connected:
            return min(connected, key=lambda peer: peer.outstanding)
        why = ""
        for peer in sorted(everyone, key=lambda each: (each.failures, random.random())):
            try:
                self._connect(peer)
                return peer
            except ConnectionLost as error:
                why = error.sentence
        raise ConnectionLost(why)

    # -- calls --------------------------------------------------------------------------------------------------

    def submit(self, to: int | Peer, api: Api, request: Any) -> Call:
        """Send a request to a broker. Raises ``ConnectionLost`` if the broker cannot be reached now."""
        peer = self._brokers[to] if isinstance(to, int) else to
        connection = self._connect(peer)
        call = connection.submit(api, request, time.monotonic() + self._settings.request_timeout_ms / 1000)
        self._watch(peer)
        return call

    def pump(self, timeout_seconds: float) -> None:
        """Send and receive on all connections; return when any was readable or writable, or after the timeout."""
        now = time.monotonic()
        peers = [peer for peer in (*self._brokers.values(), *self._bootstrap) if peer.connection is not None]
        waits = [peer.deadline - now for peer in peers]
        wait = max(min([timeout_seconds, *waits]), 0)
        if self._selector.get_map():
            for key, events in self._selector.select(wait):
                if events & selectors.EVENT_WRITE:
                    key.data.connection.write()
                if events & selectors.EVENT_READ:
                    key.data.connection.read()
        elif wait:
            time.sleep(wait)
        now = time.monotonic()
        for peer in peers:
            if peer.connection is not None:
                peer.connection.expire(now)
                self._watch(peer)

    def close(self) -> None:
        for peer in (*self._brokers.values(), *self._bootstrap):
            if peer.connection is not None:
                self._forget(peer, "the client was closed")
        self._selector.close()

    # -- connections --------------------------------------------------------------------------------------------

    def _connect(self, peer: Peer) -> Connection:
        if peer.connection is not None:
            if not peer.outstanding:
                # A broker closes idle connections. Read first, to notice that before the request and not after it.
                peer.connection.read()
            self._watch(peer)
        if peer.connection is not None:
            return peer.connection
        if peer.retry_at > time.monotonic():
            raise ConnectionLost(peer.lost_because)
        try:
            peer.connection = dial(self._settings, self._tls, *peer.address)
        except ConnectionLost as error:
            self._failed(peer, error.sentence)
            raise
        self._selector.register(peer.connection.socket, selectors.EVENT_READ, peer)
        return peer.connection

    def _failed(self, peer: Peer, why: str) -> None:
        peer.lost_because = why
        peer.failures += 1
        settings = self._settings
        peer.retry_at = time.monotonic() + backoff_seconds(
            settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, peer.failures
        )

    def _watch(self, peer: Peer) -> None:
        """Poll the connection for reading, and for writing if it has unsent bytes; remove a closed connection."""
        connection = peer.connection
        if connection is None:
            return
        if connection.closed:
            self._forget(peer)
            self._failed(peer, connection.closed_because)
            return
        if connection.answered:
            peer.failures = 0
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.has_unsent else 0)
        if self._selector.get_key(connection.socket).events != events:
            self._selector.modify(connection.socket, events, peer)

    def _forget(self, peer: Peer, reason: str = "") -> None:
        connection, peer.connection = peer.connection, None
        assert connection is not None
        self._selector.unregister(connection.socket)
        connection.close(reason)
