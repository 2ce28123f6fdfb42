"""The ports of a dead node stay reserved: connections are refused, and no other process can bind them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.config.endpoints import Endpoint
from broker.net.ports import Ports
from tests.support.in_process import InProcess


@pytest.fixture
def ports() -> Iterator[Ports]:
    ports = Ports()
    yield ports
    ports.close()


def is_refused(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


def is_free(port: int) -> bool:
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", ""])
def test_a_released_port_is_held_until_it_is_bound_again(ports: Ports, host: str) -> None:
    bound = ports.bind(Endpoint("PLAINTEXT", host, 0))
    port = bound[0].getsockname()[1]
    bound[0].listen()
    assert not is_refused(port)
    for each in bound:
        ports.release(each)
    assert is_refused(port)
    assert not is_free(port)
    again = ports.bind(Endpoint("PLAINTEXT", host, port))
    again[0].listen()
    assert not is_refused(port)
    for each in again:
        ports.release(each)
    ports.close()
    assert is_free(port)


def test_a_dead_node_keeps_its_port(tmp_path: Path) -> None:
    with InProcess(tmp_path, "--nodes", "2") as broker:
        port = broker.cluster.nodes[2].listeners[0].port
        broker.call(lambda: broker.cluster.kill_node(2))
        assert is_refused(port)
        assert not is_free(port)
        broker.run(broker.cluster.start_node(2))
        assert not is_refused(port)
        broker.run(broker.cluster.stop_node(2))
        assert is_refused(port)
        assert not is_free(port)
        broker.run(broker.cluster.start_node(2))
        assert not is_refused(port)
    assert is_free(port)
