"""The console tools of Apache Kafka 4.3.1 against our broker: each shell script's main class, as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.broker import Broker, StartBroker
from tests.support.clients import ConfluentProducer, committed_offset, eventually, topics, values
from tests.support.javaprog import Ran, java_clients
from tools.kafka_tools.group import kafka_tool

pytestmark = pytest.mark.foreign

TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
}


def run(name: str, *arguments: object, input: str = "") -> str:
    """What the tool printed; its status must be 0."""
    ran = attempt(name, *arguments, input=input)
    assert ran.status == 0, f"{name} {arguments}\n{ran.out}\n{ran.err}"
    return ran.out


def attempt(name: str, *arguments: object, input: str = "") -> Ran:
    return java_clients().tool(TOOLS[name], *arguments, input=input)


def at(broker: Broker) -> tuple[str, str]:
    return ("--bootstrap-server", broker.bootstrap)


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_topics_are_created_listed_described_changed_and_deleted(broker: Broker):
    where = at(broker)
    said = run(
        "topics",
        *where,
        "--create",
        "--topic",
        "orders",
        "--partitions",
        2,
        "--config",
        "segment.bytes=1048576",
    )
    assert "Created topic orders." in said
    assert lines(run("topics", *where, "--list")) == ["orders"]
    described = run("topics", *where, "--describe", "--topic", "orders")
    assert re.search(
        r"PartitionCount: 2\s+ReplicationFactor: 1\s+Configs: .*segment.bytes=1048576", described
    )
    assert len(re.findall(r"Partition: \d+\s+Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 2

    run("topics", *where, "--alter", "--topic", "orders", "--partitions", 5)
    assert topics(broker.bootstrap)["orders"] == 5
    again = attempt("topics", *where, "--create", "--topic", "orders")
    assert again.status == 1
    assert "already exists" in again.out + again.err
    run("topics", *where, "--delete", "--topic", "orders")
    assert lines(run("topics", *where, "--list")) == []


def test_settings_of_topics_and_brokers_are_described(start_broker: StartBroker):
    broker = start_broker(topics=["orders:1:retention.ms=1234"], settings={"num.partitions": 3})
    said = run("configs", *at(broker), "--describe", "--entity-type", "topics", "--entity-name", "orders")
    assert "retention.ms=1234" in said
    everything = run(
        "configs", *at(broker), "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1"
    )
    assert "num.partitions=3" in everything
    assert "transaction.max.timeout.ms=900000" in everything


def test_settings_are_changed_at_run_time(broker: Broker):
    where = at(broker)
    run("topics", *where, "--create", "--topic", "orders")
    orders = (*where, "--entity-type", "topics", "--entity-name", "orders")
    all_brokers = (*where, "--entity-type", "brokers", "--entity-default")
    changed = run(
        "configs", *orders, "--alter", "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]"
    )
    assert "Completed updating config for topic orders." in changed
    described = run("configs", *orders, "--describe")
    assert "retention.ms=1000" in described
    assert "cleanup.policy=compact,delete" in described
    run("configs", *orders, "--alter", "--delete-config", "cleanup.policy")
    assert "cleanup.policy" not in run("configs", *orders, "--describe")

    run("configs", *all_brokers, "--alter", "--add-config", "log.retention.ms=5000")
    all_of_them = run("configs", *orders, "--describe", "--all")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=5000" in all_of_them

    group = (*where, "--entity-type", "groups", "--entity-name", "workers")
    run("configs", *group, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in run("configs", *group, "--describe")

    wrong = attempt("configs", *orders, "--alter", "--add-config", "retention.ms=soon")
    assert wrong.status == 1
    assert "Invalid value soon for configuration retention.ms" in wrong.out + wrong.err
    fixed = attempt("configs", *all_brokers, "--alter", "--add-config", "log.dirs=/elsewhere")
    assert fixed.status == 1
    assert "log.dirs" in fixed.out + fixed.err


def test_the_cluster_and_its_apis_are_shown(broker: Broker):
    said = run("broker-api-versions", *at(broker))
    assert f"{broker.bootstrap} (id: 1 rack: null isFenced: false) -> (" in said
    assert "EndTxn(26): 0 to 5" in said
    assert "Cluster ID: " in run("cluster", "cluster-id", *at(broker))


def test_offsets_are_asked_and_records_deleted(start_broker: StartBroker, tmp_path: Path):
    broker = start_broker(topics=["orders:2"])
    producer = ConfluentProducer(broker.bootstrap)
    producer.send("orders", [str(number) for number in range(10)], partition=0)
    assert lines(run("get-offsets", *at(broker), "--topic", "orders")) == ["orders:0:10", "orders:1:0"]

    file = tmp_path / "delete.json"
    file.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 4}]})
    )
    said = run("delete-records", *at(broker), "--offset-json-file", file)
    assert "partition: orders-0\tlow_watermark: 4" in said
    earliest = run("get-offsets", *at(broker), "--topic", "orders", "--time", "earliest")
    assert lines(earliest) == ["orders:0:4", "orders:1:0"]
    assert values(broker.bootstrap, "orders") == ["4", "5", "6", "7", "8", "9"]


def test_what_the_console_producer_types_the_console_consumer_shows(start_broker: StartBroker):
    broker = start_broker(topics=["orders:1"])
    run(
        "console-producer",
        *at(broker),
        *("--topic", "orders", "--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        input="a:one\nb:two\n",
    )
    writer = ConfluentProducer(broker.bootstrap, transactional_id="writer")
    writer.init()
    for end, value in (("abort", "never"), ("commit", "three")):
        writer.begin()
        writer.send("orders", [value])
        getattr(writer, end)()
    ends = ("--from-beginning", "--topic", "orders", "--timeout-ms", 3000, "--max-messages")
    level = "--isolation-level"
    committed = run("console-consumer", *at(broker), *ends, 3, level, "read_committed")
    assert lines(committed) == ["one", "two", "three"]
    everything = run("console-consumer", *at(broker), *ends, 4, level, "read_uncommitted")
    assert lines(everything) == ["one", "two", "never", "three"]


def test_the_transaction_log_is_shown_by_its_formatter(broker: Broker):
    """E1 of tests/scenarios/README.md: key, value, names and types as on Kafka."""
    producer = ConfluentProducer(broker.bootstrap, transactional_id="orders")
    producer.init()
    producer.begin()
    producer.send("orders", ["one"])
    producer.commit()
    said = run(
        "console-consumer",
        *at(broker),
        *("--topic", "__transaction_state", "--from-beginning", "--max-messages", 4, "--timeout-ms", 5000),
        *("--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"),
    )
    decoder = json.JSONDecoder()
    records = []
    said = said.strip()
    while said:  # there is nothing between the records, not even a line's end
        record, end = decoder.raw_decode(said)
        records.append(record)
        said = said[end:].lstrip()
    assert [record["value"]["data"]["transactionStatus"] for record in records] == [0, 1, 2, 4]
    assert {record["key"]["data"]["transactionalId"] for record in records} == {"orders"}
    ongoing = records[1]["value"]["data"]
    assert ongoing["transactionPartitions"] == [{"topic": "orders", "partitionIds": [0]}]


def test_groups_are_listed_described_reset_and_deleted(start_broker: StartBroker):
    broker = start_broker(topics=["orders:1"])
    ConfluentProducer(broker.bootstrap).send("orders", [str(number) for number in range(10)])
    ends = ("--from-beginning", "--topic", "orders", "--timeout-ms", 5000, "--max-messages", 10)
    run("console-consumer", *at(broker), *ends, "--group", "readers")
    eventually(lambda: committed_offset(broker.bootstrap, "readers", "orders") == 10, "10 is committed")

    groups = ("consumer-groups", *at(broker))
    assert "readers" in lines(run(*groups, "--list"))
    described = run(*groups, "--describe", "--group", "readers")
    assert re.search(r"readers\s+orders\s+0\s+\S*\s+10\s+10\s+0", described), described
    assert re.search(r"readers\s+.*Empty\s+0", run(*groups, "--describe", "--group", "readers", "--state"))

    reset = ("--reset-offsets", "--group", "readers", "--topic", "orders", "--to-offset", 3, "--execute")
    assert re.search(r"readers\s+orders\s+0\s+3", run(*groups, *reset))
    assert committed_offset(broker.bootstrap, "readers", "orders") == 3
    run(*groups, "--delete-offsets", "--group", "readers", "--topic", "orders")
    assert committed_offset(broker.bootstrap, "readers", "orders") == -1
    assert "successful" in run(*groups, "--delete", "--group", "readers")
    assert "readers" not in lines(run(*groups, "--list"))


def test_the_verifiable_pair_agrees(start_broker: StartBroker):
    broker = start_broker(topics=["orders:1"])
    ran = java_clients().process(
        TOOLS["verifiable-producer"], *at(broker), "--topic", "orders", "--max-messages", 100
    )
    (summary,) = (json.loads(line) for line in lines(ran.out) if '"tool_data"' in line)
    assert (ran.status, summary["sent"], summary["acked"]) == (0, 100, 100)
    consumed = run(
        "verifiable-consumer",
        *at(broker),
        *(
            "--topic",
            "orders",
            "--group-id",
            "verifiers",
            "--max-messages",
            100,
            "--reset-policy",
            "earliest",
        ),
    )
    counts = [json.loads(line) for line in lines(consumed) if '"records_consumed"' in line]
    assert sum(each["count"] for each in counts) == 100


def test_the_transactional_copier_moves_all_exactly_once(start_broker: StartBroker):
    broker = start_broker(topics=["input:1", "output:1"])
    sent = [str(number) for number in range(60)]
    ConfluentProducer(broker.bootstrap).send("input", sent)
    run(
        "copier",
        *("--broker-list", broker.bootstrap, "--transactional-id", "copier", "--consumer-group", "copiers"),
        *("--input-topic", "input", "--input-partition", 0, "--output-topic", "output"),
        *("--max-messages", 60, "--transaction-size", 10, "--enable-random-aborts"),
    )
    assert values(broker.bootstrap, "output") == sent


def test_the_performance_tools_run_with_transactions(start_broker: StartBroker):
    broker = start_broker(topics=["orders:1"])
    said = run(
        "producer-perf-test",
        *("--topic", "orders", "--num-records", 2000, "--record-size", 100, "--throughput", -1),
        *("--transaction-duration-ms", 50, "--transactional-id", "perf"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
    )
    assert "2000 records sent" in said
    assert len(values(broker.bootstrap, "orders")) == 2000
    said = run(
        "consumer-perf-test", *at(broker), "--topic", "orders", "--num-records", 2000, "--timeout", 10_000
    )
    assert ", 2000, " in said


def test_our_files_are_read_by_kafka_s_own_dump(start_broker: StartBroker):
    broker = start_broker(topics=["orders:1"])
    producer = ConfluentProducer(broker.bootstrap, transactional_id="orders")
    producer.init()
    producer.begin()
    producer.send("orders", ["one"])
    producer.commit()
    (segment,) = (broker.data_dir / "orders-0").glob("*.log")
    said = run("dump-log", "--files", segment, "--print-data-log", "--deep-iteration")
    assert "isTransactional: true isControl: false" in said
    assert "isvalid: true" in said
    assert "endTxnMarker: COMMIT coordinatorEpoch: 0" in said
    assert "isvalid: false" not in said


OURS = {
    "topics": "kafka-topics",
    "consumer-groups": "kafka-consumer-groups",
    "console-consumer": "kafka-console-consumer",
}


def ours(name: str, *arguments: object) -> str:
    done = CliRunner().invoke(kafka_tool, [OURS[name], *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_our_tools_by_the_same_names_print_the_same(broker: Broker):
    where = at(broker)
    run("topics", *where, "--create", "--topic", "same", "--partitions", 2, "--config", "retention.ms=7")
    run("console-producer", *where, "--topic", "same", "--property", "parse.key=true", input="k\tv\nl\tw\n")
    shown = [
        f"--formatter-property=print.{name}=true"
        for name in ("key", "timestamp", "partition", "offset", "headers")
    ]
    for words in (
        ("topics", *where, "--list"),
        ("topics", *where, "--describe", "--topic", "same"),
        ("console-consumer", *where, "--topic", "same", "--from-beginning", "--max-messages", 2, *shown),
    ):
        assert sorted(lines(ours(*words))) == sorted(lines(run(*words))), words
    run(
        "console-consumer", *where, "--topic", "same", "--max-messages", 1, "--group", "g", "--from-beginning"
    )
    for words in (
        ("consumer-groups", *where, "--list"),
        ("consumer-groups", *where, "--describe", "--group", "g"),
        (
            "consumer-groups",
            *where,
            "--reset-offsets",
            "--group",
            "g",
            "--topic",
            "same",
            "--to-earliest",
            "--dry-run",
        ),
    ):
        # Kafka's tool lists groups in no order.
        assert sorted(line.split() for line in lines(ours(*words))) == sorted(
            line.split() for line in lines(run(*words))
        ), words
