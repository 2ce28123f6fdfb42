"""Command deadlines: when the time is over, the command fails with the error that it was retrying."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import odradek as package
from protocol.errors import ErrorCode
from tests.support.deadlines import HANG_S
from tools.client.cluster import Cluster
from tools.client.deadline import Deadline
from tools.client.errors import KafkaError, NoResponse, OutOfTime

SILENCE_S = 0.01


class Clock:
    """A fake monotonic clock for deadlines. Only the test changes its time."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("tools.client.deadline.time", found)
    return found


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a port that accepts connections and never responds, like the port of a paused node.

    Connections to this port get a short timeout. All others get the full timeout, which a slow machine may need.
    """
    connect = socket.create_connection
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def limited(to: tuple[str, int], limit_s: float) -> socket.socket:
            return connect(to, min(limit_s, SILENCE_S) if to == address else limit_s)

        monkeypatch.setattr(socket, "create_connection", limited)
        yield f"127.0.0.1:{address[1]}"


def test_without_a_deadline_each_step_has_its_own_timeout() -> None:
    deadline = Deadline()
    assert (deadline.left(60.0), deadline.is_set, deadline.is_over) == (60.0, False, False)


def test_the_timeout_of_a_step_is_at_most_the_remaining_time(clock: Clock) -> None:
    deadline = Deadline(10.0)
    clock.now_s += 4.0
    assert (deadline.left(60.0), deadline.left(60.0, 0.5), deadline.left(0.1)) == (6.0, 3.0, 0.1)
    clock.now_s += 6.0
    assert deadline.is_over
    with pytest.raises(OutOfTime, match=r"^no response within 10 s$"):
        deadline.left(60.0)


def test_a_shorter_limit_holds_inside_its_block_and_a_longer_one_does_not(clock: Clock) -> None:
    deadline = Deadline(10.0)
    with deadline.within(1.0):
        assert deadline.left(60.0) == 1.0
    with deadline.within(100.0):
        assert deadline.left(60.0) == 10.0
    assert deadline.left(60.0) == 10.0


def test_a_retried_error_is_named_when_the_time_is_over() -> None:
    def ask() -> None:
        raise KafkaError(ErrorCode.coordinator_not_available, "the coordinator of etl-1")

    expected = r"^no response within 0.01 s: the coordinator of etl-1: COORDINATOR_NOT_AVAILABLE$"
    with Cluster("localhost:1", timeout_s=0.01) as cluster, pytest.raises(OutOfTime, match=expected) as found:
        cluster.retrying(ask)
    assert isinstance(found.value.last, KafkaError)


def test_a_silent_first_server_is_waited_for_once(
    silent: str, cluster_of_two: package.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(f"{silent},{cluster_of_two.bootstrap_servers}", timeout_s=HANG_S) as cluster:
        found = cluster.any()
        asked: list[tuple[str, int]] = []
        connect = cluster._connection
        monkeypatch.setattr(cluster, "_connection", lambda address: asked.append(address) or connect(address))
        assert cluster.any() is found
        assert asked == [found.address]


def test_a_silent_first_server_leaves_time_for_the_next(silent: str) -> None:
    with Cluster(f"{silent},localhost:1", timeout_s=HANG_S) as cluster:
        with pytest.raises(NoResponse, match="in time"):
            cluster.any()
        with pytest.raises(NoResponse):
            cluster.refresh(None)


def test_a_server_may_take_half_of_the_time_that_is_left(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def time_out(_: object, limit_s: float) -> socket.socket:
        limits.append(limit_s)
        clock.now_s += limit_s
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", time_out)
    with Cluster("localhost:1,localhost:2", timeout_s=8.0) as cluster, pytest.raises(NoResponse):
        cluster.any()
    assert limits == [4.0, 2.0]
