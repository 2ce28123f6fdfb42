from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer

import odradek as package
from broker.share.state import Ending
from odradek.control_client import ControlClient
from protocol.errors import ErrorCode
from tests.lab.explain.staged_groups import ACCEPT, REJECT, RELEASE, ShareMember
from tests.support.clients import PATIENCE, eventually
from tests.tools.conftest import Run, invoke
from tools.client.cluster import Cluster
from tools.client.errors import KafkaError
from tools.commands.shares import before_text


def test_the_lag_of_a_group_without_members(run: Run, refused: Callable[..., tuple[int, str]]) -> None:
    run("topic", "create", "g1:2")
    run("produce", "g1", *"abcd")
    run("consume", "g1/0", "-g", "g1-readers", "-n", "1")
    run("txn", "hang", "g1-open", "g1", "e")
    (at,) = json.loads(run("group", "lag", "g1-readers", "--json"))
    assert (at["committed_offset"], at["last_stable_offset"], at["end_offset"], at["lag"], at["open"]) == (
        1,
        2,
        3,
        1,
        1,
    )
    run("txn", "abort", "g1-open")
    assert "g1-readers" in run("group", "list")
    assert run("group", "describe", "g1-readers").startswith("g1-readers: Empty")
    assert json.loads(run("group", "reset", "g1-readers", "--to", "beginning", "--json")) == [
        {"topic": "g1", "partition": 0, "offset": 0}
    ]
    assert json.loads(run("group", "lag", "g1-readers", "--json"))[0]["committed_offset"] == 0
    run("group", "reset", "g1-readers", "g1", "--to", "end", "--dry-run")
    assert len(json.loads(run("group", "lag", "g1-readers", "--json"))) == 1
    assert run("group", "delete", "g1-readers") == "group g1-readers is deleted\n"
    assert refused("group", "delete", "g1-readers") == (1, "Error: group g1-readers: GROUP_ID_NOT_FOUND\n")
    assert refused("group", "lag", "g1-readers")[0] == 1
    assert refused("group", "describe", "g1-readers") == (1, "Error: there is no group g1-readers\n")


def test_a_share_group_is_shown_with_its_records_in_flight(cluster_of_two: package.Broker, run: Run) -> None:
    run("topic", "create", "g3:1")
    run("produce", "g3", *"abcd")

    class Names:
        topic, group = "g3", "g3-workers"

        def connect(self) -> Cluster:
            return connections.enter_context(Cluster(cluster_of_two.bootstrap_servers))

    with ExitStack() as connections:
        member = ShareMember(Names(), "m1")
        member.configure()
        member.join()
        assert member.fetch(3) == [(0, 2, 1)]
        member.acknowledge(0, 0, ACCEPT)
        member.acknowledge(1, 1, RELEASE)
        member.acknowledge(2, 2, ACCEPT)
        assert "g3-workers" in run("group", "list")
        by_protocol = json.loads(run("group", "describe", "g3-workers", "--json"))
        assert (by_protocol["state"], by_protocol["members"][0]["partitions"]) == ("Stable", ["g3-0"])
        known = {"topic": "g3", "partition": 0, "start_offset": 1, "lag": 2}
        assert by_protocol["partitions"] == [known]
        assert json.loads(run("group", "lag", "g3-workers", "--json")) == [known]
        control = {"ODRADEK_CONTROL": cluster_of_two.control_url}
        (found,) = json.loads(run("group", "lag", "g3-workers", "--json", **control))
        assert (found["start_offset"], found["end_offset"], found["delivery_complete_count"]) == (1, 3, 1)
        assert found["lag"] == 2
        assert found["records"] == {"Available": 2, "Acknowledged": 1}
        table = run("group", "describe", "g3-workers", **control)
        assert re.search(r"g3-0 +1 +2 +2 +0 +1 +0 +0", table)
        assert re.search(r"g3-0 @1 +Available +- +- +1 +released by m1", table)
        assert re.search(r"g3-0 @3 +Available +- +- +0 +-", table)


