"""Settings that clients change at run time are durable, seen by all nodes, and in effect at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.logging import level, set_level
from tests.support import raw
from tests.support.clients import ConfluentProducer, eventually, values
from tests.support.in_process import InProcess

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE = 0, 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcess]:
    with InProcess(tmp_path, "--nodes", "2", "--topic", "orders:2", "--topic", "own:1") as broker:
        yield broker


def ask(cluster: InProcess, node_id: int, api: str, version: int, **body: Any) -> Any:
    wire = raw.Wire("127.0.0.1", cluster.cluster.nodes[node_id].listeners[0].port)
    try:
        wire.send_frame(raw.encode_request(api, version, body, 1))
        return raw.decode_response(api, version, wire.receive_frame())[1]
    finally:
        wire.close()


def change(cluster: InProcess, kind: int, name: str, *, at: int = 1, **settings: str | None) -> None:
    configs = [
        {"name": key.replace("_", "."), "config_operation": DELETE if value is None else SET, "value": value}
        for key, value in settings.items()
    ]
    row = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = ask(cluster, at, "incremental_alter_configs", 1, resources=[row], validate_only=False)
    (found,) = answer["responses"]
    assert (found["error_code"], found["error_message"]) == (0, None)


def retention_ms(cluster: InProcess, topic: str, index: int = 0) -> dict[int, int]:
    """``retention.ms`` of the partition's open log on each running node."""

    def look() -> dict[int, int]:
        found = {}
        for node in cluster.cluster.running_nodes():
            partition = node.replicas.get(topic, index)
            assert partition is not None
            found[node.node_id] = partition.log.config.retention_ms
        return found

    return cluster.call(look)


def test_topics_without_a_value_of_their_own_follow_the_brokers_at_once(cluster: InProcess) -> None:
    change(cluster, TOPIC, "own", retention_ms="7")
    assert retention_ms(cluster, "orders") == {1: 604_800_000, 2: 604_800_000}
    change(cluster, BROKER, "", log_retention_ms="5000")
    assert retention_ms(cluster, "orders", 1) == {1: 5000, 2: 5000}
    change(cluster, BROKER, "2", at=2, log_retention_ms="6000")
    assert retention_ms(cluster, "orders") == {1: 5000, 2: 6000}
    assert retention_ms(cluster, "own") == {1: 7, 2: 7}
    change(cluster, BROKER, "", log_retention_ms=None)
    assert retention_ms(cluster, "orders") == {1: 604_800_000, 2: 6000}


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_dynamic_settings_survive_a_restart(cluster: InProcess, clean: bool) -> None:
    change(cluster, BROKER, "2", at=2, log_retention_ms="6000")
    change(cluster, BROKER, "", max_connections="77")
    if clean:
        cluster.run(cluster.cluster.stop_node(2))
    else:
        cluster.call(lambda: cluster.cluster.kill_node(2))
    change(cluster, BROKER, "", log_retention_ms="5000")
    cluster.run(cluster.cluster.start_node(2))
    assert retention_ms(cluster, "orders") == {1: 5000, 2: 6000}
    runtime = cluster.cluster.nodes[2]
    assert (runtime.config.max_connections, runtime.connections.quotas.connections_max) == (77, 77)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_cordoned_broker_gets_no_new_partitions(cluster: InProcess, clean: bool) -> None:
    def create(name: str, *replicas: int) -> tuple[int, str | None]:
        rows = [{"partition_index": 0, "broker_ids": list(replicas)}] if replicas else []
        topic = {
            "name": name,
            "num_partitions": -1 if replicas else 4,
            "replication_factor": -1 if replicas else 1,
            "assignments": rows,
            "configs": [],
        }
        answer = ask(cluster, 1, "create_topics", 7, topics=[topic], timeout=1000, validate_only=False)
        return answer["topics"][0]["error_code"], answer["topics"][0]["error_message"]

    def leaders(name: str) -> set[int]:
        return cluster.call(
            lambda: {state.leader for state in cluster.cluster.metadata.topics[name].partitions}
        )

    def move() -> int:
        row = {"path": path, "topics": [{"name": "orders", "partitions": [0]}]}
        answer = ask(cluster, 2, "alter_replica_log_dirs", 2, dirs=[row])
        return answer["results"][0]["partitions"][0]["error_code"]

    def cordoned() -> dict[int, bool]:
        return cluster.call(
            lambda: {each.node_id: each.is_cordoned for each in cluster.cluster.metadata.brokers.values()}
        )

    [found] = ask(cluster, 2, "describe_log_dirs", 5, topics=[])["results"]
    path = found["log_dir"]
    assert (found["is_cordoned"], move()) == (False, 0)
    change(cluster, BROKER, "2", at=2, cordoned_log_dirs=path)
    cluster.run(cluster.cluster.settled())
    for _ in range(2):
        assert cordoned() == {1: False, 2: True}
        assert ask(cluster, 2, "describe_log_dirs", 5, topics=[])["results"][0]["is_cordoned"]
        assert move() == 39
        if not clean:
            cluster.call(lambda: cluster.cluster.kill_node(2))
        else:
            cluster.run(cluster.cluster.stop_node(2))
        cluster.run(cluster.cluster.start_node(2))
        cluster.run(cluster.cluster.settled())
    assert create("automatic") == (0, None)
    assert leaders("automatic") == {1}
    refused = "The manual partition assignment includes broker 2, but all its log directories are cordoned."
    assert create("manual", 2) == (39, refused)
    change(cluster, BROKER, "2", at=2, cordoned_log_dirs=None)
    cluster.run(cluster.cluster.settled())
    assert create("manual", 2) == (0, None)
    assert leaders("manual") == {2}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "/nope,/no",
            "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
            "Missing entries : /nope, /no",
        ),
        (
            "*,/nope",
            "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values",
        ),
        ("*,*", "Configuration 'cordoned.log.dirs' values must not be duplicated."),
    ],
)
def test_what_cannot_be_cordoned_is_refused_as_by_kafka(cluster: InProcess, value: str, message: str) -> None:
    row = {
        "resource_type": BROKER,
        "resource_name": "1",
        "configs": [{"name": "cordoned.log.dirs", "config_operation": SET, "value": value}],
    }
    answer = ask(cluster, 1, "incremental_alter_configs", 1, resources=[row], validate_only=True)
    (found,) = answer["responses"]
    assert (found["error_code"], found["error_message"]) == (42, message)


