"""Tests of two Rust clients: rdkafka on librdkafka, and rskafka, which lacks groups and transactions."""

from __future__ import annotations

import signal
from typing import Any, ClassVar

import pytest

from tests.clients.contract import CODECS, RECORDS_A_CODEC, Contract, GroupContract, values_of
from tests.support.broker import Broker, StartBroker
from tests.support.clients import batches_of, values
from tests.support.deadlines import HANG_S
from tests.support.foreign import Program, rust_program

pytestmark = pytest.mark.foreign

WRITTEN = 40


@pytest.mark.client("rdkafka (Rust)")
class TestRdkafka(Contract, GroupContract):
    """rdkafka uses the request versions of its bundled librdkafka."""

    codecs = ("none", "gzip", "snappy", "lz4")
    exists = "TopicAlreadyExists"
    fenced: ClassVar = {
        "produce": "InvalidProducerEpoch",
        "commit": "Fenced",
        "abort": "Fenced",
        "offsets": "Fenced",
    }
    spoken: ClassVar = {
        "produce": 10,
        "fetch": 16,
        "init_producer_id": 4,
        "add_partitions_to_txn": 0,
        "add_offsets_to_txn": 0,
        "txn_offset_commit": 3,
        "end_txn": 1,
    }

    @pytest.fixture
    def program(self) -> Program:
        return Program(rust_program("rdkafka"))


@pytest.mark.client("rskafka (Rust)")
class TestRskafka:
    """rskafka cannot read a partition with markers ("Unknown control batch record version: 8192").

    The same error occurs with Apache Kafka, so the records of these tests are not transactional.
    """

    @pytest.fixture
    def program(self) -> Program:
        return Program(rust_program("rskafka"))

    @pytest.mark.feature("topics and settings")
    def test_topics_are_made_listed_and_deleted(self, program: Program, broker: Broker):
        assert program.run("admin", broker.bootstrap, "orders") == [
            {"again": "TopicAlreadyExists"},
            {"partitions": 3},
            {"left": False},
        ]

    @pytest.mark.feature("every codec", "produce and read")
    def test_every_codec_is_kept_as_sent_and_records_are_deleted(
        self, program: Program, start_broker: StartBroker
    ):
        broker = start_broker(topics=["orders:1"])
        codecs = CODECS[:4]
        assert program.run("codecs", broker.bootstrap, "orders") == [
            {"codec": codec, "offset": number * RECORDS_A_CODEC, "count": RECORDS_A_CODEC}
            for number, codec in enumerate(codecs)
        ]
        batches = batches_of(broker.data_dir, "orders")
        assert [CODECS[batch.attributes & 7] for batch in batches] == list(codecs)
        own = program.run("read", broker.bootstrap, "orders", 0)
        assert values_of(own) == values(broker.bootstrap, "orders")
        assert {each["headers"] for each in own} == {1}
        said = program.run("cut", broker.bootstrap, "orders", 250)
        assert said == [{"earliest": 250, "latest": 800}]
        assert self.offsets(program.run("read", broker.bootstrap, "orders", 250)) == list(range(250, 800))

    @pytest.mark.feature("produce and read")
    def test_each_acknowledged_record_outlives_the_broker(self, program: Program, start_broker: StartBroker):
        """Each acknowledged record is read after a restart of the broker, perhaps twice: the producer is not idempotent."""
        broker = start_broker(topics=["orders:1"], environment={"ODRADEK_CRASH_POINTS": "file.write:20"})
        with program.start("write", broker.bootstrap, "orders", WRITTEN) as writing:
            assert broker.wait(HANG_S) == -signal.SIGKILL
            broker.restart(environment={})
            said = writing.finish()
        found = values(broker.bootstrap, "orders")
        assert [each["written"] for each in said] == list(range(WRITTEN))
        assert all(found[each["offset"]] == f"order-{each['written']}" for each in said)

    @staticmethod
    def offsets(said: list[dict[str, Any]]) -> list[int]:
        return [each["offset"] for each in said]
