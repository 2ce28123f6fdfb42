"""Connections between nodes on a listener with TLS or SASL: the SASL login precedes the first request of the channel.

connect = secured(tls=lambda: context, login=lambda: SaslClient("PLAIN", "broker", password))
Peers(..., connect=connect)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from broker.peers.channel import Connect, ProtocolFactory
from broker.security.sasl.authenticator import SASL_AUTHENTICATE, SASL_HANDSHAKE
from broker.security.sasl.mechanism import AuthenticationFailed
from protocol.codec import MalformedRequest, read_response, request_frame
from protocol.frame import BadSize, whole_frames
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    import ssl

    from broker.security.sasl.clients import SaslClient

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
RESPONSE_BYTES_MAX: Final = 64 * 1024
LOGIN_S: Final = 30.0


def secured(
    *,
    tls: Callable[[], ssl.SSLContext] | None = None,
    login: Callable[[], SaslClient] | None = None,
) -> Connect:
    """Return a ``connect`` function for `Peers`, which raises OSError if the node is unreachable or rejects the login."""

    async def connect(
        host: str, port: int, protocol_factory: ProtocolFactory
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()
        context = None if tls is None else tls()
        if login is None:
            return await loop.create_connection(protocol_factory, host, port, ssl=context)
        transport, exchange = await loop.create_connection(_Exchange, host, port, ssl=context)
        try:
            async with asyncio.timeout(LOGIN_S):
                await _log_in(exchange, login())
        except BaseException:
            transport.abort()
            raise
        protocol = protocol_factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        return transport, protocol

    return connect


async def _log_in(exchange: _Exchange, login: SaslClient) -> None:
    handshake = SaslHandshakeRequest(mechanism=login.mechanism)
    chosen = await exchange.ask(SASL_HANDSHAKE, HANDSHAKE_VERSION, handshake)
    if chosen.error_code:
        raise ConnectionRefusedError(f"the other node does not support {login.mechanism}")
    token: bytes | None = login.first()
    while token is not None:
        request = SaslAuthenticateRequest(auth_bytes=token)
        answer = await exchange.ask(SASL_AUTHENTICATE, AUTHENTICATE_VERSION, request)
        if answer.error_code:
            raise ConnectionRefusedError(f"the other node rejected the login: {answer.error_message}")
        try:
            # In a thread, because SCRAM derives keys from the password with thousands of hashes.
            token = await asyncio.to_thread(login.evaluate, bytes(answer.auth_bytes))
        except AuthenticationFailed as failure:
            raise ConnectionRefusedError(f"the other node failed to authenticate itself: {failure}") from None


class _Exchange(asyncio.Protocol):
    """Sends the requests of the SASL login one after the other, until the channel's protocol replaces it."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._requests = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail("the other node has closed the connection")

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            for frame in whole_frames(self._received, RESPONSE_BYTES_MAX):
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(frame)
        except BadSize:
            self._fail("the other node has sent an invalid response")

    def _fail(self, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError(reason))

    async def ask(self, api_key: int, api_version: int, request: Any) -> Any:
        if self._transport is None:
            raise ConnectionResetError("the other node has closed the connection")
        self._requests += 1
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request_frame(api_key, api_version, self._requests, "login", request))
        response = await self._answer
        try:
            return read_response(api_key, api_version, response)
        except MalformedRequest as error:
            raise ConnectionResetError(f"the other node has sent an invalid response: {error}") from error
