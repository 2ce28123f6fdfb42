"""Clients that send anything or stop anywhere before they are authenticated, on real sockets of a broker's process.

`tests/fuzz` tests such clients for SASL in virtual time, and `tests/broker/net/test_handshakes.py` for TLS on both
event loops.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from broker.logging.limits import BURST_LINES
from tests.broker.security.stalled import (
    HELLO,
    STALLS,
    Neighbour,
    Secured,
    connect,
    framed,
    has_ended,
    sasl_authenticate,
    sasl_handshake,
    secured,
)
from tests.fuzz import tokens
from tests.fuzz.requests import damaged
from tests.support.deadlines import HANG_S, Stopwatch

pytestmark = pytest.mark.xdist_group("robustness")

SEED = int(os.environ.get("FUZZ_SEED", "1"))
PIECES = 120
STALLED_EACH = 8
MEMORY_BYTES = 24 << 20
"""Memory that three thousand clients may leave behind, in addition to what an earlier thousand clients left."""
OPEN_BYTES = 110 << 20
"""Memory that a thousand connected clients may use: uvloop and OpenSSL keep some 50 KB for each connection with TLS."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker process. When it stops, it has connected clients that have stopped at each stage of an
    authentication."""
    with ExitStack() as after_its_end, secured(tmp_path_factory.mktemp("robustness")) as broker:
        yield broker
        for stall in STALLS.values():
            after_its_end.callback(stall(broker.ports).close)


@pytest.fixture
def neighbour(broker: Secured) -> Iterator[Neighbour]:
    with contextlib.closing(broker.neighbour()) as neighbour:
        yield neighbour


# ---- random data


def test_anything_before_a_login_costs_a_neighbour_nothing(broker: Secured, neighbour: Neighbour) -> None:
    random, watch, begin = Random(SEED), Stopwatch(), len(broker.log())
    for number in range(PIECES):
        said = random.choice((_records, _hellos, _frames, _tokens))(random)
        listener, tls = random.choice((("TLS", False), ("SASL", False), ("BOTH", False), ("BOTH", True)))
        with contextlib.suppress(ConnectionError), connect(broker.ports[listener], tls=tls) as client:
            client.sendall(said)
            if random.random() < 0.5:
                _shut(client)
                has_ended(client)
            assert neighbour.is_served(number), (SEED, number, listener, tls, said[:1000].hex())
    _check_log(broker, begin, watch)


def test_no_token_behind_tls_is_too_large(broker: Secured, neighbour: Neighbour) -> None:
    watch, begin = Stopwatch(), len(broker.log())
    for number, huge in enumerate((*tokens.HUGE, lambda token: bytes(600_000))):
        version, mechanism = number % 2, ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER")[number % 3]
        token = huge(f"\0alice\0{tokens.PASSWORD}x".encode())
        with connect(broker.ports["BOTH"], sasl_handshake(mechanism, version), tls=True) as client:
            with contextlib.suppress(ConnectionError):
                client.sendall(sasl_authenticate(token) if version else framed(token))
                _shut(client)
            has_ended(client)
        assert neighbour.is_served(number)
    _check_log(broker, begin, watch)


def _shut(client: socket.socket) -> None:
    """Shut down the sending side of the TCP connection, without TLS's close_notify."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(client, socket.SHUT_WR)


def _records(random: Random) -> bytes:
    """TLS records with random types, versions, lengths and contents."""
    kinds = random.choices((20, 21, 22, 23, 24, 255), k=random.randint(1, 4))
    said = b""
    for kind in kinds:
        body = random.randbytes(random.choice((0, 1, 40, 4096, 17_000)))
        announced = random.choice((len(body), 0, 65_535)) & 0xFFFF
        said += struct.pack(">BHH", kind, random.choice((0x0301, 0x0303, 0x0304, 0)), announced) + body
    return said


def _hellos(random: Random) -> bytes:
    return damaged(HELLO, random) + (HELLO if random.random() < 0.3 else b"")


def _frames(random: Random) -> bytes:
    size = random.choice((-1, 0, 7, 524_288, 524_289, 1 << 30))
    return struct.pack(">i", size) + random.randbytes(random.choice((0, 7, 300)))


