"""Settings of a controller quorum: accepted for nodes of this process, rejected for other processes."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click
import pytest

from broker.config import ConfigError
from broker.config.quorum import check_quorum
from server.options import parse

VOTERS, SERVERS = "controller.quorum.voters", "controller.quorum.bootstrap.servers"


def start(settings: Mapping[str, str], nodes: int = 1) -> None:
    assignments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    parse([*assignments, "--nodes", str(nodes)], {})


@pytest.mark.parametrize(
    ("settings", "nodes"),
    [
        ({VOTERS: "1@broker:29093"}, 1),
        ({VOTERS: "0@localhost:9093", "node.id": "0"}, 1),
        ({VOTERS: "1@a:1,2@b:1,3@c:1"}, 3),
        ({VOTERS: ""}, 1),
        ({SERVERS: "localhost:9093"}, 1),
        ({SERVERS: "broker:29093", "advertised.listeners": "PLAINTEXT://broker:9092"}, 1),
        ({SERVERS: "kafka-1:9093", "advertised.listeners": "PLAINTEXT://kafka-1:9092"}, 1),
        ({SERVERS: "kafka-1.kafka:9093", "advertised.listeners": "PLAINTEXT://10.0.0.1:9092"}, 1),
        ({SERVERS: "a:1,b:1,c:1"}, 3),
    ],
)
def test_a_quorum_of_the_nodes_of_this_process_is_taken(settings: dict[str, str], nodes: int) -> None:
    start(settings, nodes)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({VOTERS: "0@kafka-0.kafka:9093,1@kafka-1.kafka:9093,2@kafka-2.kafka:9093", "node.id": "0"}, "1@kafka-1"),
        ({VOTERS: "1@controller:9093", "node.id": "2", "process.roles": "broker"}, "1@controller"),
        ({SERVERS: "kafka-1:9093,kafka-2:9093,kafka-3:9093"}, "kafka-3"),
        ({SERVERS: "kafka-0.kafka:9093", "advertised.listeners": "PLAINTEXT://kafka-1.kafka:9092"}, "kafka-0.kafka"),
        ({SERVERS: "PLAINTEXT://kafka1:9093", "advertised.listeners": "PLAINTEXT://kafka2:9092"}, "kafka1"),
    ],
)  # fmt: skip
def test_a_node_of_another_process_is_refused_with_what_to_do(settings: dict[str, str], named: str) -> None:
    with pytest.raises(click.ClickException) as refused:
        start(settings)
    text = refused.value.format_message()
    assert named in text
    assert "one process" in text
    assert "--nodes" in text


def test_the_name_of_the_machine_is_one_of_its_own() -> None:
    """A quorum address may have the name of this machine. A pod of a StatefulSet may advertise an IP address, but have its
    own name in the quorum."""
    settings = {SERVERS: f"{os.uname().nodename.partition('.')[0]}-0.kafka:9093"}
    start(settings)
    with pytest.raises(ConfigError, match="kafka-0"):
        check_quorum({VOTERS: (), SERVERS: ("kafka-0.kafka:9093",)}, [1], {"kafka-1", "10.0.0.1"})


def test_three_voters_are_three_nodes_and_three_ports() -> None:
    with pytest.raises(click.ClickException, match=r"--nodes 3 .* one Service of 3 ports"):
        start({VOTERS: "1@a:1,2@b:1,3@c:1"})
