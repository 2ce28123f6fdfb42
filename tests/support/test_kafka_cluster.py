"""Tests of how the relays between Kafka's brokers find out which broker has connected. No broker runs here."""

from __future__ import annotations

import os
import socket

from tests.support.kafka_cluster import HOST, socket_at
from tests.support.raw import free_port


def connected(local_port: int, listener: socket.socket) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((HOST, local_port))
    made.connect(listener.getsockname())
    return made


def test_a_socket_is_told_from_another_with_the_same_port_and_another_peer() -> None:
    port = free_port()
    with socket.create_server((HOST, 0)) as one, socket.create_server((HOST, 0)) as another:
        with connected(port, one) as to_one, connected(port, another) as to_another:
            for peer, ours in ((one, to_one), (another, to_another)):
                assert socket_at(port, peer.getsockname()[1]) == str(os.fstat(ours.fileno()).st_ino)
        assert socket_at(port, free_port()) is None