def test_a_share_group_without_members_is_reset(
    cluster_of_two: package.Broker, run: Run, refused: Callable[..., tuple[int, str]]
) -> None:
    run("topic", "create", "g5:1")
    run("produce", "g5", *"abcd")
    starts = [{"topic": "g5", "partition": 0, "offset": 0}]

    class Names:
        topic, group = "g5", "g5-workers"

        def connect(self) -> Cluster:
            return connections.enter_context(Cluster(cluster_of_two.bootstrap_servers))

    def start_offset() -> int:
        (found,) = json.loads(run("group", "lag", "g5-workers", "--json"))
        return int(found["start_offset"])

    with ExitStack() as connections:
        member = ShareMember(Names(), "m1")
        member.configure()
        member.join()
        assert member.fetch(3) == [(0, 2, 1)]
        member.acknowledge(0, 1, ACCEPT)
        member.acknowledge(2, 2, ACCEPT)
        # The stored one: the last acknowledgement is in the stored state of the records.
        assert start_offset() == 2
        assert "has members" in refused("group", "reset", "g5-workers", "--to", "beginning", "--dry-run")[1]
        member.leave()
    assert json.loads(run("group", "reset", "g5-workers", "--to", "0", "--dry-run", "--json")) == starts
    assert start_offset() == 2
    assert json.loads(run("group", "reset", "g5-workers", "--to", "beginning", "--json")) == starts
    assert start_offset() == 0
    run("group", "reset", "g5-workers", "g5/0", "--to", "1")
    assert start_offset() == 1
    path = "/v1/groups/g5-workers/offsets"
    answer = ControlClient(cluster_of_two.control_url).post(path, {"topic": "g5", "to": 99})
    assert answer["clamped"] == [{"partition": 0, "asked": 99, "committed": 4}]
    assert start_offset() == 4
    assert refused("consume", "g5", "-g", "g5-workers") == (
        1,
        "Error: group g5-workers is of the type share; only groups with committed offsets can be given\n",
    )


@pytest.mark.parametrize(
    ("ending", "member", "text"),
    [
        ("released", "m1", "released by m1"),
        ("lock expired", "m1", "lock of m1 expired"),
        ("lock expired", None, "lock expired"),
        ("session ended", "m1", "session of m1 ended"),
        (Ending.ABORTED.value, "m1", "transaction aborted"),
        (Ending.COMPACTED.value, "m1", "compacted"),
        (None, "m1", "m1"),
        (None, None, None),
    ],
)
def test_how_an_acquisition_ended(ending: str | None, member: str | None, text: str | None) -> None:
    assert before_text(ending, member) == text


def test_settings_of_a_group_are_set_and_shown(run: Run, refused: Callable[..., tuple[int, str]]) -> None:
    run("group", "config", "g4", "--set", "share.auto.offset.reset=earliest")
    source = "DYNAMIC_GROUP_CONFIG"
    assert json.loads(run("group", "config", "g4", "--json")) == {
        "share.auto.offset.reset": {"value": "earliest", "source": source}
    }
    assert "share.isolation.level" in run("group", "config", "g4", "--all")
    assert (
        "share.delivery.count.limit"
        in refused("group", "config", "g4", "--set", "share.delivery.count.limit=x")[1]
    )
    run("group", "config", "g4", "--delete", "share.auto.offset.reset")
    assert json.loads(run("group", "config", "g4", "--json")) == {}


