"""The register of a node's connections, with the limits, buffers and idle timer that they share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, cast

from broker.clock import NOTHING_DONE, Clock, Domain, Periodic
from broker.logging import get_logger
from broker.loop.slices import TurnsApart
from broker.net.answers import Answers
from broker.net.calls import CallInterceptors
from broker.net.frame_buffers import FrameBuffers
from broker.net.routes import Routes
from broker.resources.descriptors import SLOTS
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.net.listener_security import ListenerSecurity
    from broker.node import Node
    from broker.node.served import ServedNode

# Size of the receive buffer that all connections share. A frame that is not complete in it, and so every larger frame, gets
# a buffer of its own, into which the kernel writes.
LANDING_BYTES: Final = 64 * 1024
# The idle time is counted in ticks of one timer for all connections, so a connection is closed at most one tick late.
IDLE_TICKS: Final = 20
IDLE_TICK_MS_MIN: Final = 10
# Seconds that a stop waits until pending responses are written. Then connections are aborted.
CLOSE_GRACE_S: Final = 0.3

log = get_logger()


class Registered(Protocol):
    """The interface of connections and handshakes for the register."""

    connection_id: int
    host: str
    last_active_tick: int

    @property
    def in_progress(self) -> bool: ...

    def hang_up(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def reset(self) -> None: ...


class Expected(Registered, Protocol):
    """A handshake, which becomes a connection when it succeeds."""

    @property
    def connection(self) -> object: ...


@slotted(frozen=True)
class ConnectionQuotas:
    """Limits for clients. The comments have the names of Kafka's settings."""

    request_bytes_max: int = 104_857_600  # socket.request.max.bytes
    connections_max: int = 2**31 - 1  # max.connections
    connections_per_ip_max: int = 2**31 - 1  # max.connections.per.ip
    idle_ms_max: int = 600_000  # connections.max.idle.ms; negative means no limit

    @classmethod
    def of(cls, config: BrokerConfig) -> ConnectionQuotas:
        return cls(
            request_bytes_max=config.socket_request_max_bytes,
            connections_max=config.max_connections,
            connections_per_ip_max=config.max_connections_per_ip,
            idle_ms_max=config.connections_max_idle_ms,
        )


