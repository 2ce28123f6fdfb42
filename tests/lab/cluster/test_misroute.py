"""The listeners of a node whose clients another node serves."""

from __future__ import annotations

import socket
from pathlib import Path

from lab.cluster.misroute import misroute
from tests.support.clients import eventually
from tests.support.deadlines import HANG_S
from tests.support.in_process import InProcess


def test_a_separate_listener_of_the_nodes_is_not_misrouted(tmp_path: Path):
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    with InProcess(tmp_path, "--nodes", "2", settings=settings) as broker:
        nodes = broker.cluster.nodes

        def connections() -> list[int]:
            return broker.call(lambda: [len(node.connections) for node in nodes.values()])

        broker.call(lambda: misroute(broker.cluster, 2, 1))
        inside, outside = (("127.0.0.1", listener.port) for listener in nodes[2].listeners)
        with socket.create_connection(inside, HANG_S):
            eventually(lambda: connections() == [0, 1])
            with socket.create_connection(outside, HANG_S):
                eventually(lambda: connections() == [1, 1])