def test_the_timeline_of_a_share_group_says_who_had_a_record(
    cluster_of_two: package.Broker, run: Run, refused: Callable[..., tuple[int, str]]
) -> None:
    run("topic", "create", "g4:1")
    run("produce", "g4", *"abcd")
    control = {"ODRADEK_CONTROL": cluster_of_two.control_url}

    class Names:
        topic, group = "g4", "g4-workers"

        def connect(self) -> Cluster:
            return connections.enter_context(Cluster(cluster_of_two.bootstrap_servers))

    with ExitStack() as connections, cluster_of_two.trace:
        first, second = ShareMember(Names(), "m1"), ShareMember(Names(), "m2")
        first.configure()
        first.join()
        first.fetch(3)
        first.acknowledge(0, 2, RELEASE)
        second.fetch(1)
        second.acknowledge(0, 0, REJECT)
        events = json.loads(run("group", "timeline", "g4-workers", "g4/0", "-o", "0", "--json", **control))[
            "events"
        ]
    # Elections and rules of other tests are events of the timeline, too.
    of_record = [each for each in events if each["kind"] in ("acquired", "acknowledged", "stored")]
    assert [(each["kind"], each["member_id"]) for each in of_record] == [
        ("acquired", "m1"),
        ("stored", None),
        ("acknowledged", "m1"),
        ("acquired", "m2"),
        ("stored", None),
        ("acknowledged", "m2"),
    ]
    states = [each["ranges"][0] for each in events if each["kind"] == "stored"]
    assert [(each["state"], each["delivery_count"]) for each in states] == [("available", 1), ("archived", 2)]
    text = run("group", "timeline", "g4-workers", "g4/0", **control)
    assert text.startswith("g4-0 in share group g4-workers\n")
    assert re.search(r"__share_group_state-\d+ @\d+ +snapshot, start offset -1\n", text)
    assert re.search(r"stored, start offset 0: available 0-2 delivery 1\n", text)
    of_group = run("group", "timeline", "g4-workers", **control)
    assert "member m1 (client odradek) subscribes to g4\n" in of_group
    assert "share partitions: initialized g4 [0]\n" in of_group
    assert re.search(r"member m1 has g4 \[0\] in epoch \d+\n", of_group)
    run("consume", "g4", "-g", "g4-readers", "-n", "1")
    assert "only share groups" in refused("group", "timeline", "g4-readers", **control)[1]
    assert "has no partition 7" in refused("group", "timeline", "g4-workers", "g4/7", **control)[1]
    assert "--offset needs" in refused("group", "timeline", "g4-workers", "-o", "7", **control)[1]


