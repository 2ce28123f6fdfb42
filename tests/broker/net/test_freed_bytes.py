"""Bytes of a client are freed by reference counting once its connection has ended, or its request is refused.

The broker's process collects cycles rarely (`server.process.collect_rarely`). A cycle that holds bytes of a client,
such as an exception whose traceback refers to it, would keep up to half a megabyte until the next collection. A client
can cause such a cycle without a login.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import socket
import ssl
import struct
import sys
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest
import structlog
import uvloop

from broker.clock.durations import parse_duration_ms
from broker.clock.virtual import ALL_DOMAINS, VirtualClock
from broker.cluster import Cluster
from broker.net.frame_buffers import TOKEN_BUFFERS
from broker.net.holds import HELD
from broker.security.tls.authority import Authority, local_hosts
from broker.security.tls.directory import write_directory
from lab.faults import Faults, parse_rule
from protocol.batch import build_batch
from server.options import parse
from tests.fuzz import tokens
from tests.fuzz.logins import settings_of
from tests.support import raw
from tests.support.deadlines import HANG_S, Deadline

LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
LARGE: Final = 300_000
"""Size in bytes of a token, a name or a batch. A single one of these that is not freed exceeds ``KEPT_MAX``."""
KEPT_MAX: Final = LARGE // 2
"""Bytes that the second run of a scenario may leave behind, for caches and counters."""
NUMBERS: Final = itertools.count()
TEXT: Final = "x" * 30_000
"""A string of nearly the maximum length in Kafka's protocol."""
CLAIMS: Final = b'{"sub":"alice","exp":1,"x":"' + b"x" * (LARGE // 2) + b'"}'


class Client:
    """A client socket without buffers of its own."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def request(self, api: str, version: int, **body: Any) -> None:
        await self.send(framed(raw.encode_request(api, version, body, 1)))

    async def receive(self) -> bytes | None:
        """Receive a response. None if the connection has ended."""
        (size,) = struct.unpack(">i", await self._exactly(4) or bytes(4))
        return await self._exactly(size) or None

    async def _exactly(self, size: int) -> bytes:
        data = b""
        with contextlib.suppress(ConnectionError):
            while len(data) < size:
                more = await asyncio.get_running_loop().sock_recv(self._socket, size - len(data))
                if not more:
                    break
                data += more
        return data

    async def ask(self, api: str, version: int, **body: Any) -> dict[str, Any]:
        await self.request(api, version, **body)
        frame = await self.receive()
        assert frame is not None, api
        return raw.decode_response(api, version, frame)[1]

    def close(self) -> None:
        self._socket.close()


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


class World:
    """A broker of two nodes in this event loop, with every kind of listener, and clients that connect and disconnect."""

    def __init__(self, cluster: Cluster, clock: VirtualClock) -> None:
        self.cluster = cluster
        self.clock = clock
        self.faults = Faults(cluster.injection, cluster.calls, clock, running=cluster.running)

    @contextlib.asynccontextmanager
    async def client(self, listener: str = "PLAINTEXT", node: int = 1) -> AsyncIterator[Client]:
        port = next(each.port for each in self.cluster.nodes[node].listeners if each.name == listener)
        connected = socket.socket()
        connected.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connected, ("127.0.0.1", port))
        client = Client(connected)
        try:
            yield client
        finally:
            client.close()

    async def advance(self, duration: str) -> None:
        await self.clock.advance(parse_duration_ms(duration), ALL_DOMAINS)

    async def until(self, look: Callable[[], object]) -> None:
        deadline = Deadline()
        while not look():
            deadline.check(look)
            await asyncio.sleep(0.0005)

    async def handled(self) -> None:
        """Wait until a request waits in its handler, or a fault rule holds it."""
        await self.until(lambda: any(each._pending or each._holds & HELD for each in self.connections()))

    def connections(self) -> list[Any]:
        return [each for node in self.cluster.nodes.values() for each in node.connections._open]

    async def all_gone(self) -> None:
        await self.until(lambda: not self.connections())
        for _ in range(5):
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def world_in(directory: Path) -> AsyncIterator[World]:
    authority = Authority.create(datetime.now(UTC))
    server, client = authority.issue("localhost", local_hosts()), authority.issue("alice", client=True)
    write_directory(directory / "tls", authority, server, client, "password")
    keys = directory / "keys.json"
    keys.write_text(tokens.JWKS)
    settings = settings_of(keys)
    settings["listeners"] = ",".join(
        f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SASL", "SIGNED", "TLS")
    )
    settings["listener.security.protocol.map"] += ",TLS:SSL"
    settings |= {
        "connection.failed.authentication.delay.ms": "0",
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.keystore.location": str(directory / "tls" / "server.pem"),
    }
    words = [f"--set={name}={value}" for name, value in settings.items()]
    clock = VirtualClock()
    cluster = Cluster(
        parse(["--data-dir", str(directory / "data"), "--topic", "orders:1", "--nodes", "2", *words], {}),
        clock,
    )
    await cluster.start()
    try:
        yield World(cluster, clock)
    finally:
        await cluster.stop()


Scenario = Callable[[World], Awaitable[None]]
SCENARIOS: Final[dict[str, Scenario]] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


# ---- logins


def bearer(jwt: str) -> bytes:
    return f"n,,\x01auth=Bearer {jwt}\x01\x01".encode()


TOKENS: Final = {
    "an unsecured token that has expired": ("SASL", "OAUTHBEARER", lambda: bearer(tokens._jwt(CLAIMS))),
    "an unsecured token of a wrong algorithm": (
        "SASL",
        "OAUTHBEARER",
        lambda: bearer(tokens._jwt(CLAIMS, b'{"alg":"x"}')),
    ),
    "an unsecured token without an algorithm": (
        "SASL",
        "OAUTHBEARER",
        lambda: bearer(tokens._jwt(CLAIMS, b"{}")),
    ),
    "a token that is no JSON": ("SASL", "OAUTHBEARER", lambda: bearer(tokens._jwt(CLAIMS[:-1]))),
    "a token that nests": ("SASL", "OAUTHBEARER", lambda: bearer(tokens._jwt(b"[" * LARGE))),
    "a message without a token": ("SASL", "OAUTHBEARER", lambda: b"n,,\x01a=" + b"b" * LARGE + b"\x01\x01"),
    "a message of another scheme": (
        "SASL",
        "OAUTHBEARER",
        lambda: bearer("x" * LARGE).replace(b"Bearer", b"Basic"),
    ),
    "no message of OAUTHBEARER": ("SASL", "OAUTHBEARER", lambda: bytes(LARGE)),
    "a signed token of no key": (
        "SIGNED",
        "OAUTHBEARER",
        lambda: bearer(tokens._jwt(CLAIMS, b'{"alg":"ES256","kid":"z"}', b"x")),
    ),
    "a signed token with a wrong signature": (
        "SIGNED",
        "OAUTHBEARER",
        lambda: bearer(tokens._jwt(CLAIMS, b'{"alg":"ES256"}', b"x" * 64)),
    ),
    "a signed token that is malformed": ("SIGNED", "OAUTHBEARER", lambda: bearer(tokens._jwt(CLAIMS, b"{"))),
    "a wrong password": ("SASL", "PLAIN", lambda: b"\0alice\0" + b"x" * LARGE),
    "no message of PLAIN": ("SASL", "PLAIN", lambda: bytes(LARGE)),
    "a nonce": ("SASL", "SCRAM-SHA-256", lambda: b"n,,n=alice,r=" + b"r" * LARGE),
    "a user that does not exist": ("SASL", "SCRAM-SHA-256", lambda: b"n,,n=bob,r=" + b"r" * LARGE),
    "no message of SCRAM": ("SASL", "SCRAM-SHA-512", lambda: bytes(LARGE)),
    "a delegation token that does not exist": (
        "SASL",
        "SCRAM-SHA-512",
        lambda: b"n,,n=bob,r=" + b"r" * LARGE + b",tokenauth=true",
    ),
}
"""Tokens that are refused, or that begin a login, with their listener and mechanism."""


def half_login(
    listener: str, mechanism: str, token: Callable[[], bytes], version: int, again: bytes | None
) -> Scenario:
    async def run(world: World) -> None:
        async with world.client(listener) as client:
            await client.ask("sasl_handshake", version, mechanism=mechanism)
            for said in (token(), again):
                if said is None:
                    break
                if version:
                    await client.request("sasl_authenticate", 2, auth_bytes=said)
                else:
                    await client.send(framed(said))
                await answered_or_ended(world, client)

    return run


async def answered_or_ended(world: World, client: Client) -> None:
    await client.receive()


for _name, (_listener, _mechanism, _token) in TOKENS.items():
    for _version, _again in (
        (0, None),
        (1, b"c=biws,r=" + b"r" * LARGE + b",p=AAAA") if _name == "a nonce" else (1, b"\x01"),
    ):
        SCENARIOS[f"{_name}, handshake v{_version}"] = half_login(
            _listener, _mechanism, _token, _version, _again
        )


@scenario
async def a_token_that_comes_in_part(world: World) -> None:
    for version in (0, 1):
        async with world.client("SASL") as client:
            await client.ask("sasl_handshake", version, mechanism="PLAIN")
            await client.send(framed(bytes(LARGE))[:-1])
            await world.until(lambda: any(each._frame is not None for each in world.connections()))


@scenario
async def a_mechanism_that_is_not_enabled(world: World) -> None:
    async with world.client("SASL") as client:
        await client.request("sasl_handshake", 1, mechanism=TEXT)
        await answered_or_ended(world, client)


@scenario
async def a_request_in_the_middle_of_a_login(world: World) -> None:
    async with world.client("SASL") as client:
        await client.ask("sasl_handshake", 1, mechanism="OAUTHBEARER")
        await client.request(
            "sasl_authenticate", 2, auth_bytes=TOKENS["an unsecured token that has expired"][2]()
        )
        await answered_or_ended(world, client)
        await client.request("produce", 9, **produce_of(LARGE))
        await answered_or_ended(world, client)


@scenario
async def a_request_before_a_login(world: World) -> None:
    async with world.client("SASL") as client:
        await client.request("produce", 9, **produce_of(LARGE))
        assert await client.receive() is None


async def log_in(client: Client) -> None:
    await client.ask("sasl_handshake", 1, mechanism="PLAIN")
    token = f"\0{tokens.USER}\0{tokens.PASSWORD}".encode()
    assert (await client.ask("sasl_authenticate", 2, auth_bytes=token))["error_code"] == 0


@scenario
async def a_login_that_is_not_repeated(world: World) -> None:
    async with world.client("SASL") as client:
        await log_in(client)
        await world.advance("2m")
        await client.request("produce", 9, **produce_of(LARGE))
        assert await client.receive() is None


@scenario
async def a_login_that_is_repeated_by_another_mechanism(world: World) -> None:
    async with world.client("SASL") as client:
        await log_in(client)
        await client.ask("sasl_handshake", 1, mechanism="OAUTHBEARER")
        await client.request("sasl_authenticate", 2, auth_bytes=TOKENS["a token that nests"][2]())
        await answered_or_ended(world, client)


# ---- ends


def produce_of(size: int, topic: str = "orders", acks: int = -1) -> dict[str, Any]:
    records = build_batch([(0, b"k", bytes(size))])
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }


@scenario
async def a_frame_that_comes_in_part(world: World) -> None:
    async with world.client() as client:
        await client.send(framed(bytes(LARGE))[:-1])
        await world.until(lambda: any(each._frame is not None for each in world.connections()))


@scenario
async def frames_that_are_none(world: World) -> None:
    for said in (
        struct.pack(">i", -1) + bytes(40_000),
        struct.pack(">i", 1 << 30) + bytes(40_000),
        framed(struct.pack(">hhih", 0, 9, 1, -1) + b"\xff" * LARGE),
        framed(struct.pack(">hhih", 3, 9, 1, -1) + b"\xff" * LARGE),
        framed(struct.pack(">hhih", 0, 99, 1, -1) + bytes(LARGE)),
        framed(struct.pack(">hhih", 999, 0, 1, -1) + bytes(LARGE)),
        framed(struct.pack(">hhih", 0, 9, 1, 30_000) + bytes(10)),
    ):
        async with world.client() as client:
            with contextlib.suppress(ConnectionError):
                await client.send(said)
            assert await client.receive() is None


@scenario
async def a_version_of_api_versions_that_is_not_there(world: World) -> None:
    async with world.client() as client:
        await client.send(framed(struct.pack(">hhih", 18, 99, 1, -1) + bytes(LARGE)))
        await client.receive()


@scenario
async def no_handshake_of_tls(world: World) -> None:
    for said in (b"", b"GET / HTTP/1.1\r\n\r\n" * 1000, bytes(LARGE)):
        async with world.client("TLS") as client:
            with contextlib.suppress(ConnectionError):
                await client.send(said)
            if said:
                await client.receive()


@scenario
async def a_client_behind_tls(world: World) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = next(each.port for each in world.cluster.first.listeners if each.name == "TLS")
    said = framed(raw.encode_request("produce", 9, produce_of(LARGE, "unknown"), 1))

    def ask() -> None:
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(plain) as client:
            client.sendall(said)
            assert client.recv(1)

    # asyncio's streams would leave cycles of their own.
    await asyncio.to_thread(ask)


@scenario
async def silence(world: World) -> None:
    async with world.client() as client, world.client("SASL") as other:
        await client.request("produce", 9, **produce_of(LARGE, "unknown"))
        await client.receive()
        await other.ask("sasl_handshake", 1, mechanism="SCRAM-SHA-256")
        await other.request("sasl_authenticate", 2, auth_bytes=TOKENS["a nonce"][2]())
        await other.receive()
        await world.advance("11m")
        await world.advance("11m")
        assert await client.receive() is None


@scenario
async def the_end_of_the_process(world: World) -> None:
    async with (
        world.client(node=2) as client,
        world.client("SASL", node=2) as other,
        world.client(node=2) as third,
    ):
        await client.request("produce", 9, **produce_of(LARGE, "unknown"))
        await client.receive()
        await other.ask("sasl_handshake", 1, mechanism="SCRAM-SHA-256")
        await other.request("sasl_authenticate", 2, auth_bytes=TOKENS["a nonce"][2]())
        await other.receive()
        await third.send(framed(bytes(LARGE))[:-1])
        await world.until(lambda: any(each._frame is not None for each in world.connections()))
        world.cluster.nodes[2].connections.reset()
        for each in (client, other, third):
            assert await each.receive() is None


# ---- requests that wait


def join_of(metadata: bytes) -> dict[str, Any]:
    protocols = [{"name": "range", "metadata": metadata}]
    return {
        "group_id": "g",
        "session_timeout": 6000,
        "rebalance_timeout": 6000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": protocols,
    }


@scenario
async def a_fetch_that_waits(world: World) -> None:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}] * 3000
    async with world.client() as client:
        await client.request(
            "fetch",
            12,
            max_wait=60_000,
            min_bytes=1 << 30,
            rack_id=TEXT,
            topics=[{"topic": "orders", "partitions": partitions}],
        )
        await world.handled()


@scenario
async def a_join_that_waits(world: World) -> None:
    async with world.client() as client:
        group = {"group_id": f"g-{next(NUMBERS)}"}
        found = await client.ask("find_coordinator", 3, key=group["group_id"], key_type=0)
    async with world.client(node=found["node_id"]) as client:
        first = await client.ask("join_group", 3, **{**join_of(b""), **group})
        assert first["error_code"] == 0
        async with world.client(node=found["node_id"]) as other:
            await other.request("join_group", 3, **{**join_of(bytes(LARGE)), **group})
            await world.handled()
    await world.advance("20s")


@scenario
async def a_request_that_a_rule_holds(world: World) -> None:
    rule = world.faults.add(parse_rule("Produce -> hold"))
    async with world.client() as client:
        await client.request("produce", 9, **produce_of(LARGE))
        await world.handled()
    await world.all_gone()
    world.faults.remove(rule.id)


@scenario
async def requests_of_a_transaction_that_wait(world: World) -> None:
    async with world.client() as client:
        for _ in range(2):
            await client.request(
                "init_producer_id",
                4,
                transactional_id=TEXT,
                transaction_timeout=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
        await client.receive()
        await client.request(
            "end_txn", 3, transactional_id=TEXT, producer_id=5, producer_epoch=0, committed=True
        )


@scenario
async def a_produce_that_waits_for_replicas(world: World) -> None:
    topic = world.cluster.metadata.topic("replicated")
    assert topic is not None
    leader = topic.partitions[0].leader
    rule = world.faults.add(parse_rule(f"pause topic=replicated partition=0 node={3 - leader}"))
    async with world.client(node=leader) as client:
        await client.request("produce", 9, **produce_of(LARGE, "replicated"))
        await world.handled()
    await world.all_gone()
    world.faults.remove(rule.id)
    await world.advance("1s")  # too short for the replica to leave the ISR


# ---- requests that are refused


@scenario
async def requests_that_are_refused(world: World) -> None:
    wrong = produce_of(LARGE)
    wrong["topic_data"][0]["partition_data"][0]["records"] = bytes(LARGE)
    torn = produce_of(LARGE)
    torn["topic_data"][0]["partition_data"][0]["records"] = (
        torn["topic_data"][0]["partition_data"][0]["records"][:-1] + b"x"
    )
    async with world.client() as client:
        await client.ask("produce", 9, **wrong)
        await client.ask("produce", 9, **torn)
        await client.ask("produce", 9, **produce_of(2_000_000))
        await client.ask("produce", 9, **produce_of(LARGE, TEXT))
        await client.ask("produce", 9, **{**produce_of(LARGE), "transactional_id": TEXT})
        await client.ask("join_group", 3, **{**join_of(bytes(LARGE)), "session_timeout": 1})
        await client.ask("join_group", 3, **{**join_of(bytes(LARGE)), "group_id": ""})
        await client.ask(
            "sync_group",
            3,
            group_id="none",
            generation_id=1,
            member_id="m",
            assignments=[{"member_id": "m", "assignment": bytes(LARGE)}],
        )


@scenario
async def a_handler_that_fails(world: World) -> None:
    """A handler raises an exception, at once or after it has been suspended."""

    def fail(request: Any, context: Any) -> Any:
        raise RuntimeError("a defect")

    async def fail_later(request: Any, context: Any) -> Any:
        await asyncio.sleep(0)
        raise RuntimeError("a defect")

    routes = world.cluster.first.connections.routes
    route = routes[9]
    assert route is not None
    for handler in (fail, fail_later):
        own, route.handler = route.handler, handler
        async with world.client() as client:
            await client.request("produce", 9, **produce_of(LARGE))
            await client.receive()
        route.handler = own


async def play(world: World, scenario: Scenario) -> None:
    async with asyncio.timeout(HANG_S):
        await scenario(world)
        await world.all_gone()
    # Buffers that are kept for later frames do not belong to the client any more.
    for node in world.cluster.nodes.values():
        node.connections.frame_buffers._served.clear()
    TOKEN_BUFFERS._served.clear()


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Context manager: disable the cyclic garbage collector, and trace allocations.

    Objects that exist already are exempt from then on. If they were not, each later collection of this process would
    traverse the million objects of pytest's collection.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


def cycles() -> Counter[str]:
    """Count the objects that only the garbage collector frees, by their type, or by function for frames."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    found = Counter(
        each.f_code.co_qualname if isinstance(each, FrameType) else type(each).__qualname__
        for each in gc.garbage
    )
    gc.set_debug(0)
    gc.garbage.clear()
    return found


