from __future__ import annotations

import json
import socket
from collections.abc import Callable

import pytest

import odradek as package
from tests.tools.conftest import Run
from tools.client import connection


def test_topics_are_created_listed_described_and_deleted(run: Run) -> None:
    assert run("topic", "create", "t1:3", "t2", "-c", "cleanup.policy=compact") == (
        "topic t1 is created\ntopic t2 is created\n"
    )
    listed = {each["topic"]: each for each in json.loads(run("topic", "list", "--json"))}
    assert listed["t1"]["partitions"] == 3
    assert [line.split()[:2] for line in run("topic", "list").splitlines() if line.startswith("t1 ")] == [
        ["t1", "3"]
    ]
    (described,) = json.loads(run("topic", "describe", "t1", "--json"))
    assert described["configs"] == {"cleanup.policy": "compact"}
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert "cleanup.policy=compact" in run("topic", "describe", "t2")
    assert run("topic", "delete", "t1", "t2") == "topic t1 is deleted\ntopic t2 is deleted\n"
    assert not {"t1", "t2"} & {each["topic"] for each in json.loads(run("topic", "list", "--json"))}


def test_internal_topics_are_listed_on_request(run: Run) -> None:
    run("produce", "t3", "x", "-x", "internal")
    assert "__transaction_state" not in run("topic", "list")
    assert "__transaction_state" in run("topic", "list", "--internal")


def test_a_topic_is_made_once_unless_it_may_exist(run: Run, refused: Callable[..., tuple[int, str]]) -> None:
    run("topic", "create", "t4")
    code, message = refused("topic", "create", "t4")
    assert (code, "TOPIC_ALREADY_EXISTS" in message) == (1, True)
    assert run("topic", "create", "t4", "--if-not-exists") == ""
    assert json.loads(run("topic", "create", "t4", "t7", "--if-not-exists", "--json")) == {"created": ["t7"]}
    assert json.loads(run("topic", "delete", "t7", "no-such-topic", "--if-exists", "--json")) == {
        "deleted": ["t7"]
    }
    assert refused("topic", "delete", "no-such-topic")[0] == 1
    assert run("topic", "delete", "no-such-topic", "--if-exists") == ""


def test_the_offsets_of_a_partition_show_the_open_transaction(run: Run) -> None:
    run("topic", "create", "t5")
    run("produce", "t5", "a", "b")
    hung = json.loads(run("txn", "hang", "t5-open", "t5", "c", "--json"))
    assert (hung["transactional_id"], hung["topic"], hung["partition"]) == ("t5-open", "t5", 0)
    (described,) = json.loads(run("topic", "describe", "t5", "--json"))
    (at,) = described["partitions"]
    assert (at["log_start_offset"], at["last_stable_offset"], at["end_offset"]) == (0, 2, 3)
    aborted = json.loads(run("txn", "abort", "t5-open", "--json"))
    assert aborted["was_open"]
    assert (aborted["producer_id"], aborted["producer_epoch"]) > (hung["producer_id"], hung["producer_epoch"])


def test_topic_settings_are_shown_and_malformed_ones_refused(
    run: Run, refused: Callable[..., tuple[int, str]]
) -> None:
    run("topic", "create", "t6", "-c", "retention.ms=1000")
    assert json.loads(run("topic", "config", "t6", "--json")) == {
        "retention.ms": {"value": "1000", "source": "DYNAMIC_TOPIC_CONFIG"}
    }
    assert "min.insync.replicas" in run("topic", "config", "t6", "--all")
    assert "expected NAME=VALUE" in refused("topic", "config", "t6", "--set", "retention.ms")[1]


def test_a_partition_is_trimmed(run: Run, refused: Callable[..., tuple[int, str]]) -> None:
    run("topic", "create", "t8:2")
    run("produce", "t8", *"abcd", "-p", "0")

    def starts() -> list[int]:
        (described,) = json.loads(run("topic", "describe", "t8", "--json"))
        return [each["log_start_offset"] for each in described["partitions"]]

    (planned,) = json.loads(run("topic", "trim", "t8/0", "--before", "-1", "--dry-run", "--json"))
    assert (planned["log_start_offset_after"], planned["deleted_offsets"], starts()) == (3, 3, [0, 0])
    assert run("topic", "trim", "t8/0", "--before", "1").splitlines()[1].split() == [
        "t8-0",
        "0",
        "1",
        "4",
        "1",
    ]
    assert starts() == [1, 0]
    assert refused("topic", "trim", "t8", "--before", "2") == (
        1,
        "Error: t8-1: offset 2 is out of range: the log begins at 0 and ends at 0\n",
    )
    assert refused("topic", "trim", "t8/0", "--before", "0")[0] == 1
    run("topic", "trim", "t8", "--before", "@1")
    assert starts() == [1, 0]
    run("topic", "trim", "t8", "--before", "end")
    assert starts() == [4, 0]
    run("topic", "create", "t9", "-c", "cleanup.policy=compact")
    run("produce", "t9", "a", "-k", "k")
    assert refused("topic", "trim", "t9", "--before", "end") == (1, "Error: t9-0: POLICY_VIOLATION\n")


def test_a_wrong_name_has_a_message_and_a_code(refused: Callable[..., tuple[int, str]]) -> None:
    assert refused("topic", "describe", "nope") == (1, "Error: there is no topic nope\n")
    assert refused("topic", "create", "a:b")[0] == 2
    code, message = refused("topic", "list", "-b", "127.0.0.1:1")
    assert (code, "Connection refused" in message) == (3, True)
    assert "names another" not in message
    assert refused("topic", "list", "--bootstrap-server", "localhost")[0] == 2
    assert "Errno" not in refused("topic", "list", "-b", "no.such.host.invalid:9092")[1]


def test_without_a_broker_it_says_how_to_start_one(refused: Callable[..., tuple[int, str]]) -> None:
    code, message = refused("topic", "list", KAFKA_BOOTSTRAP_SERVERS="", KAFKA_LISTENERS="PLAINTEXT://:1")
    assert code == 3
    assert (
        "localhost:1: Connection refused (`odradek serve` starts a broker; set another address with --bootstrap or"
        in message
    )


def test_a_silent_listener_times_out_sooner_than_a_slow_request(
    refused: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert refused("topic", "list", "-b", address) == (3, f"Error: {address}: no response in time\n")


def test_a_paused_node_is_not_asked_twice(
    refused: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 0.1)
    asked: list[tuple[str, int]] = []
    connect = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda *at: asked.append(at[0]) or connect(*at))
    with package.Broker(nodes=2) as broker:
        first, second = broker.bootstrap_servers.split(",")
        broker.nodes[1].pause()
        code, message = refused("txn", "list", "-b", second)
        assert (code, message.splitlines()[0]) == (
            1,
            f"node 1 could not be asked: {first}: no response in time",
        )
        assert [port for _, port in asked].count(int(first.rpartition(":")[2])) == 1


def test_a_control_port_is_no_bootstrap_server(
    refused: Callable[..., tuple[int, str]], cluster_of_two: package.Broker
) -> None:
    address = cluster_of_two.control_url.removeprefix("http://")
    assert refused("topic", "list", "-b", address) == (
        3,
        f"Error: {address}: an HTTP server responds there, no Kafka broker\n",
    )
