from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import odradek as package
from protocol.messages.describe_producers import ProducerState
from tests.tools.conftest import Run
from tools.client.cluster import Cluster
from tools.client.errors import KafkaError
from tools.client.producing import Producer
from tools.client.transactions import Transaction
from tools.control import Ages
from tools.explain.partitions import _its_end


@pytest.fixture
def control(cluster_of_two: package.Broker) -> Iterator[dict[str, str]]:
    with cluster_of_two.trace:
        yield {"ODRADEK_CONTROL": cluster_of_two.control_url}


def test_the_transaction_that_holds_readers_is_named(run: Run) -> None:
    run("topic", "create", "e1")
    run("produce", "e1", *"ab")
    assert "Readers with read_committed read to the end" in run("explain", "e1/0")
    run("txn", "hang", "e1-open", "e1", "c", "--timeout-ms", "50000")
    run("produce", "e1", *"de")
    told = run("explain", "e1/0")
    assert "Readers with read_committed stop at 2: producer " in told
    assert (
        "of e1-open, epoch 0, has an open transaction that begins there, with 3 offsets at or behind it."
        in told
    )
    assert "The client ends it, or: odradek txn abort e1-open" in told
    run("txn", "hang", "e1-other", "e1", "f")
    assert "Another open transaction, of producer" in run("explain", "e1/0")
    run("txn", "abort", "e1-open")
    run("txn", "abort", "e1-other")


def test_a_transaction_is_as_old_as_the_broker_s_clock_says(run: Run) -> None:
    with package.Broker(topics=["orders:1"]) as broker:
        broker.clock.advance("1h")
        where = {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "ODRADEK_CONTROL": broker.control_url}
        run("txn", "hang", "e8", "orders", "--timeout-ms", "600000", **where)
        broker.clock.advance("5m")
        broker.clock.advance("3h", only="retention")
        expected = "open for 5 min"
        for command in ("explain orders/0", "explain --id e8"):
            told = run(*command.split(), **where)
            assert (expected in told, "times out in 4 min" in told) == (True, True), told
        assert "for 5 min" in (described := run("txn", "describe", "e8", **where))
        assert "times out in 4 min" in described
        assert "5 min" in run("txn", "list", **where)
        [known] = broker.transactions
        assert known.open_ms is not None
        assert 300_000 <= known.open_ms < 600_000


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
    # The broker of the variable has ended: the cluster that was named is another.
    run("explain", "e9/0", ODRADEK_CONTROL=other.control_url)


def test_a_log_without_records_for_readers_is_named(run: Run) -> None:
    run("topic", "create", "e10")
    run("produce", "e10", "a", "-x", "e10", "--abort")
    assert "The log holds no record for them, but markers or aborted records." in run("explain", "e10/0")


def test_markers_at_the_end_are_named(run: Run) -> None:
    run("topic", "create", "e2")
    run("produce", "e2", "a", "-x", "e2")
    assert "The last offset holds no record" in run("explain", "e2/0")


def test_without_a_partition_each_of_the_topic_is_explained(
    run: Run, refused: Callable[..., tuple[int, str]]
) -> None:
    run("topic", "create", "e11:2")
    told = run("explain", "e11")
    assert [line.split()[3] for line in told.splitlines() if "leads" in line] == ["e11-0", "e11-1"]
    assert run("explain", "e11-1") == run("explain", "e11/1")
    assert refused("explain", "none") == (1, "Error: there is no topic none\n")
    assert refused("explain", "e11/2") == (1, "Error: e11 has no partition 2: the last is 1\n")
    assert refused("consume", "e11/2") == (1, "Error: e11 has no partition 2: the last is 1\n")


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        (
            None,
            "It hangs: no coordinator knows producer 7. Abort it: odradek txn abort --partition t/0 --start-offset 5",
        ),
        (
            Transaction("i", "Empty", 7, 0, 2, 1000, None, ()),
            "It hangs: for its coordinator, node 2, i is Empty, without t-0.",
        ),
        (
            Transaction("i", "PrepareCommit", 7, 0, 2, 1000, 0, (("t", 0),)),
            "The coordinator, node 2, has decided (PrepareCommit): its marker is on the way.",
        ),
        (Transaction("i", "Ongoing", 7, 0, 2, 1000, 0, (("t", 0),)), "and is past its time-out by"),
    ],
)
def test_how_a_transaction_will_end(known: Transaction | None, sentence: str, cluster: Cluster) -> None:
    producer = ProducerState(producer_id=7, producer_epoch=0, current_txn_start_offset=5)
    assert sentence in _its_end("t", 0, producer, known, Ages(cluster))


