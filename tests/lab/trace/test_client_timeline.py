"""The timeline of a real client's commits and aborts has the right offsets, with and without a running trace."""

from __future__ import annotations

import re
from typing import Any

import aiokafka
import pytest

from lab.trace.reading import UnknownTransaction, timeline, transactions
from lab.trace.timeline_view import Timeline
from tests.lab.trace.conftest import TracedBroker

INPUT = aiokafka.TopicPartition("orders", 1)


async def commit_and_abort(broker: TracedBroker) -> None:
    async with broker.producer("orders-tx") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"one", partition=0)
        await producer.send_and_wait("orders", b"two", partition=0)
        await producer.send_offsets_to_transaction({INPUT: 5}, "readers")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"three", partition=0)
        await producer.abort_transaction()


async def life_of(broker: TracedBroker, transactional_id: str, *, traced: bool = False) -> Timeline:
    nodes = broker.cluster.running_nodes()
    return await timeline(nodes, transactional_id, broker.trace if traced else None)


def brief(told: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Each event as a short tuple. Partition numbers of internal topics are left out."""
    found: list[tuple[Any, ...]] = []
    for event in told["events"]:
        match event["kind"]:
            case "state":
                topics = [re.sub(r"^(__\w+)-\d+$", r"\1", place) for place in event["joined"]]
                found.append((event["transaction"], event["state"], *topics))
            case "batch" if event["offsets"]:
                (offset,) = event["offsets"]
                found.append((event["transaction"], "offsets", offset["group_id"], offset["offset"]))
            case "batch":
                place = f"{event['topic']}-{event['partition']}"
                found.append((event["transaction"], "batch", place, event["offset"], event["last_offset"]))
            case "marker":
                found.append((event["transaction"], event["marker"], event["topic"], event["offset"]))
            case "exchange":
                found.append((event["transaction"], event["api"], event["outcome"]))
    return found


LIFE = [
    (None, "Empty"),
    (1, "Ongoing", "orders-0"),
    (1, "batch", "orders-0", 0, 0),
    (1, "batch", "orders-0", 1, 1),
    (1, "Ongoing", "__consumer_offsets"),
    (1, "offsets", "readers", 5),
    (1, "PrepareCommit"),
    (1, "COMMIT", "__consumer_offsets", 1),
    (1, "COMMIT", "orders", 2),
    (1, "CompleteCommit"),
    (2, "Ongoing", "orders-0"),
    (2, "batch", "orders-0", 3, 3),
    (2, "PrepareAbort"),
    (2, "ABORT", "orders", 4),
    (2, "CompleteAbort"),
]


# Within one millisecond the order of a batch and of a partition that joins the transaction is unknown.
CHAINS = [[each for each in LIFE if each[1] != left_out] for left_out in ("batch", "offsets")]
CHAINS[1] = [each for each in CHAINS[1] if "__consumer_offsets" not in each]


def check_life(told: list[tuple[Any, ...]]) -> None:
    """Check that the timeline has exactly the events of ``LIFE``, with each chain of events in its order."""
    assert sorted(map(str, told)) == sorted(map(str, LIFE))
    for chain in CHAINS:
        assert [each for each in told if each in chain] == chain


async def test_a_commit_and_an_abort_are_told_from_the_logs_alone(broker: TracedBroker) -> None:
    await commit_and_abort(broker)
    told = (await life_of(broker, "orders-tx")).to_json()
    check_life(brief(told))
    first, second = told["transactions"]
    assert (first["verdict"], first["records"]) == ("committed", 2)
    assert (second["verdict"], second["records"], second["partitions"]) == ("aborted", 1, ["orders-0"])
    assert all(each["is_whole"] for each in told["scanned"])


async def test_with_the_trace_on_each_request_stands_before_what_came_of_it(broker: TracedBroker) -> None:
    broker.trace.start()
    await commit_and_abort(broker)
    told = brief((await life_of(broker, "orders-tx", traced=True)).to_json())
    exchanges = {"FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce"}
    exchanges |= {"TxnOffsetCommit", "EndTxn"}
    # For requests in the trace the order is known too.
    assert [each for each in told if each[1] not in exchanges] == LIFE

    def follows(api: str, what: tuple[Any, ...]) -> None:
        assert (what[0], api, "answered") in (told[told.index(what) - 1], told[told.index(what) - 2]), api

    follows("InitProducerId", (None, "Empty"))
    follows("AddPartitionsToTxn", (1, "Ongoing", "orders-0"))
    follows("Produce", (1, "batch", "orders-0", 0, 0))
    follows("Produce", (1, "batch", "orders-0", 1, 1))
    follows("AddOffsetsToTxn", (1, "Ongoing", "__consumer_offsets"))
    follows("TxnOffsetCommit", (1, "offsets", "readers", 5))
    follows("EndTxn", (1, "PrepareCommit"))
    follows("EndTxn", (2, "PrepareAbort"))


async def test_an_open_transaction_is_told_as_open(broker: TracedBroker) -> None:
    async with broker.producer("orders-tx") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"one", partition=1)
        told = (await life_of(broker, "orders-tx")).to_json()
        assert [each["verdict"] for each in told["transactions"]] == ["open"]
        assert brief(told) == [(None, "Empty"), (1, "Ongoing", "orders-1"), (1, "batch", "orders-1", 0, 0)]
        (known,) = transactions(broker.cluster.running_nodes())
        assert (known["transactional_id"], known["state"]) == ("orders-tx", "Ongoing")
        assert known["partitions"] == ["orders-1"]
        assert known["start_ms"] is not None
        await producer.abort_transaction()


async def test_an_unused_id_is_unknown(broker: TracedBroker) -> None:
    with pytest.raises(UnknownTransaction, match="unknown-tx"):
        await life_of(broker, "unknown-tx")
    await commit_and_abort(broker)
    with pytest.raises(UnknownTransaction, match="unknown-tx"):
        await life_of(broker, "unknown-tx")
    with pytest.raises(UnknownTransaction, match=r"'order-tx'; did you mean 'orders-tx'\?$"):
        await life_of(broker, "order-tx")
    with pytest.raises(UnknownTransaction, match=r"'orders-tx'$"):
        await timeline([], "orders-tx")


async def test_ids_do_not_mix(broker: TracedBroker) -> None:
    await commit_and_abort(broker)
    async with broker.producer("orders-tx-2") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"other", partition=0)
        await producer.commit_transaction()
    check_life(brief((await life_of(broker, "orders-tx")).to_json()))
    other = brief((await life_of(broker, "orders-tx-2")).to_json())
    assert [each for each in other if each[1] in ("batch", "COMMIT")] == [
        (1, "batch", "orders-0", 5, 5),
        (1, "COMMIT", "orders", 6),
    ]
