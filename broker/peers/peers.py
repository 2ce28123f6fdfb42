"""The connections of one node to the other nodes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.loop.coroutines import Waiter
from broker.peers.channel import Channel, Connect, LinkState, ProtocolFactory

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.config import BrokerConfig
    from broker.injection.points import FaultInjection
    from broker.metadata.cluster import ClusterMetadata


class Peers:
    """The channels of one node to the others: one for each node and purpose (client id), created at the first request.

    ``connect`` replaces TCP by another network. Like ``loop.create_connection`` it is called with host, port and a protocol
    factory, returns an awaitable of (transport, protocol), and raises OSError.
    """

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        clock: Clock,
        metadata: ClusterMetadata,
        injection: FaultInjection,
        connect: Connect | None = None,
    ) -> None:
        self.node_id = node_id
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._links = injection.links
        self._connect = connect or _connect_tcp
        self._channels: dict[tuple[int, str], Channel] = {}
        self._links.subscribe(self._links_changed)
        self._ended = False

    def is_alive(self, node_id: int) -> bool:
        """Whether a node is registered, not fenced, and has an address on the inter-broker listener."""
        broker = self._metadata.brokers.get(node_id)
        return broker is not None and not broker.fenced and self._address(node_id) is not None

    def send(self, node_id: int, client_id: str, api_key: int, api_version: int, request: Any) -> Waiter[Any]:
        """Send a request to another node. The waiter gets the response, or None after a failure, never within this call.

        Requests with one client id to one node get their responses in order. After ``close`` and ``abandon`` no waiter is
        woken.
        """
        answered: Waiter[Any] = Waiter()
        if self._ended:
            return answered
        channel = self._channels.get((node_id, client_id))
        if channel is None:
            channel = self._channels[node_id, client_id] = self._channel(node_id, client_id)
        channel.send(api_key, api_version, request, answered)
        return answered

    def _channel(self, node_id: int, client_id: str) -> Channel:
        own, links = self.node_id, self._links
        link_state = LinkState(
            address=partial(self._address, node_id),
            is_cut=partial(links.is_cut, own, node_id),
            is_deaf=partial(links.is_cut, node_id, own),
            delay_ms=partial(links.delay_ms, own, node_id),
            delay_back_ms=partial(links.delay_ms, node_id, own),
        )
        return Channel(client_id, self._clock, self._connect, link_state, self._config.request_timeout_ms)

    def _address(self, node_id: int) -> tuple[str, int] | None:
        broker = self._metadata.brokers.get(node_id)
        endpoint = broker.endpoint(self._config.inter_broker_listener_name) if broker is not None else None
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def reconnect(self, node_id: int) -> None:
        """Reset the connections to another node, so that the next request to that node opens a new one."""
        for (to, _), channel in tuple(self._channels.items()):
            if to == node_id:
                channel.drop()

    def _links_changed(self) -> None:
        for channel in tuple(self._channels.values()):
            channel.check_link()

    def close(self) -> None:
        """Close the connections, because the node stops. The waiters of open requests are never woken."""
        self._end(resets=False)

    def abandon(self) -> None:
        """Reset the connections, because the node was killed. The waiters of open requests are never woken."""
        self._end(resets=True)

    def _end(self, *, resets: bool) -> None:
        if self._ended:
            return
        self._ended = True
        self._links.unsubscribe(self._links_changed)
        for channel in self._channels.values():
            channel.end(resets=resets)
        self._channels.clear()


async def _connect_tcp(
    host: str, port: int, protocol_factory: ProtocolFactory
) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
    return await asyncio.get_running_loop().create_connection(protocol_factory, host, port)