def test_what_a_group_lags_behind(run: Run, refused: Callable[..., tuple[int, str]]) -> None:
    run("topic", "create", "e3")
    run("produce", "e3", "a")
    run("consume", "e3", "-g", "e3-readers")
    assert "e3-0: no lag." in run("explain", "--group", "e3-readers")
    run("produce", "e3", "b", "c", "-x", "e3-x")
    run("produce", "e3", "d", "-x", "e3-x", "--abort")
    told = run("explain", "--group", "e3-readers")
    assert "Group e3-readers is Empty: it has no members, so no offset moves." in told
    assert "e3-0: 5 offsets behind the last stable offset 6: 2 records, 1 aborted record, 2 markers." in told
    run("txn", "hang", "e3-open", "e3", "e")
    told = run("explain", "--group", "e3-readers")
    assert "e3-0: an open transaction keeps 1 more offset behind the last stable offset 6." in told
    assert "of e3-open" in told
    run("txn", "abort", "e3-open")
    assert refused("explain", "--group", "e3-none")[0] == 1


def test_the_history_of_an_id_and_its_refused_requests(
    run: Run, control: dict[str, str], cluster: Cluster
) -> None:
    run("topic", "create", "e4")
    run("produce", "e4", "a", "-x", "e4-id")
    told = run("explain", "--id", "e4-id")
    assert "e4-id is CompleteCommit at its coordinator, node" in told
    assert [line.split()[1] for line in told.splitlines()[1:]] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
    ]
    first = Producer(cluster, "e4-id")
    first.init()
    first.send("e4", 0, [(0, None, b"b")])
    Producer(cluster, "e4-id").init()
    with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
        first.send("e4", 0, [(0, None, b"c")])
    told = run("explain", "--id", "e4-id", **control)
    assert "InitProducerId of a producer that starts" in told
    assert "(a newer producer, or the administrator, fenced epoch" in told
    assert "INVALID_PRODUCER_EPOCH" in told
    assert "the batch has an older epoch than the partition has seen: the producer is fenced" in told


def test_a_refused_batch_is_named_with_the_reason(
    run: Run, control: dict[str, str], cluster: Cluster
) -> None:
    run("topic", "create", "e6", "-c", "max.message.bytes=1000")
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        Producer(cluster, idempotent=False).send("e6", 0, [(0, None, bytes(5000))])
    assert "(the batch is larger than max.message.bytes)" in run("explain", "e6/0", **control)
    assert "Refused" not in run("explain", "e6/0")


def test_without_a_trace_it_says_how_to_have_one(run: Run, cluster_of_two: package.Broker) -> None:
    run("topic", "create", "e5")
    run("produce", "e5", "a", "-x", "e5-id")
    cluster_of_two.trace.stop()
    assert "The trace is off." in run("explain", "--id", "e5-id", ODRADEK_CONTROL=cluster_of_two.control_url)


def test_one_question_at_a_time(refused: Callable[..., tuple[int, str]]) -> None:
    assert "give a TOPIC or TOPIC/PARTITION, a --group or an --id" in refused("explain")[1]
    assert refused("explain", "orders", "--group", "readers")[0] == 2
    assert "there is no topic none" in refused("explain", "none/0")[1]
    assert refused("explain", "--id", "e-none")[0] == 1
