"""The commands of Odradek work with Apache Kafka, as they use only Kafka's protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import kafka_oracle
from tests.support.clients import eventually
from tests.tools.conftest import invoke, objects
from tests.tools.test_rebalance import (
    test_a_classic_group_rebalances_once_and_without_the_command as rebalances_once,
)
from tests.tools.test_rebalance import (
    test_a_group_of_the_consumer_protocol_gives_partitions_up_and_gets_them_back as gives_partitions_up,
)
from tools.client.cluster import Cluster

pytestmark = pytest.mark.foreign

Run = Callable[..., str]


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    home = tmp_path_factory.mktemp("kafka")
    with kafka_oracle.kafka(directory=home) as oracle:
        yield f"{oracle.host}:{oracle.port}", home


@pytest.fixture
def run(apache: tuple[str, Path]) -> Run:
    def run(*words: str, input: str | None = None) -> str:
        done = invoke(apache[0], *words, input=input)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_topics_and_their_settings(run: Run) -> None:
    run("topic", "create", "t:2", "-c", "cleanup.policy=compact")
    (described,) = json.loads(run("topic", "describe", "t", "--json"))
    assert described["configs"] == {"cleanup.policy": "compact"}
    run("topic", "config", "t", "--set", "retention.ms=5000", "--delete", "cleanup.policy")
    assert json.loads(run("topic", "config", "t", "--json")) == {
        "retention.ms": {"value": "5000", "source": "DYNAMIC_TOPIC_CONFIG"}
    }
    run("kafka-tool", "kafka-configs", "--bootstrap-server", "ignored:1", "--help")
    run("topic", "delete", "t")


def test_transactions_have_their_outcomes_and_are_explained(run: Run) -> None:
    run("topic", "create", "orders")
    run("produce", "orders", "plain", "-z", "zstd")
    run("produce", "orders", "committed", "-x", "etl")
    run("produce", "orders", "aborted", "-x", "etl", "--abort")
    run("txn", "hang", "stuck", "orders", "open")
    run("produce", "orders", "behind", "-x", "etl")
    found = {
        each["value"]: each["outcome"]
        for each in objects(run("consume", "orders", "-u", "--json"))
        if "value" in each
    }
    assert [found[value] for value in ("plain", "committed", "aborted", "open", "behind")] == [
        None,
        "committed",
        "aborted",
        "open",
        "committed",
    ]
    told = run("explain", "orders/0")
    assert "stop at offset" in told
    assert "epoch 0) has an open transaction, for " in told
    assert "odradek txn abort stuck" in told

    def states() -> tuple[str, str]:
        listed = {
            each["transactional_id"]: each["state"] for each in json.loads(run("txn", "list", "--json"))
        }
        return listed["stuck"], listed["etl"]

    eventually(lambda: states() == ("Ongoing", "CompleteCommit"))
    run("txn", "abort", "stuck")
    assert run("explain", "orders/0").startswith("Nothing is wrong with orders-0")
    assert "PrepareCommit" in run("explain", "--id", "etl")


def test_a_hanging_transaction_is_made_found_and_committed(run: Run) -> None:
    run("topic", "create", "hung")
    run("txn", "hang", "for-good", "hung", "a", "b", "--for-good")
    (found,) = json.loads(run("txn", "find-hanging", "--json"))["hanging"]
    assert (found["transactional_id"], found["coordinator_state"], found["start_offset"]) == (
        "for-good",
        "Empty",
        0,
    )
    where = ("--partition", "hung/0", "--start-offset", "0")
    assert json.loads(run("txn", "commit", *where, "--dry-run", "--json"))["readable_if_committed"] == 2
    run("txn", "commit", *where)
    eventually(lambda: [each["value"] for each in objects(run("consume", "hung", "--json"))] == ["a", "b"])
    assert run("txn", "find-hanging") == "no hanging transactions\n"


def test_offsets_of_a_group_are_reset_and_its_lag_is_explained(run: Run) -> None:
    run("topic", "create", "lagging")
    run("produce", "lagging", "a", "b", "c")
    run("consume", "lagging", "-g", "readers", "-n", "1")
    (at,) = json.loads(run("group", "lag", "readers", "--json"))
    assert (at["committed_offset"], at["lag"]) == (1, 2)
    assert "lagging-0: 2 offsets behind the last stable offset 3: 2 records." in run(
        "explain", "--group", "readers"
    )
    run("group", "reset", "readers", "--to", "end")
    assert json.loads(run("group", "lag", "readers", "--json"))[0]["lag"] == 0
    run("group", "delete", "readers")


def test_a_partition_is_trimmed(run: Run) -> None:
    run("topic", "create", "trimmed")
    run("produce", "trimmed", "a", "b", "c")
    run("txn", "hang", "trimmed", "trimmed", "open")
    (found,) = json.loads(run("topic", "trim", "trimmed", "--before", "end", "--json"))
    assert (found["log_start_offset_after"], found["deleted_offsets"]) == (4, 4)
    (described,) = json.loads(run("topic", "describe", "trimmed", "--json"))
    assert described["partitions"][0]["log_start_offset"] == 4


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_rebalances(run: Run, apache: tuple[str, Path], protocol: str) -> None:
    with Cluster(apache[0]) as cluster:
        {"classic": rebalances_once, "consumer": gives_partitions_up}[protocol](cluster, run)


def test_users_are_added_and_removed(run: Run) -> None:
    run("user", "add", "alice", "--password", "secret")
    alice = {"user": "alice", "mechanisms": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}
    # Brokers learn of the controller's changes later.
    eventually(lambda: json.loads(run("user", "list", "--json")) == [alice])
    run("user", "remove", "alice")
    eventually(lambda: json.loads(run("user", "list", "--json")) == [])


def test_its_files_are_dumped(run: Run, apache: tuple[str, Path]) -> None:
    run("topic", "create", "dumped")
    run("produce", "dumped", "value", "-x", "dumper")
    (folder,) = apache[1].rglob("dumped-0")

    def dumped() -> list[str | None]:
        rows = objects(run("dump", "-r", str(folder), "--json"))
        return [each.get("value") or each.get("marker") for each in rows if "offset" in each]

    def states() -> list[str]:
        return [
            each["state"]
            for partition in sorted(folder.parent.glob("__transaction_state-*"))
            for each in objects(run("dump", "-r", str(partition), "--json"))
            if each.get("state") and each["key"]["transactional_id"] == "dumper"
        ]

    # Kafka responds to EndTxn before it writes the markers.
    eventually(lambda: dumped() == ["value", "COMMIT"])
    eventually(lambda: states() == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"])


def test_acls_with_an_authorizer(tmp_path: Path) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with kafka_oracle.kafka(settings, directory=tmp_path) as oracle:

        def acl(*words: str) -> list[tuple[str, ...]]:
            done = invoke(f"{oracle.host}:{oracle.port}", "acl", *words, "--json")
            assert done.exit_code == 0, done.output
            return [
                (each["resource"], each["pattern"], each["operation"]) for each in json.loads(done.stdout)
            ]

        acl("add", "alice", "-o", "TWO_PHASE_COMMIT", "--transactional-id", "etl-", "--prefixed", "--deny")
        acl("add", "alice", "-o", "ALTER_CONFIGS", "--cluster")
        cluster = ("CLUSTER", "LITERAL", "ALTER_CONFIGS")
        ids = ("TRANSACTIONAL_ID", "PREFIXED", "TWO_PHASE_COMMIT")
        eventually(lambda: acl("list", "alice") == [cluster, ids])
        assert acl("remove", "alice", "--cluster") == [cluster]
        eventually(lambda: acl("list") == [ids])