def test_a_broker_may_be_cordoned_from_its_start(tmp_path: Path) -> None:
    with InProcess(tmp_path, "--nodes", "2", "--set", "cordoned.log.dirs=*") as broker:
        broker.run(broker.cluster.settled())
        assert broker.call(
            lambda: [each.is_cordoned for each in broker.cluster.metadata.brokers.values()]
        ) == [True, True]


def test_a_limit_of_connections_holds_for_the_next_one(cluster: InProcess) -> None:
    def limit(node_id: int) -> int:
        return cluster.call(lambda: cluster.cluster.nodes[node_id].connections.quotas.connections_max)

    change(cluster, BROKER, "1", max_connections="77")
    assert limit(1) == 77
    assert limit(2) > 77


def test_the_largest_batch_is_that_of_the_brokers(cluster: InProcess) -> None:
    change(cluster, BROKER, "", message_max_bytes="100")

    def limits() -> set[int]:
        partitions = [node.replicas.get("orders", 0) for node in cluster.cluster.running_nodes()]
        return {each.log.config.max_message_bytes for each in partitions if each is not None}

    assert cluster.call(limits) == {100}


def test_each_node_describes_its_own_settings(cluster: InProcess) -> None:
    change(cluster, BROKER, "2", at=2, log_cleaner_threads="2")
    found = {}
    for node_id in (1, 2):
        row = {
            "resource_type": BROKER,
            "resource_name": str(node_id),
            "configuration_keys": ["node.id", "log.cleaner.threads"],
        }
        (result,) = ask(cluster, node_id, "describe_configs", 4, resources=[row])["results"]
        found[node_id] = {one["name"]: (one["value"], one["config_source"]) for one in result["configs"]}
    assert found == {
        1: {"node.id": ("1", 4), "log.cleaner.threads": ("1", 5)},
        2: {"node.id": ("2", 4), "log.cleaner.threads": ("2", 2)},
    }


def test_the_log_level_changes(cluster: InProcess) -> None:
    before = level()
    try:
        change(cluster, LOGGER, "1", root="ERROR")
        assert level() == "error"
        row = {"resource_type": LOGGER, "resource_name": "1", "configuration_keys": None}
        (result,) = ask(cluster, 1, "describe_configs", 4, resources=[row])["results"]
        assert [(one["name"], one["value"]) for one in result["configs"]] == [("root", "ERROR")]
    finally:
        set_level(before)


def test_log_cleaner_backoff_ms_changes(cluster: InProcess) -> None:
    """A changed ``log.cleaner.backoff.ms`` is in effect: the topic is compacted long before the default of 15 seconds."""
    change(cluster, TOPIC, "own", cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0")
    change(cluster, BROKER, "", log_cleaner_backoff_ms="20")
    producer = ConfluentProducer(cluster.bootstrap, idempotent=False)
    producer.send("own", ["first"], keys=["key"])

    def is_compacted() -> bool:
        producer.send("own", ["later"], keys=["key"])  # in a later millisecond, so it rolls a new segment
        return "first" not in values(cluster.bootstrap, "own")

    eventually(is_compacted)
    producer.close()
