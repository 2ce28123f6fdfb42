"""A command that gives itself a time ends with what it could not get past."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import odradek as package
from protocol.errors import ErrorCode
from tools.client.cluster import Cluster
from tools.client.deadline import Deadline
from tools.client.errors import KafkaError, NoResponse, OutOfTime, Unreachable


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that takes connections and never responds, as that of a paused node."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_without_a_limit_each_step_takes_as_long_as_it_may() -> None:
    deadline = Deadline()
    assert (deadline.left(60.0), deadline.is_set, deadline.is_over) == (60.0, False, False)


def test_a_step_takes_no_longer_than_what_is_left() -> None:
    deadline = Deadline(10.0)
    assert 5 < deadline.left(60.0) <= 10
    assert deadline.left(60.0, 0.5) <= 5
    assert deadline.left(0.1) == 0.1
    with pytest.raises(OutOfTime, match=r"^no response within 10 s$"):
        raise deadline.out_of_time()


def test_a_shorter_limit_holds_inside_its_block_and_a_longer_one_does_not() -> None:
    deadline = Deadline(10.0)
    with deadline.within(1.0):
        assert deadline.left(60.0) <= 1
    with deadline.within(100.0):
        assert deadline.left(60.0) <= 10
    assert deadline.left(60.0) > 1


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
    with Cluster(f"{silent},{cluster_of_two.bootstrap_servers}", timeout_s=0.2) as cluster:
        found = cluster.any()
        asked: list[tuple[str, int]] = []
        connect = cluster._connection
        monkeypatch.setattr(cluster, "_connection", lambda address: asked.append(address) or connect(address))
        assert cluster.any() is found
        assert asked == [found.address]


def test_a_silent_first_server_leaves_time_for_the_next(silent: str) -> None:
    with (
        Cluster(f"{silent},localhost:1", timeout_s=0.1) as cluster,
        pytest.raises(Unreachable, match="in time"),
    ):
        cluster.any()
    with Cluster(silent, timeout_s=0.1) as cluster, pytest.raises(NoResponse):
        cluster.refresh(None)
