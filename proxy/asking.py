"""The proxy's own requests to the upstream cluster, on connections separate from those of clients."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final

from broker.cluster.addresses import host_and_port
from broker.loop.coroutines import start
from broker.loop.life import NodeLife
from broker.loop.slices import Slices
from broker.requests.api import CloseConnection
from protocol.codec import MalformedRequest, version_of_response
from protocol.errors import ErrorCode
from protocol.frame import request_header
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.index import APIS
from protocol.versions import message_name
from proxy.forwarding import encoded_request, response_steps
from proxy.link import Link
from proxy.node import dial
from proxy.rewriting import API_VERSIONS, highest_common
from proxy.wire import Buffers, Frame, Wire

CLIENT_ID: Final = "odradek-proxy"
ANSWER_S_MAX: Final = 10.0
CORRELATION_ID_MAX: Final = 0x7FFFFFFF

Address = tuple[str, int]


class NoAnswer(Exception):
    """The upstream cluster does not respond. The message says why."""


class Upstream:
    """A client of the upstream, with one connection to each address. An ended connection is opened again."""

    def __init__(self, buffers: Buffers, slices: Slices, tls: ssl.SSLContext | None) -> None:
        self._buffers = buffers
        self._slices = slices
        self._tls = tls
        self._peers: dict[Address, _Peer] = {}

    async def ask(self, address: Address, api_key: int, request: Any, highest: int | None = None) -> Any:
        """Send a request in the highest version that both sides support (up to ``highest``), and return the response.

        Raises ``NoAnswer`` if the node does not respond in time, or responds with bytes that cannot be decoded.
        """
        peer = self._peers.get(address)
        if peer is None or peer.link.has_ended:
            peer = self._peers[address] = _Peer(address, self._buffers, self._slices, self._tls)
        try:
            return await asyncio.wait_for(peer.ask(api_key, request, highest), ANSWER_S_MAX)
        except (CloseConnection, MalformedRequest) as error:
            reason = str(error)
        except TimeoutError:
            reason = f"{peer.in_words} does not respond"
        peer.link.close()
        raise NoAnswer(reason)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.link.close()
        self._peers.clear()


class _Peer:
    """The connection to one address. Implements `proxy.link.Far`."""

    def __init__(
        self, address: Address, buffers: Buffers, slices: Slices, tls: ssl.SSLContext | None
    ) -> None:
        self.address = address
        self.buffers = buffers
        self.link = Link(self)
        self._slices = slices
        self._life = NodeLife()
        self._tls = tls
        self._correlation_id = 0
        self._announced: asyncio.Future[Any] | None = None

    @property
    def in_words(self) -> str:
        return host_and_port(*self.address)

    async def dial(self, factory: Callable[[], Wire]) -> None:
        await dial(self.address, self._tls, factory)

    def note(self, *, reachable: bool) -> None:
        pass

    async def ask(self, api_key: int, request: Any, highest: int | None) -> Any:
        if self._announced is None:
            self._announced = asyncio.ensure_future(self._versions())
        # Shielded, since other requests wait for the versions too, even if this one is cancelled.
        version = highest_common(await asyncio.shield(self._announced), api_key)
        if version is None:
            name = message_name(APIS[api_key][0])
            raise NoAnswer(f"{self.in_words} supports no version of {name} that the proxy supports")
        return await self._exchange(api_key, version if highest is None else min(version, highest), request)

    async def _versions(self) -> Any:
        request = ApiVersionsRequest(client_software_name="odradek", client_software_version="1")
        response = await self._exchange(API_VERSIONS, 3, request)
        if response.error_code == ErrorCode.unsupported_version:
            response = await self._exchange(API_VERSIONS, 0, ApiVersionsRequest())
        return response.api_keys

    async def _exchange(self, api_key: int, version: int, request: Any) -> Any:
        self._correlation_id = (self._correlation_id + 1) & CORRELATION_ID_MAX
        header = request_header(api_key, version, self._correlation_id, CLIENT_ID)
        frame = await self.link.request(encoded_request(api_key, version, request, header), _unread)
        steps = response_steps(api_key, version_of_response(api_key, version, frame), frame)
        response = start(self._slices.run(steps), self._life)
        return await response if isinstance(response, asyncio.Future) else response


def _unread(frame: Frame) -> Frame:
    return frame