def test_members_are_shown_with_their_partitions(cluster_of_two: package.Broker, run: Run) -> None:
    run("topic", "create", "g2:2")
    run("produce", "g2", "x")
    consumer = Consumer(
        {
            **PATIENCE,
            "bootstrap.servers": cluster_of_two.bootstrap_servers,
            "group.id": "g2-members",
            "client.id": "member-client",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["g2"])
    eventually(lambda: consumer.poll(0.1) is not None)
    consumer.commit(asynchronous=False)
    described = json.loads(run("group", "describe", "g2-members", "--json"))
    assert described["state"] == "Stable"
    assert described["members"][0]["partitions"] == ["g2-0", "g2-1"]
    assert "member-client" in run("group", "describe", "g2-members")
    assert {each["client_id"] for each in json.loads(run("group", "lag", "g2-members", "--json"))} == {
        "member-client"
    }
    assert "Group g2-members is Stable with 1 member at its coordinator, node " in run(
        "explain", "--group", "g2-members"
    )
    consumer.close()


def test_transactions_are_listed_described_left_open_and_aborted(
    run: Run, refused: Callable[..., tuple[int, str]]
) -> None:
    run("topic", "create", "x1")
    run("produce", "x1", "a", "-x", "x1-done")
    assert "x1-open is open in x1-0" in run("txn", "hang", "x1-open", "x1", "--timeout-ms", "50000")
    listed = {each["transactional_id"]: each for each in json.loads(run("txn", "list", "--json"))}
    assert (listed["x1-done"]["state"], listed["x1-done"]["start_ms"]) == ("CompleteCommit", None)
    assert (listed["x1-open"]["state"], listed["x1-open"]["partitions"]) == ("Ongoing", ["x1-0"])
    assert "x1-done" not in run("txn", "list", "--state", "Ongoing")
    assert "unknown state: Done (known: Empty, Ongoing" in refused("txn", "list", "--state", "Done")[1]
    described = run("txn", "describe", "x1-open")
    assert "transaction.timeout.ms 50000" in described
    assert "times out in" in described
    assert "x1-open: aborted" in run("txn", "abort", "x1-open")
    assert "x1-open: no transaction was open; producer" in run("txn", "abort", "x1-open")
    assert json.loads(run("txn", "describe", "x1-open", "--json"))["state"] == "Empty"
    assert refused("txn", "abort", "of-none") == (
        1,
        "Error: transactional id of-none: TRANSACTIONAL_ID_NOT_FOUND\n",
    )
    assert refused("txn", "abort")[0] == 2


def test_an_open_transaction_is_aborted_in_its_partition_without_its_coordinator(
    run: Run, refused: Callable[..., tuple[int, str]]
) -> None:
    run("topic", "create", "x2")
    run("produce", "x2", "before")
    run("txn", "hang", "x2-open", "x2", "open")
    assert refused("txn", "abort", "--partition", "x2/0", "--start-offset", "0")[0] == 1
    assert "is aborted" in run("txn", "abort", "--partition", "x2/0", "--start-offset", "1")
    (described,) = json.loads(run("topic", "describe", "x2", "--json"))
    assert described["partitions"][0]["last_stable_offset"] == 3
    # The coordinator still has the transaction open, without this partition: nothing hangs in x2.
    assert run("explain", "x2/0").startswith("Nothing is wrong with x2-0, but its last 2 offsets")
    run("txn", "abort", "x2-open")


def test_a_long_name_leaves_the_columns_of_a_table_readable(run: Run) -> None:
    long = "x9-" + "n" * 32_000
    run("topic", "create", "x9")
    run("produce", "x9", "a", "-x", long)
    lines = run("txn", "list").splitlines()
    assert {"x9-" + "n" * 76 + "…  CompleteCommit"} <= {line[:96].rstrip() for line in lines}
    assert max(map(len, lines)) < 300
    assert long in {each["transactional_id"] for each in json.loads(run("txn", "list", "--json"))}
    run("consume", "x9", "-g", long)
    assert max(map(len, run("group", "list").splitlines())) < 300


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_deleted_with_its_members(
    cluster_of_two: package.Broker, run: Run, refused: Callable[..., tuple[int, str]], protocol: str
) -> None:
    """`odradek group delete` deletes a group with members only with --with-members: a client that died without LeaveGroup
    stays a member until its session times out."""
    topic = group = f"g3-{protocol}"
    run("topic", "create", topic)
    run("produce", topic, "x")
    consumer = Consumer(
        {
            **PATIENCE,
            "bootstrap.servers": cluster_of_two.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    eventually(lambda: consumer.poll(0.1) is not None)
    consumer.commit(asynchronous=False)
    assert refused("group", "delete", group) == (1, f"Error: group {group}: NON_EMPTY_GROUP\n")
    assert run("group", "delete", "--with-members", group) == f"group {group} is deleted\n"
    consumer.close()


@pytest.mark.parametrize("command", ["txn list", "group list"])
def test_a_node_that_cannot_be_asked_is_named_below_what_the_others_have(
    cluster_of_two: package.Broker, monkeypatch: pytest.MonkeyPatch, command: str, run: Run
) -> None:
    run("topic", "create", "x10", "--if-not-exists")
    for number in range(8):
        run("produce", "x10", "a", "-x", f"x10-{number}")
        run("consume", "x10", "-g", f"x10-{number}")
    assert run(*command.split()).count("\nx10-") == 8
    ask = Cluster.ask_node

    def loading(self: Cluster, node: int, *rest: Any) -> Any:
        if node == 2:
            raise KafkaError(ErrorCode.coordinator_load_in_progress, "what node 2 has")
        return ask(self, node, *rest)

    monkeypatch.setattr(Cluster, "ask_node", loading)
    done = invoke(cluster_of_two.bootstrap_servers, *command.split())
    assert 0 < done.stdout.count("\nx10-") < 8
    assert (
        done.exit_code,
        "node 2 could not be asked: what node 2 has: COORDINATOR_LOAD_IN_PROGRESS\n" in done.stderr,
    ) == (
        1,
        True,
    )