class Connections:
    """The register of a node's open connections, and the state that they share."""

    def __init__(
        self,
        node: ServedNode,
        routes: Routes,
        quotas: ConnectionQuotas,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        calls: CallInterceptors | None = None,
        on_disconnected: Callable[[int], object] = lambda connection_id: None,
        security: Mapping[str, ListenerSecurity] | None = None,
    ) -> None:
        # A cast, since handlers of a broker use a `Node`. A proxy passes a smaller class, with handlers of its own.
        self.node = cast("Node", node)
        self.on_disconnected = on_disconnected
        """Called with the id of each connection that has closed."""
        self.calls = calls or CallInterceptors()
        self.security = security or {}
        """TLS and SASL by listener name; PLAINTEXT listeners are missing."""
        self.life = node.life
        self.routes = routes
        self.quotas = quotas
        self.loop = loop
        # Bytes are received and processed in one step without an await, so one buffer serves all connections.
        self.landing = memoryview(bytearray(LANDING_BYTES))
        self.frame_buffers = FrameBuffers()
        self.answers = Answers(loop)
        self.large_tokens = TurnsApart()
        """Spreads the evaluation of large SASL tokens: at most one of them in each turn of the event loop."""
        self.tick = 0
        self.requests = 0
        self.accepted = 0
        self.paused = False
        """Whether the node is paused: new connections are accepted, and wait."""
        self.clock = clock
        self.cluster_ms = clock.cluster_ms
        self._open: dict[Registered, None] = {}  # in the order of arrival
        self._expected: dict[object, Expected] = {}
        """The handshakes in `_open`, by the connection that each will become."""
        self._per_ip: Counter[str] = Counter()
        self.on_left: Callable[[], object] | None = None
        """Called after each connection has closed, for example to free memory; None if nothing needs to be called."""
        self._timer: Periodic | None = None
        self._ticked_ms: float = 0
        """Start of the idle timer's current tick, in ms of the domain ``connections``."""
        self._all_gone: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Registered) -> str | None:
        """Register a new connection. Returns the reason for which it must be closed, None if it may stay."""
        expected = self._expected.pop(connection, None)
        if expected is None:
            self._enter(connection)
        else:
            connection.connection_id, connection.last_active_tick = expected.connection_id, self.tick
            del self._open[expected]
            self._uncount_host(expected)
            self._count(connection)
        refusal = self._refusal(connection)
        if refusal is None and self.paused:
            connection.pause()
        return refusal

    def expect(self, expected: Expected) -> str | None:
        """Register a handshake. Returns the reason for which it must end, None if it may continue."""
        self._enter(expected)
        self._expected[expected.connection] = expected
        return self._refusal(expected)

    def _enter(self, connection: Registered) -> None:
        self.accepted += 1
        connection.connection_id = self.accepted
        SLOTS.open += 1
        self._count(connection)

    def _count(self, connection: Registered) -> None:
        self._open[connection] = None
        self._per_ip[connection.host] += 1

    def _refusal(self, connection: Registered) -> str | None:
        if self._all_gone is not None:
            return "the broker is stopping"
        if len(self._open) > self.quotas.connections_max:
            return "max.connections reached"
        if self._per_ip[connection.host] > self.quotas.connections_per_ip_max:
            return "max.connections.per.ip reached"
        return None

    @property
    def has_room(self) -> bool:
        """Whether another connection may be accepted, by max.connections and the process's descriptor limit."""
        return SLOTS.has_room and len(self._open) + SLOTS.arriving < self.quotas.connections_max

    def forget(self, connection: Registered) -> None:
        if connection in self._open:
            self.on_disconnected(connection.connection_id)
            self._leave(connection)

    def forget_expected(self, expected: Expected) -> bool:
        """Remove a handshake that has ended. Returns False if a connection has replaced the handshake."""
        if self._expected.pop(expected.connection, None) is None:
            return False
        self._leave(expected)
        return True

    def _leave(self, connection: Registered) -> None:
        del self._open[connection]
        SLOTS.gone()
        if self.on_left is not None:
            self.on_left()
        self._uncount_host(connection)
        if not self._open and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    def _uncount_host(self, connection: Registered) -> None:
        self._per_ip[connection.host] -= 1
        if not self._per_ip[connection.host]:
            del self._per_ip[connection.host]

    def watch_idleness(self) -> None:
        """Start the timer that closes idle connections."""
        if self.quotas.idle_ms_max < 0:
            return
        self._ticked_ms = self.clock.now_ms(Domain.CONNECTIONS)
        self._timer = Periodic(
            self.clock,
            self._tick_ms,
            self._on_tick,
            Domain.CONNECTIONS,
            self._idle_until_ms,
            self._pass_ticks,
        )

    @property
    def _tick_ms(self) -> float:
        return max(IDLE_TICK_MS_MIN, self.quotas.idle_ms_max / IDLE_TICKS)

    def _idle_until_ms(self) -> float | None:
        """Time in ms at which the first connection will have been idle for too long; None if every connection has a
        request in progress."""
        ticks = (each.last_active_tick for each in self._open if not each.in_progress)
        first = min(ticks, default=None)
        if first is None:
            return None
        return self._ticked_ms + (first + IDLE_TICKS + 1 - self.tick) * self._tick_ms

    def _pass_ticks(self, count: int) -> None:
        self.tick += count
        self._ticked_ms += count * self._tick_ms

    def _on_tick(self) -> object:
        self.tick += 1
        self._ticked_ms = self.clock.now_ms(Domain.CONNECTIONS)
        someone_idle = False
        for connection in list(self._open):
            if not connection.in_progress and self.tick - connection.last_active_tick > IDLE_TICKS:
                # A connection that is still here at the next tick did not write its last responses; hang_up then aborts it.
                log.debug("idle connection closed", peer=connection.host, connection=connection.connection_id)
                connection.hang_up()
                someone_idle = True
        return None if someone_idle else NOTHING_DONE

    def pause(self) -> None:
        """Stop reading and writing on all connections, as a process stopped by SIGSTOP does."""
        self.paused = True
        for connection in list(self._open):
            connection.pause()

    def resume(self) -> None:
        self.paused = False
        for connection in list(self._open):
            connection.resume()

    def reset(self) -> None:
        """Reset all connections, as the death of a process does. Unwritten responses are lost."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.reset()

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Close all connections. Pending responses are written if clients read them within ``grace_s`` seconds."""
        if self._timer is not None:
            self._timer.cancel()
        self._all_gone = self.loop.create_future()
        for connection in list(self._open):
            connection.hang_up()
        if not self._open:
            return
        await asyncio.wait([self._all_gone], timeout=grace_s)
        for connection in list(self._open):
            connection.hang_up()  # the second call aborts
        await asyncio.sleep(0)
