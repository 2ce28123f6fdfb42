"""A node that authenticates to another node, and what happens to its requests if the authentication fails."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from broker.peers.secured import secured
from broker.security.sasl.clients import PlainClient, ScramClient
from protocol.codec import request_codec
from protocol.frame import parse_request_header, response_header
from protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeResponse

SIZE_BYTES: Final = 4


class Answering(asyncio.Protocol):
    """A server that sends its responses one after the other, whatever the requests are."""

    def __init__(self, responses: list[Any]) -> None:
        self._responses = responses
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        size = int.from_bytes(self._received[:SIZE_BYTES], "big")
        frame, self._received = self._received[SIZE_BYTES : SIZE_BYTES + size], b""
        header = parse_request_header(frame)
        body = b"".join(request_codec(header.api_key, header.api_version).encode(self._responses.pop(0)))
        answer = response_header(header.api_key, header.api_version, header.correlation_id) + body
        # Send the response in two parts, as it may arrive over a network.
        self.transport.write(len(answer).to_bytes(SIZE_BYTES, "big") + answer[:3])
        asyncio.get_running_loop().call_soon(self.transport.write, answer[3:])


async def connected(login: Any, *responses: Any) -> asyncio.BaseProtocol:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(list(responses)), "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        transport, protocol = await secured(login=lambda: login)("127.0.0.1", port, asyncio.Protocol)
        transport.close()
        return protocol
    finally:
        server.close()


async def test_the_channel_takes_over_once_the_node_has_logged_in() -> None:
    login = PlainClient("broker", "secret")
    protocol = await connected(login, SaslHandshakeResponse(), SaslAuthenticateResponse())
    assert type(protocol) is asyncio.Protocol


@pytest.mark.parametrize(
    ("login", "responses", "reason"),
    [
        (PlainClient("b", "s"), [SaslHandshakeResponse(error_code=33)], "does not support PLAIN"),
        (
            PlainClient("b", "s"),
            [SaslHandshakeResponse(), SaslAuthenticateResponse(error_code=58, error_message="no")],
            "rejected the login: no",
        ),
        (
            PlainClient("b", "s"),
            [SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"more")],
            "answered a SASL/PLAIN message with a challenge",
        ),
        (
            ScramClient("SCRAM-SHA-256", "b", "s"),
            [SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"nonsense")],
            "Invalid SCRAM server first message format",
        ),
    ],
)
async def test_a_failed_authentication_fails_the_connection(
    login: Any, responses: list[Any], reason: str
) -> None:
    """A failed authentication to another node raises OSError, as an unreachable node does. The channel retries after such an
    error."""
    with pytest.raises(OSError, match=reason):
        await connected(login, *responses)
