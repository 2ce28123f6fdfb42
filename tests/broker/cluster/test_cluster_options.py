"""`--nodes N`: the settings of each node of a cluster."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from broker.cluster.directories import WrongNodes, node_directories
from server.options import parse


def test_nodes_count_ids_and_ports_up() -> None:
    nodes = parse(["--nodes", "3", "--port", "9300"], {}).nodes
    assert [node.node_id for node in nodes] == [1, 2, 3]
    assert [str(node.listeners[0]) for node in nodes] == [
        f"PLAINTEXT://127.0.0.1:{9300 + k}" for k in range(3)
    ]
    assert [node.get("node.id") for node in nodes] == [1, 2, 3]


def test_without_a_port_the_default_ones_follow_each_other() -> None:
    assert [node.listeners[0].port for node in parse(["--nodes", "2"], {}).nodes] == [9092, 9093]


def test_port_0_stays_0_everywhere() -> None:
    assert [node.listeners[0].port for node in parse(["--nodes", "2", "--port", "0"], {}).nodes] == [0, 0]


def test_a_setting_may_hold_for_one_node_only() -> None:
    arguments = [
        "--nodes",
        "2",
        "--set",
        "odradek.node.1.broker.rack=a",
        "--set",
        "odradek.node.2.broker.rack=b",
    ]
    assert [node.broker_rack for node in parse(arguments, {}).nodes] == ["a", "b"]


def test_several_listeners_with_addresses_of_their_own() -> None:
    listeners = "INSIDE://127.0.0.1:9300,OUTSIDE://127.0.0.1:9400"
    settings = [
        f"listeners={listeners}",
        "advertised.listeners=INSIDE://kafka.inside:9300,OUTSIDE://kafka.example:19400",
        "odradek.node.2.advertised.listeners=INSIDE://second.inside:9301,OUTSIDE://second.example:7",
        "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name=INSIDE",
    ]
    first, second, third = parse(
        ["--nodes", "3", *(x for each in settings for x in ("--set", each))], {}
    ).nodes
    assert [str(each) for each in first.advertised_listeners][1] == "OUTSIDE://kafka.example:19400"
    assert [str(each) for each in second.listeners] == ["INSIDE://127.0.0.1:9301", "OUTSIDE://127.0.0.1:9401"]
    assert [str(each) for each in second.advertised_listeners][1] == "OUTSIDE://second.example:7"
    assert [str(each) for each in third.advertised_listeners] == [
        "INSIDE://kafka.inside:9302",
        "OUTSIDE://kafka.example:19402",
    ]


def test_internal_topics_are_replicated_as_far_as_there_are_nodes() -> None:
    one, two, three = (parse(["--nodes", str(n)], {}).config for n in (1, 2, 3))
    factors = [each.offsets_topic_replication_factor for each in (one, two, three)]
    assert factors == [1, 2, 3]
    assert [each.transaction_state_log_min_isr for each in (one, two, three)] == [1, 1, 2]


def test_two_nodes_of_one_id_are_refused() -> None:
    with pytest.raises(click.ClickException, match="an id of its own, not 1, 1"):
        parse(["--nodes", "2", "--set", "odradek.node.2.node.id=1"], {})


@pytest.mark.parametrize(
    ("made", "wanted", "message"),
    [
        ([1, 2, 3], [1], "holds a cluster of 3 nodes: start it with --nodes 3"),
        ([1, 2], [1, 2, 3], r"holds a cluster of 2 nodes \(node-1, node-2\), not of 3"),
    ],
)
def test_a_directory_of_another_size_is_refused(
    tmp_path: Path, made: list[int], wanted: list[int], message: str
) -> None:
    for node_id in made:
        (tmp_path / f"node-{node_id}").mkdir()
        (tmp_path / f"node-{node_id}" / "meta.properties").touch()
    with pytest.raises(WrongNodes, match=message):
        node_directories(tmp_path, wanted)


def test_a_directory_of_a_single_node_is_no_cluster_s(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    with pytest.raises(WrongNodes, match="single node: start it without --nodes"):
        node_directories(tmp_path, [1, 2])
