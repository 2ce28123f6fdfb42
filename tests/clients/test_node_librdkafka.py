"""@confluentinc/kafka-javascript, on its bundled librdkafka, with kafkajs's API.

This client has no test of regular expressions, because its members do not recover from the deletion of a topic:
the binding fails with "unknown partition" and stops the rebalance. (librdkafka continues in other languages.) The
member keeps a partition of the deleted topic, in groups of both protocols, and with Apache Kafka 4.3.1 too.
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.clients.contract import RECORDS_A_CODEC, Contract, GroupContract, values_of, words
from tests.support.broker import Broker, StartBroker
from tests.support.clients import batches_of, values
from tests.support.foreign import CLIENTS, Program, node_program

pytestmark = [pytest.mark.foreign, pytest.mark.client("@confluentinc/kafka-javascript")]


class TestNodeLibrdkafka(GroupContract):
    fenced: ClassVar = {
        "produce": "ERR_INVALID_PRODUCER_EPOCH",
        "commit": "ERR__FENCED",
        "abort": "ERR__FENCED",
    }
    half = staticmethod(Contract.half)
    test_the_broker_resolves_a_regular_expression = None

    test_transactions_commit_abort_and_hold_back_committed_readers = (
        Contract.test_transactions_commit_abort_and_hold_back_committed_readers
    )
    test_two_members_share_partitions_and_one_takes_over = (
        Contract.test_two_members_share_partitions_and_one_takes_over
    )

    @pytest.fixture
    def program(self) -> Program:
        return Program(node_program("librdkafka", CLIENTS / "node-librdkafka", compiles=True))

    @pytest.mark.feature("topics and settings")
    def test_topics_are_made_described_and_deleted(self, program: Program, broker: Broker):
        """The client creates a topic, describes it, and deletes it.

        Partitions are not added and settings are not read, as the client lacks CreatePartitions and
        DescribeConfigs.
        """
        said = program.run("admin", broker.bootstrap, "orders")
        assert said == [{"again": "false"}, {"partitions": 3}, {"left": False}]

    @pytest.mark.feature("every codec", "idempotence", "produce and read")
    def test_batches_of_idempotent_producers_are_stored_unchanged(
        self, program: Program, start_broker: StartBroker
    ):
        broker = start_broker(topics=["orders:1"])
        codecs = ["none", "gzip", "snappy", "lz4"]
        assert program.run("codecs", broker.bootstrap, "orders") == [
            {"codec": codec, "offset": number * RECORDS_A_CODEC, "count": RECORDS_A_CODEC}
            for number, codec in enumerate(codecs)
        ]
        batches = batches_of(broker.data_dir, "orders")
        assert {batch.attributes & 7 for batch in batches} == set(range(4))
        assert len({batch.producer_id for batch in batches} - {-1}) == 4
        own = program.run("read", broker.bootstrap, "orders", "codecs", "read_committed", 800)
        assert values_of(own) == values(broker.bootstrap, "orders")

    @pytest.mark.feature("fencing")
    def test_a_zombie_is_fenced_and_its_client_says_so(self, program: Program, start_broker: StartBroker):
        broker = start_broker(topics=["orders:1"])
        said = program.run("zombie", broker.bootstrap, "orders", "payments")
        assert {each["late"]: each["error"] for each in said} == self.fenced
        assert values(broker.bootstrap, "orders") == words("successor") * len(self.fenced)
