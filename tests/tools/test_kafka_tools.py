"""`odradek kafka-tool`: the names and options of Kafka's tools that scripts in containers use, and the output they parse.

tests/clients/test_our_kafka_tools.py runs Apache Kafka's own tools. The output of `odradek kafka-tool` must be the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import odradek as package
from tests.tools.conftest import Run
from tools.kafka_tools.configs import added


@pytest.fixture
def tool(cluster_of_two: package.Broker, run: Run) -> Run:
    def tool(name: str, *words: str, **options: str) -> str:
        return run(
            "kafka-tool", name, "--bootstrap-server", cluster_of_two.bootstrap_servers, *words, **options
        )

    return tool


def test_topics(tool: Run) -> None:
    assert tool(
        "kafka-topics", "--create", "--topic", "k1", "--partitions", "2", "--config", "retention.ms=9"
    ) == ("Created topic k1.\n")
    assert tool("kafka-topics", "--create", "--topic", "k1", "--if-not-exists") == ""
    assert "k1" in tool("kafka-topics", "--list").splitlines()
    described = tool("kafka-topics", "--describe", "--topic", "k1")
    assert re.match(
        r"Topic: k1\tTopicId: \S{22}\tPartitionCount: 2\tReplicationFactor: \d\t"
        r"Configs: min.insync.replicas=1,retention.ms=9\n",
        described,
    )
    assert (
        len(re.findall(r"\tTopic: k1\tPartition: \d\tLeader: \d\tReplicas: [\d,]+\tIsr: [\d,]+\t", described))
        == 2
    )
    tool("kafka-topics", "--alter", "--topic", "k1", "--partitions", "3")
    assert "PartitionCount: 3" in tool("kafka-topics", "--describe", "--topic", "k1")
    tool("kafka-topics", "--delete", "--topic", "k1")
    assert "k1" not in tool("kafka-topics", "--list").splitlines()


def test_a_partition_without_a_leader_has_eligible_leader_replicas(
    tool: Run, cluster_of_two: package.Broker
) -> None:
    tool("kafka-topics", "--create", "--topic", "k6", "--partitions", "2", "--replication-factor", "1")
    cluster_of_two.nodes[2].stop()
    try:
        described = tool("kafka-topics", "--describe", "--topic", "k6")
    finally:
        cluster_of_two.nodes[2].start()
    assert "\tLeader: none\tReplicas: 2\tIsr: \tElr: 2\tLastKnownElr: 2\n" in described
    assert "\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n" in described


def test_get_offsets(
    tool: Run, cluster_of_two: package.Broker, refused: Callable[..., tuple[int, str]]
) -> None:
    tool("kafka-topics", "--create", "--topic", "off1", "--partitions", "2")
    tool("kafka-topics", "--create", "--topic", "off2")
    tool("kafka-console-producer", "--topic", "off2", input="a\nb\n")
    assert tool("kafka-get-offsets", "--topic", "off.*") == "off1:0:0\noff1:1:0\noff2:0:2\n"
    assert tool("kafka-get-offsets", "--topic", "off2", "--time", "-2") == "off2:0:0\n"
    assert tool("kafka-get-offsets", "--topic", "off2", "--time", "earliest") == "off2:0:0\n"
    assert tool("kafka-get-offsets", "--topic", "off1", "--partitions", "1") == "off1:1:0\n"
    assert tool("kafka-get-offsets", "--topic-partitions", "off1:1-,off2:0") == "off1:1:0\noff2:0:2\n"
    assert tool("kafka-get-offsets", "--topic", "off2", "--time", "9999999999999") == ""
    where = ("--bootstrap-server", cluster_of_two.bootstrap_servers)
    code, said = refused("kafka-tool", "kafka-get-offsets", *where, "--topic", "nothing")
    assert (code, "Could not match any topic-partitions with the specified filters" in said) == (1, True)


def test_cluster_id(cluster_of_two: package.Broker, run: Run) -> None:
    said = run(
        "kafka-tool", "kafka-cluster", "cluster-id", "--bootstrap-server", cluster_of_two.bootstrap_servers
    )
    assert said == f"Cluster ID: {cluster_of_two.cluster_id}\n"


def test_cub_waits_for_a_cluster(
    cluster_of_two: package.Broker, run: Run, refused: Callable[..., tuple[int, str]]
) -> None:
    bootstrap = cluster_of_two.bootstrap_servers
    assert run("kafka-tool", "cub", "kafka-ready", "-b", bootstrap, "2", "5") == ""
    code, said = refused("kafka-tool", "cub", "kafka-ready", "-b", bootstrap, "3", "0")
    assert (code, "2 of 3 brokers" in said) == (1, True)
    code, said = refused("kafka-tool", "cub", "kafka-ready", "-b", "127.0.0.1:1", "1", "0")
    assert (code, "0 of 1 brokers" in said) == (1, True)


def test_console_producer_and_consumer(tool: Run) -> None:
    tool("kafka-topics", "--create", "--topic", "k2")
    tool("kafka-console-producer", "--topic", "k2", input="plain\n")
    keyed = ["--property", "parse.key=true", "--property", "key.separator=:"]
    tool("kafka-console-producer", "--topic", "k2", *keyed, input="k:v\n")
    assert (
        tool("kafka-console-consumer", "--topic", "k2", "--from-beginning", "--max-messages", "2")
        == "plain\nv\n"
    )
    shown = [
        "--property",
        "print.key=true",
        "--property",
        "print.offset=true",
        "--property",
        "print.partition=true",
    ]
    assert tool(
        "kafka-console-consumer", "--topic", "k2", "--from-beginning", "--timeout-ms", "1", *shown
    ) == ("Partition:0\tOffset:0\tnull\tplain\nPartition:0\tOffset:1\tk\tv\n")


def test_the_console_consumer_hides_aborted_records_when_told(tool: Run, run: Run) -> None:
    run("topic", "create", "k3")
    run("produce", "k3", "kept", "-x", "k3")
    run("produce", "k3", "gone", "-x", "k3", "--abort")
    read = ["--topic", "k3", "--from-beginning", "--timeout-ms", "1"]
    assert tool("kafka-console-consumer", *read) == "kept\ngone\n"
    assert tool("kafka-console-consumer", *read, "--isolation-level", "read_committed") == "kept\n"


def test_consumer_groups(tool: Run) -> None:
    tool("kafka-topics", "--create", "--topic", "k4")
    tool("kafka-console-producer", "--topic", "k4", input="a\nb\nc\n")
    tool(
        "kafka-console-consumer",
        "--topic",
        "k4",
        "--group",
        "k4-g",
        "--from-beginning",
        "--max-messages",
        "1",
    )
    assert "k4-g" in tool("kafka-consumer-groups", "--list").splitlines()
    heading, row = tool("kafka-consumer-groups", "--describe", "--group", "k4-g").splitlines()
    assert heading.split()[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert row.split()[:6] == ["k4-g", "k4", "0", "1", "3", "2"]
    tool(
        "kafka-consumer-groups",
        "--reset-offsets",
        "--group",
        "k4-g",
        "--topic",
        "k4",
        "--to-latest",
        "--execute",
    )
    assert tool("kafka-consumer-groups", "--describe", "--group", "k4-g").splitlines()[1].split()[5] == "0"
    tool(
        "kafka-consumer-groups",
        "--reset-offsets",
        "--group",
        "k4-g",
        "--all-topics",
        "--shift-by",
        "-2",
        "--execute",
    )
    assert tool("kafka-consumer-groups", "--describe", "--group", "k4-g").splitlines()[1].split()[5] == "2"
    assert "was successful" in tool("kafka-consumer-groups", "--delete", "--group", "k4-g")


def test_broker_api_versions_and_configs(tool: Run) -> None:
    versions = tool("kafka-broker-api-versions")
    assert "(id: 1 rack: null isFenced: false) -> (" in versions
    assert re.search(r"\tProduce\(0\): 0 to \d+ \[usable: \d+\]", versions)
    tool("kafka-topics", "--create", "--topic", "k5", "--config", "retention.ms=7")
    described = tool("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "k5")
    assert described.startswith(
        "Dynamic configs for topic k5 are:\n  retention.ms=7 sensitive=false synonyms={"
    )


def test_lists_in_brackets_are_one_value() -> None:
    assert added("a=1,b=[2,3],c=") == {"a": "1", "b": "2,3", "c": ""}


def test_unsupported_options_are_refused(
    refused: Callable[..., tuple[int, str]], tool: Run, tmp_path: object
) -> None:
    where = ["--bootstrap-server", "localhost:1"]
    assert "exactly one action" in refused("kafka-tool", "kafka-topics", *where)[1]
    assert refused("kafka-tool", "kafka-topics", *where, "--list")[0] == 3
    config = f"{tmp_path}/client.properties"
    with open(config, "w") as file:
        file.write("security.protocol=SASL_SSL\n")
    assert (
        "sasl.mechanism is GSSAPI, but this client supports only PLAIN, SCRAM-SHA-256"
        in refused("kafka-tool", "kafka-topics", *where, "--list", "--command-config", config)[1]
    )