async def set_up(world: World) -> None:
    async with world.client() as client:
        for number, salted in tokens.salted_passwords():
            of_user = {"name": tokens.USER, "mechanism": number, "iterations": 4096, "salt": b"salt"}
            body = {"deletions": [], "upsertions": [{**of_user, "salted_password": salted}]}
            answer = await client.ask("alter_user_scram_credentials", 0, **body)
            assert [each["error_code"] for each in answer["results"]] == [0]
        topic = {
            "name": "replicated",
            "num_partitions": 1,
            "replication_factor": 2,
            "assignments": [],
            "configs": [],
        }
        created = await client.ask("create_topics", 5, topics=[topic], timeout=10_000, validate_only=False)
        assert [each["error_code"] for each in created["topics"]] == [0]
    await world.all_gone()


async def play_all(directory: Path) -> dict[str, tuple[int, Counter[str]]]:
    """The bytes that each scenario leaves behind if they exceed ``KEPT_MAX``, and the reference cycles that keep these
    bytes."""
    kept = {}
    async with world_in(directory) as world:
        await set_up(world)
        with structlog.testing.capture_logs() as lines, without_collector():
            for name, scenario in SCENARIOS.items():
                await play(world, scenario)  # imports and caches
                lines.clear()
                before, _ = tracemalloc.get_traced_memory()
                await play(world, scenario)
                lines.clear()
                left = tracemalloc.get_traced_memory()[0] - before
                if left > KEPT_MAX:
                    kept[name] = left, cycles()
    return kept


@pytest.mark.parametrize("loop", LOOPS)
def test_what_clients_have_sent_is_freed_without_the_collector(loop: str, tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        kept = runner.run(play_all(tmp_path))
    if loop == "asyncio" and sys.version_info >= (3, 12):
        # A transport that asyncio aborts after an error keeps a bound method of its own, and with it the buffer of TLS.
        kept.pop("no_handshake_of_tls", None)
    assert kept == {}
