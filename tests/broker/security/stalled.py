"""A broker with clients that do not complete their authentication: its listeners, and sockets that stop at every stage.

with secured(home) as broker:
    sockets = [stall(broker.ports) for stall in STALLS.values()]
    broker.neighbour().is_served()
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil

import odradek
from broker.security.tls.authority import Authority, local_hosts
from broker.security.tls.directory import write_directory
from tests.fuzz import tokens
from tests.fuzz.logins import MECHANISMS
from tests.support import raw
from tests.support.deadlines import HANG_S, Deadline
from tests.support.forked import executed
from tests.support.listeners import listening

PROTOCOLS: Final = {"TLS": "SSL", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}
HALF_A_TOKEN: Final = 3000
POLL_S: Final = 0.01
TOPIC: Final = "orders"
Ports = Mapping[str, int]
Stall = Callable[[Ports], socket.socket]

CLIENT: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
CLIENT.check_hostname, CLIENT.verify_mode = False, ssl.CERT_NONE


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        CLIENT.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def sasl_handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return framed(raw.encode_request("sasl_handshake", version, {"mechanism": mechanism}, 1))


def sasl_authenticate(token: bytes) -> bytes:
    return framed(raw.encode_request("sasl_authenticate", 2, {"auth_bytes": token}, 2))


def connect(port: int, said: bytes = b"", *, tls: bool = False) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=HANG_S)
    if tls:
        client = CLIENT.wrap_socket(client)
    client.sendall(said)
    return client


HELLO: Final = client_hello()
HANDSHAKE: Final = sasl_handshake()
TOKEN: Final = HANDSHAKE + sasl_authenticate(bytes(tokens.NEARLY))[:HALF_A_TOKEN]
STALLS: Final[Mapping[str, Stall]] = {
    "before the ClientHello": lambda ports: connect(ports["TLS"]),
    "in the ClientHello": lambda ports: connect(ports["TLS"], HELLO[: len(HELLO) // 2]),
    "behind the ClientHello": lambda ports: connect(ports["BOTH"], HELLO),
    "behind TLS": lambda ports: connect(ports["BOTH"], tls=True),
    "behind SaslHandshake": lambda ports: connect(ports["SASL"], HANDSHAKE),
    "in a token": lambda ports: connect(ports["SASL"], TOKEN),
    "in a token behind TLS": lambda ports: connect(ports["BOTH"], TOKEN, tls=True),
    "in SCRAM": lambda ports: connect(
        ports["SASL"], sasl_handshake("SCRAM-SHA-256") + sasl_authenticate(b"n,,n=alice,r=abc")
    ),
}
"""By stage: a function that connects a client which stops at this stage."""


def has_ended(client: socket.socket) -> type[Exception] | None:
    """Read from the TCP connection, below TLS, until the broker ends the connection. Returns the exception that ended
    it, None for an orderly end."""
    client.settimeout(HANG_S)
    try:
        while socket.socket.recv(client, 65536):
            pass
    except ConnectionError as error:
        return type(error)
    return None


class Neighbour:
    """A client on a listener without TLS and SASL, which must always be served."""

    def __init__(self, port: int) -> None:
        self._wire = raw.Wire("127.0.0.1", port)

    def is_served(self, number: int = 7) -> bool:
        self._wire.send_frame(raw.encode_request("api_versions", 0, {}, number))
        return raw.decode_response("api_versions", 0, self._wire.receive_frame())[0] == number

    def close(self) -> None:
        self._wire.close()


class Secured:
    """The broker's process, as seen from outside."""

    def __init__(self, ports: Ports, control: int, home: Path) -> None:
        self.ports = ports
        self.remote = odradek.connect(f"http://127.0.0.1:{control}")
        self._home = home
        data = str(home / "data")
        self._process = next(
            each for each in psutil.process_iter(["cmdline"]) if data in (each.info["cmdline"] or ())
        )

    def neighbour(self) -> Neighbour:
        neighbour = Neighbour(self.ports["PLAINTEXT"])
        assert neighbour.is_served()
        return neighbour

    def peer_ports(self) -> set[int]:
        """The ports of the clients whose connections the process has accepted and not closed."""
        return {each.raddr.port for each in self._process.net_connections("tcp4") if each.raddr}

    def await_peers(self, are_there: Callable[[set[int]], bool], what: str) -> None:
        deadline = Deadline()
        while not are_there(self.peer_ports()):
            deadline.check(what)
            time.sleep(POLL_S)

    @property
    def memory_bytes(self) -> int:
        size: int = self._process.memory_info().rss
        return size

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self._home / "broker.log").read_text().splitlines()]


@contextlib.contextmanager
def secured(home: Path) -> Iterator[Secured]:
    authority = Authority.create(datetime.now(UTC))
    server, client = authority.issue("localhost", local_hosts()), authority.issue("alice", client=True)
    write_directory(home / "tls", authority, server, client, "password")
    control = raw.free_port()
    wanted = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "tls" / "server.pem"),
        # With a smaller backlog, clients that all connect at once would retransmit their SYN after a second.
        "socket.listen.backlog.size": "2000",
    }
    for listener in ("sasl", "both"):
        wanted |= _sasl(f"listener.name.{listener}.")
    arguments = ("--topic", f"{TOPIC}:1", "--control-port", str(control))
    # The process is found by its command line.
    with executed(), listening(PROTOCOLS, wanted, home, *arguments) as ports:
        _add_user(ports["PLAINTEXT"])
        yield Secured(ports, control, home)


def _add_user(port: int) -> None:
    """Create SCRAM-SHA-256 credentials for ``tokens.USER``, as whom the clients log in."""
    number, salted = next(tokens.salted_passwords())
    upsertion = {"name": tokens.USER, "mechanism": number, "iterations": 4096, "salt": b"salt"}
    body = {"deletions": [], "upsertions": [{**upsertion, "salted_password": salted}]}
    with contextlib.closing(raw.Wire("127.0.0.1", port)) as wire:
        wire.send_frame(raw.encode_request("alter_user_scram_credentials", 0, body, 1))
        _, answer = raw.decode_response("alter_user_scram_credentials", 0, wire.receive_frame())
    assert [each["error_code"] for each in answer["results"]] == [0]


def _sasl(prefix: str) -> dict[str, str]:
    package = "org.apache.kafka.common.security"
    user = f'user_{tokens.USER}="{tokens.PASSWORD}"'
    return {
        f"{prefix}sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}plain.sasl.jaas.config": f"{package}.plain.PlainLoginModule required {user};",
        f"{prefix}oauthbearer.sasl.jaas.config": f"{package}.oauthbearer.OAuthBearerLoginModule required;",
        f"{prefix}scram-sha-256.sasl.jaas.config": f"{package}.scram.ScramLoginModule required;",
        f"{prefix}scram-sha-512.sasl.jaas.config": f"{package}.scram.ScramLoginModule required;",
    }
