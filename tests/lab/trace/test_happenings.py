"""Kills, elections and hits of rules in a timeline, and transactions that no coordinator will end."""

from __future__ import annotations

from typing import Any

import pytest

from broker.injection.happenings import HAPPENINGS_KEPT, Happening, Happenings
from broker.replicas.partition import Partition
from lab.control.wiring import control_of
from lab.faults import parse_rule
from lab.trace.elections import ElectionWatcher
from lab.trace.reading import timeline, transactions
from protocol.batch import build_batch
from protocol.errors import ErrorCode
from tests.lab.trace.conftest import StartTraced, TracedBroker
from tests.support.turns import until


async def told(broker: TracedBroker, transactional_id: str) -> tuple[dict[str, Any], str]:
    found = await timeline(broker.cluster.running_nodes(), transactional_id, broker.trace)
    return found.to_json(), found.to_text()


async def transact(broker: TracedBroker, transactional_id: str) -> None:
    async with broker.producer(transactional_id) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"value", partition=0)
        await producer.commit_transaction()


async def test_the_rules_that_were_hit_stand_where_they_were(broker: TracedBroker) -> None:
    control = control_of(broker.cluster)
    rule = control.faults.add(parse_rule("EndTxn transactional_id=mine -> delay 1ms"))
    control.faults.add(parse_rule("txn.marker -> delay 1ms"))
    await transact(broker, "mine")
    await transact(broker, "other")
    shown, text = await told(broker, "mine")
    kinds = [event["kind"] for event in shown["events"]]
    assert [kind for kind in kinds if kind != "rule"] == [
        "state",
        "state",
        "batch",
        "state",
        "marker",
        "state",
    ]
    hits = [index for index, kind in enumerate(kinds) if kind == "rule"]
    states = [index for index, kind in enumerate(kinds) if kind == "state"]
    assert hits[0] < states[2] < kinds.index("marker")
    assert hits[1] < kinds.index("marker")
    assert len(hits) == 2
    expected = f"rule {rule.id} is hit by EndTxn: EndTxn transactional_id=mine -> delay 1ms"
    assert next(event["text"] for event in shown["events"] if event["kind"] == "rule") == expected
    assert expected in text
    assert shown["hanging"] == []
    shown, _ = await told(broker, "other")
    assert [event["text"].split(":")[0] for event in shown["events"] if event["kind"] == "rule"] == [
        "rule 2 is hit by txn.marker"
    ]


async def test_kills_and_elections_stand_where_they_were(start_traced: StartTraced) -> None:
    broker = await start_traced("--nodes", "2", "--topic", "orders:1")
    cluster = broker.cluster
    ElectionWatcher(cluster.metadata, cluster.injection.happenings, cluster.clock)
    control = control_of(cluster)
    async with broker.producer("mine") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"value", partition=0)
        await cluster.metadata.replication_control.move_leader(
            "orders", 0, 3 - cluster.metadata.topics["orders"].partitions[0].leader
        )
        cluster.pause_node(2)
        cluster.resume_node(2)
        await producer.commit_transaction()
    await until(lambda: transactions(cluster.running_nodes())[0]["state"] == "CompleteCommit")
    await cluster.clock.advance(10)
    cluster.kill_node(2)  # after the end of the transaction, so not in its timeline
    await cluster.settled()
    shown, text = await told(broker, "mine")
    moved = [event for event in shown["events"] if event["kind"] in ("election", "node")]
    assert [event["kind"] for event in moved] == ["election", "node", "node"]
    leader = moved[0]["node"]
    assert moved[0]["text"] == f"node {leader} leads orders-0 in leader epoch 1"
    assert "node 2 is paused" in text
    assert "node 2 is killed" not in text
    assert control.faults.list() == ()


async def test_a_transaction_that_no_coordinator_knows_is_hanging(broker: TracedBroker) -> None:
    await transact(broker, "mine")
    [node] = broker.cluster.running_nodes()
    [txn] = (txn for shard in node.transactions.memory().values() for txn in shard.values())
    partition = node.replicas.leader("orders", 1)
    assert isinstance(partition, Partition)
    plain = build_batch([(node.clock.now_ms(), None, b"before it")])
    assert partition.append_internal(plain).error is ErrorCode.none
    before = partition.log_end_offset
    assert before != txn.producer_id  # otherwise the test could not tell them apart
    records = build_batch(
        [(node.clock.now_ms(), None, b"late")],
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        base_sequence=0,
        transactional=True,
    )
    assert partition.append_internal(records, verified=True).error is ErrorCode.none
    shown, text = await told(broker, "mine")
    assert shown["hanging"] == [
        {
            "topic": "orders",
            "partition": 1,
            "node": 1,
            "offset": before,
            "producer_id": txn.producer_id,
            "producer_epoch": txn.epoch,
        }
    ]
    assert f"orders-1: HANGING from offset {before}: " in text
    assert [event["partition"] for event in shown["events"] if event["kind"] == "batch"] == [0, 1]


async def test_an_open_transaction_is_not_hanging(broker: TracedBroker) -> None:
    async with broker.producer("mine") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"value", partition=0)
        shown, text = await told(broker, "mine")
        await producer.abort_transaction()
    assert shown["hanging"] == []
    assert "HANGING" not in text


@pytest.mark.parametrize(
    ("ids", "partitions", "concerns"),
    [
        ((), (), True),
        (("mine",), (), True),
        (("other",), (("orders", 0),), False),
        ((), (("orders", 0),), True),
    ],
)
def test_what_concerns_an_id(
    ids: tuple[str, ...], partitions: tuple[tuple[str, int], ...], concerns: bool
) -> None:
    happening = Happening(0, "rule", 1, "", frozenset(ids), frozenset(partitions))
    assert happening.concerns("mine", frozenset({("orders", 0)})) is concerns
    assert not Happening(0, "rule", 1, "", partitions=frozenset({("orders", 1)})).concerns(
        "mine", frozenset()
    )


def test_only_the_newest_are_kept() -> None:
    happenings = Happenings()
    for number in range(HAPPENINGS_KEPT + 1):
        happenings.note(Happening(number, "node", 1, ""))
    assert len(list(happenings)) == HAPPENINGS_KEPT
    assert next(iter(happenings)).time_ms == 1
