"""Hanging transactions: creating them for practice, finding them, and ending them with a COMMIT or an ABORT marker."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.tools.conftest import Run, objects
from tools.client import hanging
from tools.client.cluster import Cluster
from tools.client.configs import BROKER, describe_configs
from tools.client.errors import Unreachable
from tools.client.hanging import Open, find_hanging, still_open, unexpected
from tools.client.transactions import Transaction
from tools.client.unverified import VERIFICATION
from tools.commands import txn_ends

AT = Open("t", 0, 7, 0, 0, 5, 1000)


def known(state: str, *partitions: tuple[str, int]) -> dict[int, Transaction]:
    return {7: Transaction("i", state, 7, 0, 2, 1000, 0, partitions)}


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
def test_a_transaction_that_its_coordinator_will_end_does_not_hang(state: str) -> None:
    assert unexpected([AT], known(state, ("t", 0))) == []
    assert [each.where for each in unexpected([AT], known(state, ("t", 1)))] == [("t", 0)]


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort", "Dead"])
def test_a_transaction_whose_coordinator_has_ended_it_hangs(state: str) -> None:
    (found,) = unexpected([AT], known(state, ("t", 0)))
    assert found.why == f"coordinator node 2 has i in {state}, without t-0"


def test_a_producer_that_no_coordinator_knows_hangs() -> None:
    (found,) = unexpected([AT], {})
    assert found.why == "no coordinator knows producer 7"
    assert found.abort_command == "odradek txn abort --partition t/0 --start-offset 5"


def test_a_transaction_that_began_or_ended_between_two_queries_does_not_hang() -> None:
    later = replace(AT, start_offset=9)
    assert still_open([AT], []) == []
    assert still_open([AT], [later]) == []
    assert still_open([later, AT], [AT, later]) == [AT, later]


@pytest.fixture
def hung(run: Run) -> Callable[..., int]:
    """A function that makes a transaction hang in a new topic, behind two records, and returns its first offset.

    The test has to end the transaction.
    """

    def hung(topic: str, *values: str) -> int:
        run("topic", "create", topic)
        run("produce", topic, "a", "b")
        return int(
            json.loads(run("txn", "hang", topic, topic, *values, "--for-good", "--json"))["start_offset"]
        )

    return hung


def test_a_hanging_transaction_is_found_listed_and_aborted(run: Run, hung: Callable[..., int]) -> None:
    start = hung("h1", "c", "d")
    run("txn", "hang", "h1-open", "h1")
    found = json.loads(run("txn", "find-hanging", "--topic", "h1", "--json"))
    (at,) = found["hanging"]
    assert (at["transactional_id"], at["coordinator_state"], at["start_offset"]) == ("h1", "Empty", start)
    assert (at["partitions"], found["unknown"]) == (["h1-0"], [])
    command = f"odradek txn abort --partition h1/0 --start-offset {start}"
    assert at["abort"] == command
    assert f"to abort the one in h1-0@{start}: {command}\n" in run("txn", "find-hanging")
    listed = {(each["transactional_id"], each["state"]) for each in json.loads(run("txn", "list", "--json"))}
    assert {("h1", "Empty"), ("h1", "Hanging"), ("h1-open", "Ongoing")} <= listed
    assert command in run("txn", "list")
    assert "Empty" not in run("txn", "list", "--state", "Hanging")
    sentence = f"a transaction of its producer hangs in h1-0 from offset {start}; to abort it: {command}\n"
    assert run("txn", "describe", "h1").endswith(f"  {sentence}")
    assert run("txn", "abort", "h1").endswith(f" now\n{sentence}")
    assert command not in run("txn", "list", "--state", "Ongoing")
    run(*command.split()[1:])
    assert run("txn", "find-hanging", "-t", "h1") == "no hanging transactions\n"
    run("txn", "abort", "h1-open")


def test_find_hanging_for_the_partitions_of_one_leader(
    run: Run, hung: Callable[..., int], cluster: Cluster
) -> None:
    start = hung("h2")
    leader = cluster.leader("h2", 0)
    found = {
        node: json.loads(run("txn", "find-hanging", "-t", "h2", "-n", str(node), "--json")) for node in (1, 2)
    }
    assert [len(found[node]["hanging"]) for node in (leader, 3 - leader)] == [1, 0]
    assert found[3 - leader]["unknown"] == []
    run("txn", "abort", "--partition", "h2/0", "--start-offset", str(start))


def test_it_asks_each_leader_once_for_all_partitions(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("topic", "create", "h3:8")
    asked: list[tuple[int, str]] = []
    ask = Cluster.ask_node
    monkeypatch.setattr(
        Cluster,
        "ask_node",
        lambda self, node, api, *rest: asked.append((node, api)) or ask(self, node, api, *rest),
    )
    assert find_hanging(cluster, ["h3"]).hanging == []
    assert sorted(asked) == [(1, "describe_producers"), (2, "describe_producers")]


def test_no_verdict_while_a_coordinator_is_away(
    cluster: Cluster, run: Run, hung: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = hung("h4")
    monkeypatch.setattr(hanging, "_coordinators", lambda cluster: {0: (1, 4), 1: None})
    found = find_hanging(cluster, ["h4"])
    assert found.hanging == []
    (sentence,) = found.unknown
    assert sentence.startswith(f"h4-0@{start}: producer ")
    assert sentence.endswith(" may hang: a coordinator is unavailable")
    run("txn", "abort", "--partition", "h4/0", "--start-offset", str(start))


def test_a_topic_that_does_not_exist(refused: Callable[..., tuple[int, str]]) -> None:
    assert refused("txn", "find-hanging", "-t", "h5") == (1, "Error: there is no topic h5\n")


def test_making_a_transaction_hang_restores_the_setting(
    cluster: Cluster, run: Run, hung: Callable[..., int]
) -> None:
    start = hung("h6")
    (setting,) = [each for each in describe_configs(cluster, BROKER, "1") if each.name == VERIFICATION]
    assert (setting.value, setting.source) == ("true", "DEFAULT_CONFIG")
    assert f"h6-0@{start}" in run("txn", "find-hanging", "-t", "h6")
    run("txn", "abort", "--partition", "h6/0", "--start-offset", str(start))


def test_a_dry_run_shows_what_each_marker_reveals_and_writes_nothing(
    run: Run, hung: Callable[..., int]
) -> None:
    start = hung("h7", *"cdefgh")
    run("produce", "h7", "plain")
    run("produce", "h7", "committed", "-x", "h7-other")
    run("produce", "h7", "aborted", "-x", "h7-other", "--abort")
    where = ("--partition", "h7/0", "--start-offset", str(start), "--dry-run")
    planned = run("txn", "commit", *where)
    assert planned == run("txn", "abort", *where)
    assert [line.split("epoch")[-1] for line in planned.splitlines()] == [
        " 0 has 6 records, at offsets 2 to 7",
        *(f"  h7-0@{2 + number}  -  {value}" for number, value in enumerate("cdefg")),
        "  and 1 more",
        "commit: read_committed consumers get 6 records of it and 2 records of others, up to offset 13",
        "abort: they get 2 records of others, up to offset 13, and never its 6 records",
    ]
    view = json.loads(run("txn", "commit", *where, "--json"))
    assert (view["records"], view["readable_if_committed"], view["readable_of_others"]) == (6, 6, 2)
    assert [each["value"] for each in view["sample"]] == list("cdefg")
    assert [each["value"] for each in objects(run("consume", "h7", "--json"))] == ["a", "b"]
    assert run("txn", "commit", *where[:-1]).endswith(f"at offset {start} is committed\n")
    assert [each["value"] for each in objects(run("consume", "h7", "--json"))] == [
        *"abcdefgh",
        "plain",
        "committed",
    ]


def test_a_dry_run_names_the_transactions_before_and_behind(run: Run, hung: Callable[..., int]) -> None:
    first = hung("h8", "c")
    run("txn", "hang", "h8-open", "h8", "d")
    run("produce", "h8", "e")
    planned = run("txn", "abort", "--partition", "h8/0", "--start-offset", str(first), "--dry-run")
    assert (
        "commit: read_committed consumers get 1 record of it and 0 records of others, up to offset 3\n"
        in planned
    )
    assert "\nthere they stop at the open transaction of producer " in planned
    behind = run("txn", "abort", "--partition", "h8/0", "--start-offset", "3", "--dry-run")
    assert "either marker: read_committed consumers still stop at 2, where" in behind
    assert "it does not hang: h8-open is Ongoing at its coordinator, node " in behind
    run("txn", "abort", "--partition", "h8/0", "--start-offset", str(first))
    run("txn", "abort", "h8-open")


def test_writing_a_marker_warns_if_the_coordinator_still_has_the_transaction(run: Run) -> None:
    run("topic", "create", "h11")
    run("txn", "hang", "h11", "h11")
    done = json.loads(run("txn", "commit", "--partition", "h11/0", "--start-offset", "0", "--json"))
    assert done["outcome"] == "committed"
    (warning,) = done["warnings"]
    assert warning.startswith("it does not hang: h11 is Ongoing at its coordinator, node ")
    run("txn", "abort", "h11")


def test_a_marker_is_written_while_a_coordinator_is_away(
    run: Run, hung: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = hung("h12")

    def away(*asked: object) -> list[Transaction]:
        raise Unreachable("node 2 is not running")

    monkeypatch.setattr(txn_ends, "list_transactions", away)
    assert run("txn", "abort", "--partition", "h12/0", "--start-offset", str(start)).splitlines()[1:] == [
        "could not determine whether it hangs: node 2 is not running"
    ]


def test_incomplete_options_are_refused(refused: Callable[..., tuple[int, str]]) -> None:
    assert refused("txn", "commit")[0] == 2
    assert refused("txn", "abort", "etl", "--dry-run")[0] == 2
    assert refused("txn", "abort", "etl", "--partition", "h9/0", "--start-offset", "1")[0] == 2


def test_a_node_that_is_away_is_named(cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("topic", "create", "h10:20")
    ask = Cluster.ask_node

    def away(self: Cluster, node: int, *rest: Any) -> Any:
        if node == 2:
            raise Unreachable("node 2 is not running")
        return ask(self, node, *rest)

    monkeypatch.setattr(Cluster, "ask_node", away)
    found = find_hanging(cluster, ["h10"])
    (sentence,) = found.unknown
    assert sentence.endswith(" and 5 more could not be queried: node 2 is not running")
    assert len(sentence.partition(" and ")[0].split()) == 5
