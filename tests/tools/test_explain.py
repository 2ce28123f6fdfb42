from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import pytest

import odradek as package
from lab.explain.explanation import Cause, Explanation
from tests.support.deadlines import HANG_S
from tests.tools.conftest import Run
from tools.client.cluster import Cluster
from tools.client.errors import KafkaError
from tools.client.producing import Producer, now_ms
from tools.client.transactions import Transaction
from tools.control import FUTURE_MS, Ages
from tools.explain import looking
from tools.explain.asking import Asking
from tools.explain.by_control import Control, folded_refusals
from tools.explain.explaining import Explaining
from tools.explain.looking import transaction_facts

T = TypeVar("T")
HELD_S = 0.1
"""Timeout in seconds of a command for a response that a fault rule holds."""


@pytest.fixture
def control(cluster_of_two: package.Broker) -> Iterator[dict[str, str]]:
    with cluster_of_two.trace:
        yield {"ODRADEK_CONTROL": cluster_of_two.control_url}


@pytest.fixture
def without_explanations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the explain operation of the control port unavailable, as with a proxy or an older broker."""
    monkeypatch.setattr(Control, "explanations", lambda *_: None)


def test_the_transaction_that_holds_readers_is_named(run: Run) -> None:
    run("topic", "create", "e1")
    run("produce", "e1", *"ab")
    assert run("explain", "e1/0").startswith(
        "Nothing is wrong with e1-0: readers with read_committed read to its end, offset 2.\n"
    )
    run("txn", "hang", "e1-open", "e1", "c", "--timeout-ms", "50000")
    run("produce", "e1", *"de")
    lines = run("explain", "e1/0").splitlines()
    assert lines[0].startswith("Readers with read_committed of e1-0 stop at offset 2: e1-open (producer ")
    assert "epoch 0) has an open transaction, for " in lines[0]
    assert "; it times out in " in lines[0]
    assert lines[1:3] == [
        "  The client ends it, or: odradek txn abort e1-open",
        "  Hidden from them: 3 offsets, up to the end at 5.",
    ]
    run("txn", "hang", "e1-other", "e1", "f")
    assert "Another transaction begins at offset 5: e1-other (producer " in run("explain", "e1/0")
    run("txn", "abort", "e1-open")
    run("txn", "abort", "e1-other")


def test_a_hanging_transaction_is_named_by_topic_and_by_id(
    run: Run, control: dict[str, str], without_explanations: None
) -> None:
    run("topic", "create", "e12")
    run("txn", "hang", "e12-id", "e12", "a", "--for-good")
    abort = "  Abort it: odradek txn abort --partition e12/0 --start-offset 0"
    for where in ({}, control):
        for question in (["e12"], ["--id", "e12-id"]):
            lines = run("explain", *question, **where).splitlines()
            assert lines[0].startswith(
                "Readers with read_committed of e12-0 stop at offset 0: the transaction"
            )
            assert "hangs: no coordinator will end it." in lines[0]
            assert lines[1] == abort
    run("txn", "abort", "--partition", "e12/0", "--start-offset", "0")


def test_a_transaction_is_as_old_as_the_broker_s_clock_says(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with package.Broker(topics=["orders:1"]) as broker:
        broker.clock.advance("1h")
        where = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "ODRADEK_CONTROL": broker.control_url}
        run("txn", "hang", "e8", "orders", "--timeout-ms", "600000", **where)
        broker.clock.advance("5m")
        broker.clock.advance("3h", only="retention")
        expected = "has an open transaction, for 5 min"
        for explanations in (Control.explanations, lambda *_: None):
            monkeypatch.setattr(Control, "explanations", explanations)
            for command in ("explain orders/0", "explain --id e8"):
                told = run(*command.split(), **where)
                assert (expected in told, "times out in 4 min" in told) == (True, True), told
        assert "for 5 min" in (described := run("txn", "describe", "e8", **where))
        assert "times out in 4 min" in described
        assert "5 min" in run("txn", "list", **where)
        [known] = broker.transactions
        assert known.open_ms is not None
        assert 300_000 <= known.open_ms < 600_000


def test_a_held_marker_is_named_by_its_rule(
    run: Run, cluster_of_two: package.Broker, control: dict[str, str], without_explanations: None
) -> None:
    run("topic", "create", "e13")
    with cluster_of_two.faults.add("txn.marker topic=e13 -> hold") as rule:
        run("produce", "e13", "a", "-x", "e13-id")
        rule.wait()
        of_rule = f"ule {rule.id} (txn.marker topic=e13 -> hold) holds the COMMIT marker of e13-id"
        for question in (["e13/0"], ["--id", "e13-id"]):
            lines = run("explain", *question, **control).splitlines()
            assert of_rule in lines[0], lines
            assert lines[1] == f"  Release it: odradek fault release {rule.id}"
            lines = run("explain", *question).splitlines()
            assert "the transaction is decided" in lines[0] or "is on the way" in lines[0], lines
            assert "set ODRADEK_CONTROL" in lines[1]


def test_the_clock_and_the_trace_of_another_broker_do_not_count(
    run: Run, control: dict[str, str], cluster: Cluster
) -> None:
    run("topic", "create", "e9", "-c", "max.message.bytes=1000")
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        Producer(cluster, idempotent=False).send("e9", 0, [(0, None, bytes(5000))])
    with package.Broker(topics=["e9:1"]) as other:
        assert "Refused" not in run(
            "explain", "e9/0", **{**control, "KAFKA_BOOTSTRAP_SERVERS": other.bootstrap_servers}
        )
    # The broker behind ODRADEK_CONTROL has ended, and the command asks another cluster.
    run("explain", "e9/0", ODRADEK_CONTROL=other.control_url)


def test_markers_and_aborted_records_at_the_end_are_named(run: Run) -> None:
    run("topic", "create", "e2")
    assert run("explain", "e2/0").startswith("e2-0 is empty: no record has been written")
    run("produce", "e2", "a", "-x", "e2", "--abort")
    told = run("explain", "e2/0")
    assert "but its log has no record for readers with read_committed: 1 aborted record and 1 marker." in told
    run("produce", "e2", "a", "-x", "e2")
    assert "Nothing is wrong with e2-0: its last offset, 3, is a marker." in run("explain", "e2/0")


def test_without_a_partition_each_of_the_topic_is_explained(
    run: Run, refused: Callable[..., tuple[int, str]], cluster_of_two: package.Broker
) -> None:
    run("topic", "create", "e11:3")
    assert run("explain", "e11") == "Nothing is wrong with the 3 partitions of e11.\n"
    assert run("explain", "e11-1") == run("explain", "e11/1")
    run("txn", "hang", "e11-open", "e11", "c", "-p", "1")
    told = run("explain", "e11")
    assert told.startswith("Readers with read_committed of e11-1 stop at offset 0: ")
    assert told.endswith("\n\n2 more partitions of e11: nothing is wrong.\n")
    as_json = [(each["subject"], each["cause"]) for each in json.loads(run("explain", "e11", "--json"))]
    assert as_json == [("e11-1", "open-transaction"), ("e11-0", "empty-log"), ("e11-2", "empty-log")]
    run("txn", "abort", "e11-open")
    assert refused("explain", "none") == (1, "Error: there is no topic none\n")
    nearest = "Error: there is no topic e11x; did you mean e11?\n"
    assert refused("explain", "e11x", ODRADEK_CONTROL=cluster_of_two.control_url) == (1, nearest)
    for_one = run("explain", "e11-2", ODRADEK_CONTROL=cluster_of_two.control_url)
    assert for_one.startswith("e11-2 is empty")
    assert refused("explain", "e11/3") == (1, "Error: e11 has no partition 3: the last is 2\n")
    assert refused("consume", "e11/3") == (1, "Error: e11 has no partition 3: the last is 2\n")


def test_the_lag_of_a_group_is_explained(run: Run) -> None:
    run("topic", "create", "e3")
    run("produce", "e3", "a")
    run("consume", "e3", "-g", "e3-readers")
    told = run("explain", "--group", "e3-readers")
    assert told.startswith("Group e3-readers is empty: it has no members, so its offsets do not change.\n")
    assert "e3-0: no lag." in told
    run("produce", "e3", "b", "c", "-x", "e3-x")
    run("produce", "e3", "d", "-x", "e3-x", "--abort")
    told = run("explain", "--group", "e3-readers")
    assert (
        "e3-0: 5 offsets behind the last stable offset 6: 2 records, 1 aborted record and 2 markers." in told
    )
    run("txn", "hang", "e3-open", "e3", "e")
    told = run("explain", "--group", "e3-readers")
    assert "Readers with read_committed of e3-0 stop at offset 6: e3-open (producer " in told
    run("txn", "abort", "e3-open")
    assert run("explain", "--group", "e3-none").startswith("No coordinator knows group e3-none: ")


def test_the_history_of_an_id_and_its_refused_requests(
    run: Run, control: dict[str, str], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("topic", "create", "e4")
    run("produce", "e4", "a", "-x", "e4-id")
    lines = run("explain", "--id", "e4-id").splitlines()
    assert lines[0].startswith("Nothing is wrong with e4-id (producer ")
    assert "e4-id is CompleteCommit at its coordinator, node" in lines[1]
    assert [line.split()[1] for line in lines[2:-1]] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
    ]
    assert lines[-1].endswith("set ODRADEK_CONTROL.")
    first = Producer(cluster, "e4-id")
    first.init()
    first.send("e4", 0, [(0, None, b"b")])
    Producer(cluster, "e4-id").init()
    for _ in range(2):
        with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
            first.send("e4", 0, [(0, None, b"c")])
    for explanations in (Control.explanations, lambda *_: None):
        monkeypatch.setattr(Control, "explanations", explanations)
        told = run("explain", "--id", "e4-id", **control)
        assert "is fenced by the InitProducerId of a newer producer" in told
        assert "(epoch 1 is fenced by the InitProducerId of a newer producer or an administrator)" in told
        assert "INVALID_PRODUCER_EPOCH, 2 times, the newest" in told
        assert "the batch has an older epoch than the partition has seen: the producer is fenced" in told


def test_a_refused_batch_is_named_with_the_reason(
    run: Run, control: dict[str, str], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("topic", "create", "e6", "-c", "max.message.bytes=1000")
    for _ in range(3):
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            Producer(cluster, idempotent=False).send("e6", 0, [(0, None, bytes(5000))])
    for explanations in (Control.explanations, lambda *_: None):
        monkeypatch.setattr(Control, "explanations", explanations)
        first = run("explain", "e6/0", **control).splitlines()[0]
        assert "to e6-0: MESSAGE_TOO_LARGE, 3 times, the newest" in first
        assert "(the batch is larger than max.message.bytes)" in first
    assert "Refused" not in run("explain", "e6/0")


def test_without_a_trace_it_says_how_to_enable_one(run: Run, cluster_of_two: package.Broker) -> None:
    run("topic", "create", "e5")
    run("produce", "e5", "a", "-x", "e5-id")
    cluster_of_two.trace.stop()
    assert "The trace is off: " in run("explain", "--id", "e5-id", ODRADEK_CONTROL=cluster_of_two.control_url)


def test_without_a_name_all_problems_are_reported(
    run: Run, refused: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.explain.cluster.YOUNG_MS", 0)
    run("topic", "create", "e7")
    run("txn", "hang", "e7-open", "e7", "a")
    assert "Readers with read_committed of e7-0 stop at offset 0: e7-open (producer " in run("explain")
    run("txn", "abort", "e7-open")
    assert "e7-0" not in run("explain")
    assert "give a TOPIC or TOPIC/PARTITION" in refused("explain", "orders", "--group", "readers")[1]
    assert "there is no topic none" in refused("explain", "none/0")[1]
    assert run("explain", "--id", "e-none").startswith("No coordinator knows e-none: ")


# -- clusters that respond with errors, change meanwhile, or do not respond -----------------------------------------


class Impatient(Asking):
    """`Asking` with a short timeout for the responses to one API."""

    def __init__(self, cluster: Cluster, api: str) -> None:
        super().__init__(cluster, HANG_S)
        self._api = api

    def each(self, what: str, questions: Mapping[int, Callable[[int], T]]) -> dict[int, T]:
        if what != self._api:
            return super().each(what, questions)
        with self.cluster.within(HELD_S):
            return super().each(what, questions)


def explained(cluster: Cluster, held: str = "") -> Explaining:
    found = Explaining(cluster)
    found._asking = Impatient(cluster, held)
    return found


def causes(found: list[Explanation]) -> list[Cause]:
    return [each.cause for each in found]


def test_errors_of_a_coordinator_are_facts_and_not_asked_again(
    cluster: Cluster, cluster_of_two: package.Broker
) -> None:
    refused = "FindCoordinator -> error COORDINATOR_NOT_AVAILABLE"
    with cluster_of_two.faults.add(refused) as rule:
        assert causes(explained(cluster).group("e14")) == [Cause.COORDINATOR_NOT_AVAILABLE]
        assert causes(explained(cluster).transactional_id("e14")) == [Cause.COORDINATOR_NOT_AVAILABLE]
        assert rule.hits == 2
    with cluster_of_two.faults.add("Describe* -> error COORDINATOR_LOAD_IN_PROGRESS"):
        assert causes(explained(cluster).group("e14")) == [Cause.COORDINATOR_LOADING]
        assert causes(explained(cluster).transactional_id("e14")) == [Cause.COORDINATOR_LOADING]


def test_a_transaction_that_ends_or_begins_meanwhile_is_not_a_cause(
    run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that ends or begins between the queries to the leaders and those to the coordinators is not shown as a
    cause."""
    run("topic", "create", "e16:2")
    run("txn", "hang", "e16-ends", "e16", "a")
    run("txn", "hang", "e16-begins", "e16", "a", "-p", "1")
    run("txn", "abort", "e16-begins")
    asked = looking.owners_of

    def owners_of(*arguments: object) -> looking.Owners:
        run("txn", "abort", "e16-ends")
        found = asked(*arguments)  # type: ignore[arg-type]
        run("txn", "hang", "e16-begins", "e16", "b", "-p", "1")
        run("txn", "hang", "e16-ends", "e16", "b")
        monkeypatch.setattr(looking, "owners_of", asked)
        return found

    monkeypatch.setattr(looking, "owners_of", owners_of)
    monkeypatch.setattr(looking, "LOOKS", 1)
    assert causes(explained(cluster).topic("e16", None)) == [Cause.NOTHING, Cause.NOTHING]
    assert causes(explained(cluster).topic("e16", None)) == [Cause.OPEN_TRANSACTION, Cause.OPEN_TRANSACTION]
    run("txn", "abort", "e16-begins")
    run("txn", "abort", "e16-ends")


