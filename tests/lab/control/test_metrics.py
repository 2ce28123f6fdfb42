"""``GET /metrics`` of a cluster with load, parsed by Prometheus' own parser."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka import TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from lab.metrics.request_metrics import records_in
from protocol.batch import build_batch
from tests.lab.control.conftest import Caller, OpenControl
from tests.lab.control.test_views import produce, producing
from tests.lab.explain.staged_groups import ACCEPT, REJECT, RELEASE, ShareMember
from tools.client.cluster import Cluster

ROOT = Path(__file__).parents[3]


class Scraped:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._samples = [sample for family in self.families.values() for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float:
        """The value of the only sample with this name and these labels."""
        (found,) = [
            each.value
            for each in self._samples
            if each.name == name and labels.items() <= each.labels.items()
        ]
        return float(found)

    def total(self, name: str, **labels: str) -> float:
        return sum(
            each.value
            for each in self._samples
            if each.name == name and labels.items() <= each.labels.items()
        )


async def scrape(caller: Caller) -> Scraped:
    return Scraped(await caller.get("/metrics"))


async def test_nothing_is_counted_before_the_first_scrape(caller: Caller) -> None:
    async with producing(caller) as producer:
        await produce(producer, b"one")
        assert caller.control.cluster.calls.chain is None
        assert (await scrape(caller)).total("kafka_server_brokertopicmetrics_messagesin_total") == 0
        await produce(producer, b"two", b"three")
    scraped = await scrape(caller)
    of_orders = {"broker_id": "1", "topic": "orders"}
    assert scraped("kafka_server_brokertopicmetrics_messagesin_total", **of_orders) == 2
    assert scraped("kafka_server_brokertopicmetrics_totalproducerequests_total", **of_orders) == 2
    assert scraped("kafka_server_brokertopicmetrics_bytesin_total", **of_orders) > 100
    assert scraped("kafka_network_requestmetrics_totaltimems_count", request="Produce") == 2
    assert scraped.total("kafka_network_requestmetrics_requests_total", request="Produce") == 2
    assert scraped("kafka_network_requestmetrics_errors_total", request="Produce", error="NONE") == 2
    assert scraped("kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.99") > 0


async def test_an_open_transaction_holds_the_last_stable_offset_and_is_seen_to(caller: Caller) -> None:
    async with producing(caller, "payments") as producer:
        async with producer.transaction():
            await produce(producer, b"one", b"two", b"three")
            scraped = await scrape(caller)
            place = {"topic": "orders", "partition": "0"}
            assert scraped("odradek_transactions", state="Ongoing") == 1
            assert scraped("kafka_topic_partition_current_offset", **place) == 3
            assert scraped("odradek_partition_last_stable_offset", **place) == 0
            assert scraped("odradek_partition_last_stable_offset_lag", **place) == 3
            await caller.post("/v1/clock/advance", {"by": "20s"})
            scraped = await scrape(caller)
            (later,) = (await caller.get("/v1/views/transactions"))["transactions"]
            held = scraped("odradek_partition_last_stable_offset_lag_seconds", **place)
            oldest = scraped("odradek_oldest_open_transaction_seconds")
            # The three values were read in this order.
            assert 20 <= held <= oldest <= later["open_ms"] / 1000
            assert scraped("odradek_clock_ahead_seconds") == 20
        scraped = await scrape(caller)
    assert scraped("odradek_transactions", state="CompleteCommit") == 1
    assert scraped("odradek_partition_last_stable_offset_lag", **place) == 0
    assert scraped("odradek_partition_last_stable_offset_lag_seconds", **place) == 0
    assert scraped("odradek_hanging_transactions") == 0


async def test_a_fenced_producer_is_counted(caller: Caller) -> None:
    await scrape(caller)
    async with producing(caller, "payments") as zombie:
        await zombie.begin_transaction()
        await produce(zombie, b"one")
        async with producing(caller, "payments"):
            with pytest.raises(aiokafka.errors.KafkaError):
                await produce(zombie, b"two")
    scraped = await scrape(caller)
    assert scraped.total("odradek_fenced_producers_total") >= 1
    assert scraped.total("kafka_network_requestmetrics_errors_total", error="INVALID_PRODUCER_EPOCH") >= 1


async def test_what_a_rule_answers_is_counted_as_the_client_got_it(caller: Caller) -> None:
    await scrape(caller)
    rule = {"rule": "Metadata nth=1 -> error UNKNOWN_TOPIC_OR_PARTITION"}
    async with producing(caller) as producer:
        await caller.post("/v1/faults", rule)
        await producer.partitions_for("orders")
    scraped = await scrape(caller)
    assert scraped.total("odradek_fault_rule_hits_total") == 1
    assert scraped.total("kafka_network_requestmetrics_errors_total", error="UNKNOWN_TOPIC_OR_PARTITION") >= 1


async def test_a_groups_lag_is_that_of_a_read_committed_consumer(caller: Caller) -> None:
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    async with producing(caller) as producer:
        await produce(producer, *map(bytes, ([1], [2], [3])))
    async with aiokafka.AIOKafkaConsumer(
        "orders", bootstrap_servers=bootstrap, group_id="workers", enable_auto_commit=False
    ) as consumer:
        await consumer.commit({TopicPartition("orders", 0): 1})
        scraped = await scrape(caller)
    place = {"consumergroup": "workers", "topic": "orders", "partition": "0"}
    assert scraped("kafka_consumergroup_current_offset", **place) == 1
    assert scraped("kafka_consumergroup_lag", **place) == 2
    assert scraped("kafka_consumergroup_lag_sum", consumergroup="workers", topic="orders") == 2
    assert scraped("kafka_consumergroup_members", consumergroup="workers") == 1


async def test_share_groups_are_counted(caller: Caller) -> None:
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    async with producing(caller) as producer:
        await produce(producer, *[b"record"] * 5)
    await scrape(caller)
    with ExitStack() as connections:

        class Names:
            topic, group = "orders", "workers"

            def connect(self) -> Cluster:
                return connections.enter_context(Cluster(bootstrap))

        def consume() -> None:
            member = ShareMember(Names())
            member.configure(errors_deadletterqueue_topic_name="dlq.orders")
            member.join()
            member.fetch(4)
            member.acknowledge(0, 0, RELEASE)
            member.acknowledge(1, 2, ACCEPT)
            member.acknowledge(3, 3, REJECT)

        await asyncio.to_thread(consume)
        scraped = await scrape(caller)
    place = {"group": "workers", "topic": "orders", "partition": "0"}
    assert scraped("kafka_server_group_coordinator_metrics_share_group_count", state="Stable") == 1
    types = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    counts = {kind: scraped.total(types, acktype=kind) for kind in ("Accept", "Release", "Reject", "Renew")}
    assert counts == {"Accept": 2, "Release": 1, "Reject": 1, "Renew": 0}
    assert scraped("odradek_share_deliveries_total", topic="orders") == 4
    assert scraped("kafka_server_sharepartitionmetrics_inflightmessagecount", **place) == 4
    assert scraped("odradek_share_partition_records", **place, state="Available") == 1
    assert scraped("odradek_share_partition_start_offset", **place) == 0
    assert scraped("odradek_share_partition_lag", **place) == 2
    assert scraped("odradek_share_dead_letters_lost_total", group="workers") == 1
    assert (
        scraped("kafka_server_brokertopicmetrics_totalshareacknowledgementrequests_total", topic="orders")
        == 3
    )


async def test_nodes_and_their_leaderships_are_shown(open_control: OpenControl) -> None:
    caller = await open_control(3)
    before = await scrape(caller)
    await caller.post("/v1/nodes/3/kill")
    after = await scrape(caller)
    assert (before("kafka_brokers"), after("kafka_brokers")) == (3, 2)
    assert after("odradek_broker_state", broker_id="3") == 1
    assert after("kafka_controller_kafkacontroller_fencedbrokercount") == 1
    assert before.total("kafka_server_replicamanager_leadercount") == before(
        "kafka_controller_kafkacontroller_globalpartitioncount"
    )
    assert after.total("kafka_server_replicamanager_leadercount", broker_id="3") == 0


def test_records_are_counted_up_to_what_is_no_batch() -> None:
    two, three = (build_batch([(0, None, b"v")] * count) for count in (2, 3))
    backwards = bytearray(two)
    backwards[8:12] = (-12).to_bytes(4, "big", signed=True)  # a length that leads to the batch itself
    assert records_in(two + three) == 5
    assert records_in(two + bytes(backwards) + three) == 2
    assert records_in(two + three[:-1]) == 2
    assert records_in(b"no batch") == 0


async def test_many_scrapes_at_once_are_each_whole(caller: Caller) -> None:
    scraped: list[Any] = await asyncio.gather(*(scrape(caller) for _ in range(4)))
    names = [set(each.families) for each in scraped]
    assert all(each == names[0] for each in names)


async def test_ready_says_whether_a_node_can_serve(caller: Caller) -> None:
    assert (await caller.get("/ready"))["status"] == "ready"
    await caller.post("/v1/nodes/1/stop")
    assert await caller("GET", "/ready") == (503, {"error": "no node runs"})
    assert (await caller.get("/health"))["status"] == "degraded"


async def test_the_page_of_names_has_exactly_those_that_are_served(caller: Caller) -> None:
    scraped = await scrape(caller)
    page = (ROOT / "docs" / "metrics.md").read_text()
    named = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    served = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in scraped.families.values()
        if not family.name.startswith("process_")
    }
    assert named == served


async def test_the_dashboard_asks_for_no_other_names(caller: Caller) -> None:
    scraped = await scrape(caller)
    dashboard = json.loads((ROOT / "examples" / "grafana" / "dashboard.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"\b(?:kafka|odradek|process)_\w+", target["expr"])
    }
    assert len(asked) > 15
    assert {name.removesuffix("_total") for name in asked} <= set(scraped.families)
