"""Clients that only log in, with prebuilt frames, precomputed keys and blocking sockets.

For a SCRAM login the client computes two HMACs: the keys are derived from the password once, together with the credential.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import struct
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.client import Client, WrongResponse, frame, until_ready
from benchmarks.security.targets import PASSWORD, USER
from benchmarks.targets import HOST
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest

SASL_HANDSHAKE: Final = (17, 1)
SASL_AUTHENTICATE: Final = (36, 1)
ALTER_SCRAM: Final = (51, 0)
SCRAM_SHA_256: Final = 1
SALT: Final = b"a-salt-of-the-benchmark"
ITERATIONS: Final = 4096
SIZE: Final = struct.Struct(">i")
# Close with a reset, so that the ports of thousands of connections per second are free at once.
LINGER_NOT: Final = struct.pack("ii", 1, 0)
NONCE: Final = "rOprNGfwEbeRWgbNEkqO"

_SALTED: Final = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), SALT, ITERATIONS)
_CLIENT_KEY: Final = hmac.digest(_SALTED, b"Client Key", "sha256")
_STORED_KEY: Final = hashlib.sha256(_CLIENT_KEY).digest()
_BARE: Final = f"n={USER},r={NONCE}"


def add_user(connect: Callable[[], socket.socket]) -> None:
    """Create a SCRAM credential for the user, as soon as the broker accepts it."""
    upsertion = ScramCredentialUpsertion(
        name=USER, mechanism=SCRAM_SHA_256, iterations=ITERATIONS, salt=SALT, salted_password=_SALTED
    )

    def add() -> None:
        client = Client(connect())
        try:
            answer = client.ask(ALTER_SCRAM, AlterUserScramCredentialsRequest(upsertions=[upsertion]))
        except ConnectionError as failed:
            raise WrongResponse(f"AlterUserScramCredentials: {failed}") from failed
        finally:
            client.close()
        if error := answer.results[0].error_code:
            raise WrongResponse(f"AlterUserScramCredentials: error {error}")

    until_ready(add)


class Login(NamedTuple):
    """A login with one mechanism."""

    first: Sequence[bytes]
    """Frames, each of which is sent after the response to the one before it."""
    last: Callable[[bytes], bytes] | None = None
    """Computes the frame that follows ``first`` from the last response; None if the login needs no further frame."""


def plain() -> Login:
    return Login((_handshake("PLAIN"), _token(f"\0{USER}\0{PASSWORD}".encode())))


def scram() -> Login:
    return Login((_handshake("SCRAM-SHA-256"), _token(f"n,,{_BARE}".encode())), _client_final)


def _handshake(mechanism: str) -> bytes:
    return frame(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism))


def _token(token: bytes) -> bytes:
    return frame(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))


def _client_final(answer: bytes) -> bytes:
    server_first = _token_of(answer).decode()
    unproved = f"c=biws,r={server_first[2:].partition(',')[0]}"
    signature = hmac.digest(_STORED_KEY, f"{_BARE},{server_first},{unproved}".encode(), "sha256")
    proof = int.from_bytes(_CLIENT_KEY) ^ int.from_bytes(signature)
    return _token(f"{unproved},p={b64encode(proof.to_bytes(32)).decode()}".encode())


def _token_of(answer: bytes) -> bytes:
    """The SASL token of a response, behind correlation id, error code and message."""
    (message,) = struct.unpack_from(">h", answer, 6)
    at = 8 + max(message, 0)
    (size,) = SIZE.unpack_from(answer, at)
    return answer[at + 4 : at + 4 + size]


def connect(port: int) -> socket.socket:
    client = socket.create_connection((HOST, port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    return client


def log_in(port: int, count: int, login: Login) -> None:
    """Log in ``count`` clients at the same time: send each request for all clients, then read the responses."""
    first, last = login
    clients = [connect(port) for _ in range(count)]
    answers: list[bytes] = []
    for said in first:
        for client in clients:
            client.sendall(said)
        answers = [_answer(client) for client in clients]
    if last is not None:
        for client, answer in zip(clients, answers, strict=True):
            client.sendall(last(answer))
        answers = [_answer(client) for client in clients]
    for client in clients:
        client.close()


def _answer(client: socket.socket) -> bytes:
    received = client.recv(4096)
    while len(received) < 4 or len(received) < 4 + SIZE.unpack_from(received)[0]:
        more = client.recv(4096)
        if not more:
            raise WrongResponse("the broker has closed the connection")
        received += more
    if received[8:10] != b"\0\0":
        raise WrongResponse(f"the broker has refused a login: {received[10:].decode(errors='replace')}")
    return received[4:]


def tls(folder: Path) -> ssl.SSLContext:
    """TLS settings, with TLS 1.3 only, of a client that trusts the certificate authority in ``folder``."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def shake_hands(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(connect(port), server_hostname="localhost")
