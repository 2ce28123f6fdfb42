"""The control port before its first call, and while the modules of its HTTP server are being loaded for that call."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import ClientConnectionError, ClientSession

from broker.cluster import Cluster
from broker.security.tls.authority import Authority, local_hosts
from lab.control import listener as listening
from lab.control.access import ControlConfigError
from lab.control.listener import ControlListener, tls_of
from lab.control.opening import open_control as open_with_settings
from lab.control.ports import Looking
from lab.control.tls import server_context
from lab.control.wiring import control_of
from odradek._server import site_folders
from server.options import parse
from tests.lab.control.conftest import until
from tests.support.deadlines import HANG_S

ROOT = Path(__file__).parents[3]
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    arguments = ["--port", "0", "--data-dir", str(tmp_path / "data"), "--topic", "orders:1"]
    made = Cluster(parse([*arguments, "--nodes", "2", "--control-port", "0"], {}))
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def open_listener(cluster: Cluster) -> AsyncIterator[Callable[..., Any]]:
    opened: list[ControlListener] = []
    made: list[Looking] = []

    def looking() -> Looking:
        assert not made, "the control is made once"
        made.append(control_of(cluster))
        return made[0]

    async def open_(**options: Any) -> ControlListener:
        opened.append(ControlListener(looking, **options))
        await opened[-1].start()
        return opened[-1]

    yield open_
    for each in opened:
        await each.close()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event. The thread that loads the server waits until the event is set."""
    go_on, load = threading.Event(), listening.load

    def wait_and_load(modules: Any) -> None:
        assert threading.current_thread() is not threading.main_thread(), (
            "loading must not block the event loop"
        )
        assert go_on.wait(HANG_S)
        load(modules)

    monkeypatch.setattr(listening, "load", wait_and_load)
    yield go_on
    go_on.set()


def port_of(listener: ControlListener) -> int:
    return int(listener.url.rpartition(":")[2])


async def ask(listener: ControlListener, tls: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener), ssl=tls)
    writer.write(GET)
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_connection_that_says_nothing_loads_nothing(open_listener: Callable[..., Any]) -> None:
    """A connection that sends nothing, such as a port check, does not make the port load its server."""
    listener = await open_listener()
    silent = [socket.create_connection(("127.0.0.1", port_of(listener))) for _ in range(3)]
    await until(lambda: len(listener._accepted) == 3)
    silent[0].close()
    silent[1].shutdown(socket.SHUT_WR)
    await until(lambda: len(listener._accepted) == 1 or listener._loading)
    assert not listener._loading
    assert (await ask(listener)).startswith(b"HTTP/1.1 200")
    assert listener.is_loaded
    silent[2].sendall(GET)  # this connection is older than the server
    assert await asyncio.to_thread(silent[2].recv, 12) == b"HTTP/1.1 200"
    for each in silent:
        each.close()


async def test_the_oldest_silent_connection_is_closed_for_one_too_many(
    open_listener: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "control_connections_max", lambda: 2)
    listener = await open_listener()
    silent = []
    for _ in range(3):
        silent.append(await asyncio.open_connection("127.0.0.1", port_of(listener)))
        await until(lambda: listener._accepted)
    assert await silent[0][0].read() == b""
    assert len(listener._accepted) == 2
    for _, writer in silent:
        writer.close()


async def test_all_that_call_while_it_is_loaded_are_answered(
    open_listener: Callable[..., Any], held: threading.Event
) -> None:
    listener = await open_listener()
    silent = socket.create_connection(("127.0.0.1", port_of(listener)))
    await until(lambda: listener._accepted)
    calls = [asyncio.ensure_future(ask(listener)) for _ in range(20)]
    await until(lambda: listener._loading)
    calls += [asyncio.ensure_future(ask(listener)) for _ in range(20)]
    late = socket.create_connection(("127.0.0.1", port_of(listener)))
    held.set()
    for answer in await asyncio.gather(*calls):
        assert answer.startswith(b"HTTP/1.1 200")
    for each in (silent, late):
        each.sendall(GET)
        assert await asyncio.to_thread(each.recv, 12) == b"HTTP/1.1 200"
        each.close()


async def test_clients_of_the_broker_have_their_turns_while_it_is_loaded(
    cluster: Cluster, open_listener: Callable[..., Any], held: threading.Event
) -> None:
    listener = await open_listener()
    call = asyncio.ensure_future(ask(listener))
    await until(lambda: listener._loading)
    await cluster.metadata.replication_control.move_leader("orders", 0, 1)
    await cluster.clock.advance(10)
    assert not call.done()
    held.set()
    assert (await call).startswith(b"HTTP/1.1 200")


async def test_a_close_while_it_is_loaded_hangs_up(
    open_listener: Callable[..., Any], held: threading.Event
) -> None:
    listener = await open_listener()
    call = asyncio.ensure_future(ask(listener))
    await until(lambda: listener._loading)
    await listener.close()
    held.set()
    with contextlib.suppress(ConnectionError):
        assert await call == b""
    with pytest.raises(ConnectionRefusedError):
        await ask(listener)
    assert not listener.is_loaded