def test_a_node_that_does_not_respond_is_asked_once(
    run: Run, cluster: Cluster, cluster_of_two: package.Broker
) -> None:
    run("topic", "create", "e15:2")
    run("produce", "e15", "a", "b", "c", "d", "-p", "0")
    with cluster_of_two.faults.add("Fetch -> hold") as rule:
        found = explained(cluster, "Fetch").topic("e15", 0)
        assert causes(found) == [Cause.UNKNOWN]
        assert found[0].lines[0].startswith("As far as could be asked, nothing is wrong with e15-0")
        assert "did not respond to Fetch within" in found[0].lines[-1]
        assert rule.hits == 1
    with cluster_of_two.faults.add("DescribeProducers -> hold"):
        found = explained(cluster, "DescribeProducers").topic("e15", None)
        assert causes(found) == [Cause.LEADER_AWAY, Cause.LEADER_AWAY]
        assert any("did not respond to DescribeProducers within" in line for line in found[0].lines)


def test_a_transaction_that_begins_a_little_ahead_of_this_clock_has_just_begun(cluster: Cluster) -> None:
    def open_ms(start_ms: int) -> int | None:
        at = Transaction("i", "Ongoing", 7, 0, 2, 1000, start_ms, (("t", 0),))
        return transaction_facts(at, Ages(cluster, {})).open_ms

    assert open_ms(now_ms() + FUTURE_MS // 2) == 0
    ahead = open_ms(now_ms() + 2 * FUTURE_MS)
    assert ahead is not None
    assert ahead < -FUTURE_MS
    at = Transaction("i", "Ongoing", 7, 0, 2, 1000, 5, (("t", 0),))
    assert (
        Ages(cluster, {("i", 5): -298_000}).future(at)
        == "4 min 58 s in the future of the coordinator's clock"
    )
    assert Ages(cluster, {("i", 5): 298_000}).future(at) == ""
    decided = Transaction("i", "PrepareCommit", 7, 0, 2, 1000, 0, (("t", 0),))
    assert transaction_facts(decided, Ages(cluster, {})).open_ms is None


def test_refusals_of_a_trace_are_folded() -> None:
    def entry(error: str, arrived_ms: int) -> dict[str, object]:
        topics = [{"name": "t", "partitions": [{"index": 3, "error": error}, {"index": 4, "error": "NONE"}]}]
        return {
            "api": "Produce",
            "node": 1,
            "arrived_ms": arrived_ms,
            "answer": {"responses": topics},
            "line": str(arrived_ms),
        }

    found = folded_refusals(
        [
            entry("NOT_ENOUGH_REPLICAS", 1),
            entry("NONE", 2),
            entry("CORRUPT_MESSAGE", 3),
            entry("NOT_ENOUGH_REPLICAS", 4),
        ]
    )
    assert [(each.error, each.count, each.line) for each in found] == [
        ("NOT_ENOUGH_REPLICAS", 2, "4"),
        ("CORRUPT_MESSAGE", 1, "3"),
    ]
    assert found[0].partitions == ("t-3",)
