"""The proxy of a TCP service: each connection is one request, and each fault at it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from odradek.certify.jobs.job import wait_until
from odradek.certify.services import tcp
from odradek.certify.services.calls import Call
from odradek.certify.services.service import Loop
from odradek.certify.services.specs import ServiceOutput, StageSpec
from odradek.certify.services.tcp import TcpService, service
from odradek.errors import OdradekError
from tests.support.deadlines import HANG_S

ON = "tcp:connection"


class Echo:
    """A service that answers each line with "ok " and the line, and keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,)).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines, contextlib.suppress(OSError):
            for line in lines:
                self.lines.append(line)
                connection.sendall(b"ok " + line)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def echo() -> Iterator[Echo]:
    """A service that answers each line."""
    found = Echo()
    yield found
    found.close()


@pytest.fixture
def stage(echo: Echo) -> Iterator[TcpService]:
    """The proxy in front of ``echo``."""
    loop = Loop()
    found = service(StageSpec("tcp", f"127.0.0.1:{echo.port}"), loop.loop)
    found.start(loop, [])
    yield found
    found.close()
    loop.close()


@pytest.fixture
def sockets() -> Iterator[contextlib.ExitStack]:
    """Closes the connections of the job."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def connect(stage: TcpService, sockets: contextlib.ExitStack) -> Connect:
    """Connects as the job does, and sends a line."""
    return Connect(stage, sockets)


class Connect:
    def __init__(self, stage: TcpService, sockets: contextlib.ExitStack) -> None:
        self._stage, self._sockets = stage, sockets
        self._was_reset = False

    def __call__(self, action: str = "") -> socket.socket:
        if action:
            self._stage.traffic.add(f"{ON} nth=1 -> {action}")
        address = "127.0.0.1", int(self._stage.values()["tcp.port"])
        found = self._sockets.enter_context(socket.create_connection(address, timeout=HANG_S))
        try:
            found.sendall(b"one\n")
        except ConnectionError:
            self._was_reset = True
        return found

    def is_reset(self, action: str) -> bool:
        """Whether a new connection is reset. The first call that meets the reset has the error, the next one the end."""
        try:
            return self(action).recv(1) == b"" and self._was_reset
        except ConnectionResetError:
            return True


def over(stage: TcpService, number: int = 1) -> Call:
    """The connection with this number, when it is over."""
    wait_until(
        lambda: [each.is_over for each in stage.traffic.calls()][number - 1 : number] == [True], HANG_S
    )
    call = stage.traffic.calls()[number - 1]
    assert call.is_over
    return call


def is_open(connection: socket.socket) -> bool:
    """Whether nothing has arrived, not even the end of the connection."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    return False


def test_bytes_pass_in_both_directions_until_the_client_ends(
    stage: TcpService, echo: Echo, connect: Connect
) -> None:
    client = connect()
    assert client.recv(100) == b"ok one\n"
    client.sendall(b"two\n")
    client.shutdown(socket.SHUT_WR)
    assert client.recv(100) == b"ok two\n"
    assert client.recv(100) == b""
    assert echo.lines == [b"one\n", b"two\n"]
    (call,) = stage.traffic.calls()
    assert (call.on, call.outcome, call.is_write) == (ON, "answered", True)


@pytest.mark.parametrize("action", ["drop", "lose-request"])
def test_a_lost_connection_is_reset_before_the_service_gets_it(
    action: str, stage: TcpService, echo: Echo, connect: Connect
) -> None:
    assert connect.is_reset(action)
    assert over(stage).outcome == "unanswered"
    assert echo.lines == []


def test_a_silently_lost_connection_stays_open(stage: TcpService, echo: Echo, connect: Connect) -> None:
    client = connect("lose-request silent")
    assert is_open(client)
    client.close()
    assert over(stage).outcome == "unanswered"
    assert echo.lines == []


def test_a_lost_response_is_that_of_a_request_that_the_service_has_handled(
    stage: TcpService, echo: Echo, connect: Connect
) -> None:
    client = connect("lose-answer")
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert over(stage).outcome == "answer_lost"
    assert echo.lines == [b"one\n"]


def test_a_silently_lost_response_leaves_the_connection_open(
    stage: TcpService, echo: Echo, connect: Connect
) -> None:
    client = connect("lose-answer silent")
    assert over(stage).outcome == "answer_lost"
    assert is_open(client)
    assert echo.lines == [b"one\n"]


def test_a_late_response_arrives(
    stage: TcpService, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "LATE_S", 0.01)
    assert connect("late-answer").recv(100) == b"ok one\n"
    assert over(stage).outcome == "answered"


def test_a_held_connection_reaches_the_service_when_it_is_released(
    stage: TcpService, echo: Echo, connect: Connect
) -> None:
    rule = stage.traffic.add(f"{ON} nth=1 -> hold")
    client = connect()
    rule.wait()
    assert (rule.held, echo.lines) == (stage.traffic.calls(), [])
    rule.release()
    assert client.recv(100) == b"ok one\n"


def test_a_service_that_restarts_resets_all_connections_and_is_away(
    stage: TcpService, echo: Echo, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.certify.services.proxy.AWAY_S", HANG_S)
    idle = connect()
    assert idle.recv(100) == b"ok one\n"
    assert connect.is_reset("restart")
    with pytest.raises(ConnectionResetError):
        idle.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect()
    assert over(stage, 2).outcome == "unanswered"
    assert echo.lines == [b"one\n"]
    stage.restore()  # the next run does not wait until the service is back
    assert connect().recv(100) == b"ok one\n"


def test_a_service_that_was_away_is_back_at_the_same_port(
    stage: TcpService, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.certify.services.proxy.AWAY_S", 0.01)
    assert connect.is_reset("restart")

    def is_back() -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            return connect().recv(100) == b"ok one\n"
        return False

    wait_until(is_back, HANG_S)
    assert is_back()


def test_an_emptied_pool_resets_the_other_connections_and_passes_this_one_on(
    stage: TcpService, connect: Connect
) -> None:
    idle = connect()
    assert idle.recv(100) == b"ok one\n"
    assert connect("close-all").recv(100) == b"ok one\n"
    with pytest.raises(ConnectionResetError):
        idle.recv(1)


def test_a_service_that_cannot_be_reached_is_named(echo: Echo) -> None:
    loop = Loop()
    stage = service(StageSpec("tcp.ledger", "127.0.0.1:1"), loop.loop)
    with pytest.raises(OdradekError, match=r"--stage tcp.ledger: 127.0.0.1:1: "):
        stage.start(loop, [])
    stage.close()  # it was not opened
    loop.close()


def test_a_connection_has_no_records(stage: TcpService) -> None:
    assert stage.open_transactions() == []
    with pytest.raises(OdradekError, match="the content of a TCP connection is not known"):
        stage.records(ServiceOutput("tcp", "x"))


@pytest.mark.parametrize("address", ["5432", "localhost", ":5432", "localhost:pg"])
def test_an_address_without_host_and_port_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=f"--stage tcp={address}: expected HOST:PORT"):
        service(StageSpec("tcp", address), None)  # type: ignore[arg-type]