def _tokens(random: Random) -> bytes:
    mechanism = random.choice(("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "NONE"))
    token = damaged(f"\0alice\0{tokens.PASSWORD}".encode(), random)
    return sasl_handshake(mechanism, random.randint(0, 1)) + random.choice((sasl_authenticate, framed))(token)


def _check_log(broker: Secured, begin: int, watch: Stopwatch) -> None:
    """Check that the log has no more lines than the rate limit allows, no error, and no part of a password."""
    lines = broker.log()[begin:]
    kinds = Counter((line["event"], line.get("reason")) for line in lines if "connection" in line)
    assert max(kinds.values(), default=0) <= BURST_LINES + watch.run_s + 1
    assert {line["level"] for line in lines} <= {"info", "warning"}
    secrets = list(tokens.windows(tokens.PASSWORD, 12))
    assert not [line for line in lines if any(secret in str(line) for secret in secrets)]


# ---- stalled clients


def test_clients_that_stop_anywhere_are_closed_when_they_are_idle(
    broker: Secured, neighbour: Neighbour
) -> None:
    with ExitStack() as stack:
        clients = [_opened(stack, stall, broker) for stall in STALLS.values() for _ in range(STALLED_EACH)]
        ports = _ports(clients)
        broker.await_peers(ports.issubset, "all clients are connected")
        broker.remote.clock.advance("6m", ["connections"])
        assert neighbour.is_served()
        broker.remote.clock.advance("6m", ["connections"])
        for client in clients:
            has_ended(client)
        assert neighbour.is_served()
    broker.await_peers(ports.isdisjoint, "all clients are disconnected")


def test_a_kill_resets_clients_in_the_middle_and_the_next_life_serves_others(broker: Secured) -> None:
    with ExitStack() as stack:
        clients = [_opened(stack, stall, broker) for stall in STALLS.values()]
        ports = _ports(clients)
        broker.await_peers(ports.issubset, "all clients are connected")
        broker.remote.nodes[1].kill()
        assert {has_ended(client) for client in clients} == {ConnectionResetError}
        broker.remote.nodes[1].start()
        with connect(broker.ports["BOTH"], sasl_handshake(), tls=True) as client:
            assert client.recv(100)
    broker.await_peers(ports.isdisjoint, "all clients are disconnected")


def _ports(clients: list[socket.socket]) -> set[int]:
    return {client.getsockname()[1] for client in clients}


def _opened(stack: ExitStack, stall: object, broker: Secured) -> socket.socket:
    assert callable(stall)
    client = stall(broker.ports)
    assert isinstance(client, socket.socket)
    stack.callback(client.close)
    return client


@pytest.mark.more
def test_thousands_that_stop_cost_no_memory_that_stays(tmp_path: Path) -> None:
    """Thousands of clients that stop in the middle of an authentication leave no memory in use. Another client is served all
    the time."""
    with secured(tmp_path) as broker, contextlib.closing(broker.neighbour()) as neighbour:
        over = threading.Event()
        served: list[bool] = []
        asking = threading.Thread(target=_ask_until, args=(over, neighbour, served))
        asking.start()
        try:
            left = [_thousand(broker) for _ in range(4)]
        finally:
            over.set()
            asking.join(HANG_S)
        assert len(served) > 100
        assert all(served)
        assert max(left) <= left[0] + MEMORY_BYTES, left


def _ask_until(end: threading.Event, neighbour: Neighbour, served: list[bool]) -> None:
    while not end.is_set():
        served.append(neighbour.is_served())


def _thousand(broker: Secured) -> int:
    """Connect a thousand clients that stop in the middle of an authentication, and disconnect them. Returns the broker's
    memory after that."""
    memory = broker.memory_bytes
    with ExitStack() as stack:
        stalls = list(STALLS.values())
        ports = _ports([_opened(stack, stalls[number % len(stalls)], broker) for number in range(1000)])
        broker.await_peers(ports.issubset, "all clients are connected")
        assert broker.memory_bytes <= memory + OPEN_BYTES
    broker.await_peers(ports.isdisjoint, "all clients are disconnected")
    return broker.memory_bytes
