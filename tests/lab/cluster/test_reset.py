"""A reset of the cluster while other operations are under way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from broker.metadata import NewTopic
from broker.metadata.client_quotas import Alteration, Operation
from broker.metadata.scram_credentials import Upsertion
from broker.metadata.values import BROKER_RESOURCE, GROUP_RESOURCE
from lab.cluster.reset import reset
from storage.checkpoints import read_offsets
from storage.directory import LOG_STARTS
from tests.support.clients import ConfluentProducer, eventually
from tests.support.in_process import InProcess


@pytest.mark.parametrize("others", [0, 2])
def test_a_topic_whose_creation_was_under_way_is_gone_too(tmp_path: Path, others: int):
    with InProcess(tmp_path, "--topic", "orders:2") as broker:
        metadata = broker.cluster.metadata

        async def create_and_reset() -> set[str]:
            await metadata.replication_control.create_topics(
                [NewTopic(f"other-{number}", 1, configs={}) for number in range(others)]
            )
            creating = asyncio.create_task(
                metadata.replication_control.create_topics([NewTopic("late", 1, configs={})])
            )
            await asyncio.sleep(0)
            assert metadata.topic("late") is None
            await reset(broker.cluster)
            await creating
            return set(metadata.topics)

        assert broker.run(create_and_reset()) == {"orders"}


def test_clients_have_what_they_had_after_the_start(tmp_path: Path):
    with InProcess(tmp_path, "--sasl", "alice:secret:SCRAM-SHA-256") as broker:
        control, image = broker.cluster.metadata.client_control, broker.cluster.metadata.image
        before = dict(image.credentials)
        entity = (("user", "alice"),)

        async def change_and_reset() -> None:
            changed = Upsertion("alice", 1, 4096, b"salt", b"salted")
            await control.alter_credentials((), [changed, changed._replace(user="bob")])
            await control.alter_quotas([Alteration(entity, [Operation("producer_byte_rate", 1.0)])])
            assert set(image.credentials) == {("alice", 1), ("bob", 1)}
            assert image.quotas
            await reset(broker.cluster)

        broker.run(change_and_reset())
        assert image.credentials == before
        assert image.quotas == {}


def test_settings_are_those_of_the_start(tmp_path: Path):
    with InProcess(tmp_path) as broker:
        metadata = broker.cluster.metadata
        before = dict(metadata.image.configs)

        async def change_and_reset() -> tuple[int, int]:
            await metadata.change_config(BROKER_RESOURCE, "", {"log.cleaner.backoff.ms": "2"})
            await metadata.change_config(GROUP_RESOURCE, "g", {"share.auto.offset.reset": "earliest"})
            changed = broker.cluster.nodes[1].config.log_cleaner_backoff_ms
            await reset(broker.cluster)
            return changed, broker.cluster.nodes[1].config.log_cleaner_backoff_ms

        assert broker.run(change_and_reset()) == (2, 15_000)
        assert metadata.image.configs == before


def test_a_topic_of_the_same_name_begins_at_offset_0(tmp_path: Path):
    settings = {"odradek.background.flush.interval.ms": 20}
    with InProcess(tmp_path, "--topic", "orders:1", settings=settings) as broker:
        producer = ConfluentProducer(broker.bootstrap, idempotent=False)
        producer.send("orders", ["a", "b", "c"])
        producer.close()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_records([TopicPartition("orders", 0, 2)])[TopicPartition("orders", 0)].result()
        checkpoint = broker.cluster.data_dir / LOG_STARTS
        eventually(lambda: read_offsets(checkpoint).get(("orders", 0)) == 2)
        broker.run(reset(broker.cluster))

        def log_of_orders() -> tuple[int, int]:
            partition = broker.cluster.running_nodes()[0].replicas.get("orders", 0)
            assert partition is not None
            return partition.log.log_start_offset, partition.log_end_offset

        assert broker.call(log_of_orders) == (0, 0)