async def test_a_close_before_the_first_call_gives_the_port_back(open_listener: Callable[..., Any]) -> None:
    listener = await open_listener()
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
    await until(lambda: listener._accepted)
    await listener.close()
    assert await reader.read() == b""
    writer.close()
    other = await open_listener(port=port_of(listener))
    assert port_of(other) == port_of(listener)


async def test_what_cannot_be_loaded_is_a_line_and_the_next_call_tries_again(
    open_listener: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "RETRY_S", 0)
    tried: list[str] = []

    def fail(modules: Any) -> None:
        tried.append("")
        raise ImportError("No module named 'aiohttp'")

    with monkeypatch.context() as patched, structlog.testing.capture_logs() as lines:
        patched.setattr(listening, "load", fail)
        listener = await open_listener()
        assert await _hung_up(listener)
        assert await _hung_up(listener)
    assert len(tried) == 2
    assert {line["event"] for line in lines} == {"control port not loaded"}
    assert (await ask(listener)).startswith(b"HTTP/1.1 200")


async def _hung_up(listener: ControlListener) -> bool:
    try:
        return await ask(listener) == b""
    except ConnectionError:
        return True


async def test_handshakes_begin_when_it_is_loaded(
    open_listener: Callable[..., Any], held: threading.Event, tmp_path: Path
) -> None:
    issued = Authority.create(datetime(2026, 1, 1, tzinfo=UTC)).issue("localhost", local_hosts())
    (tmp_path / "server.pem").write_bytes(issued.key_pem() + issued.chain_pem())
    listener = await open_listener(tls=server_context(str(tmp_path / "server.pem")))
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    plain = asyncio.ensure_future(_hung_up(listener))
    calls = [asyncio.ensure_future(ask(listener, trusting)) for _ in range(5)]
    await until(lambda: listener._loading)
    held.set()
    for answer in await asyncio.gather(*calls):
        assert answer.startswith(b"HTTP/1.1 200")
    assert await plain
    assert (await ask(listener, trusting)).startswith(b"HTTP/1.1 200")


async def test_elections_before_the_first_call_stand_in_timelines(cluster: Cluster) -> None:
    opened = await open_with_settings(cluster)
    assert opened is not None
    await cluster.metadata.replication_control.move_leader(
        "orders", 0, 3 - cluster.metadata.topics["orders"].partitions[0].leader
    )
    assert "election" in {each.kind for each in cluster.injection.happenings}
    assert not opened.is_loaded
    async with ClientSession() as session, session.get(f"{opened.url}/v1/faults") as answer:
        assert await answer.json() == {"faults": []}
    await opened.close()
    async with ClientSession() as session:
        with pytest.raises(ClientConnectionError):
            await session.get(f"{opened.url}/v1/faults")


def test_a_key_without_a_certificate_is_refused_at_the_start() -> None:
    with pytest.raises(ControlConfigError, match=r"tls\.key is set"):
        tls_of("", "key.pem")


# -- loaded modules -----------------------------------------------------------------------------------------------


def run(program: str) -> str:
    """Run a program in an interpreter that starts like a broker. Returns its output."""
    folders = [str(ROOT), *site_folders()]
    begin = (
        f"import sys; sys.path[:0] = {folders!r}\nfrom broker import late_modules; late_modules.install()\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", begin + program], capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_neither_the_client_nor_openssl_is_loaded() -> None:
    """The control port's server loads neither aiohttp's client nor ssl, which are half of the memory and time of its
    imports."""
    program = """
import asyncio
from lab.control import listener
listener.load()
from lab.control import server
names = [name for name, module in sys.modules.items() if module and not vars(module).get("__late__")]
print([name for name in ("ssl", "_ssl", "aiohttp.client", "aiohttp.connector") if name in names])
print([name for name in ("aiohttp.web", "lab.control.routes.faults") if name not in names])
"""
    assert run(program) == "[]\n[]\n"


def test_the_rest_of_the_package_is_there_when_it_is_asked_for() -> None:
    """The parts of aiohttp that the server does not load are loaded when they are used: the component that fetches keys for
    signed tokens needs the client."""
    program = """
from lab.control import http_library
http_library.load()
import aiohttp
from aiohttp import web
print(hasattr(web, "Application"), "aiohttp.client" in sys.modules)
print(aiohttp.ClientSession.__module__, aiohttp.__version__ == aiohttp.http.__version__, aiohttp.web is web)
import ssl
print(isinstance(ssl.create_default_context(), ssl.SSLContext))
"""
    assert run(program) == "True False\naiohttp.client True True\nTrue\n"


def test_a_release_that_cannot_be_taken_in_part_is_taken_whole() -> None:
    program = """
from broker import late_modules
from lab.control import http_library
def refuse(name):
    import aiohttp.hdrs
    raise AttributeError(name)
late_modules.import_without_tls = refuse
http_library.load()
import aiohttp
print(aiohttp.ClientSession.__name__, aiohttp.web.Application.__name__)
"""
    assert run(program) == "ClientSession Application\n"


def test_where_the_package_is_loaded_it_stays() -> None:
    program = """
import aiohttp
before = aiohttp.ClientSession
from lab.control import http_library
http_library.load()
print(sys.modules["aiohttp"].ClientSession is before, aiohttp.web.Application.__name__)
"""
    assert run(program) == "True Application\n"
