"""The tests that many client libraries must pass (`tests.clients.contract`), with kafkajs and @platformatic/kafka."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.clients.contract import AtLeastOnce, Contract, GroupContract
from tests.support.broker import StartBroker
from tests.support.foreign import Program, node_program

pytestmark = pytest.mark.foreign


@pytest.mark.client("kafkajs")
class TestKafkaJs(Contract):
    """kafkajs uses old request versions, and transaction version 1."""

    codecs = ("none", "gzip", "snappy", "zstd")
    exists = "false"
    # The coordinator returns PRODUCER_FENCED only from version 2 of these requests on (KIP-588).
    fenced: ClassVar = dict.fromkeys(("produce", "commit", "abort", "offsets"), "INVALID_PRODUCER_EPOCH")
    spoken: ClassVar = {
        "produce": 7,
        "fetch": 11,
        "init_producer_id": 1,
        "add_partitions_to_txn": 1,
        "add_offsets_to_txn": 1,
        "txn_offset_commit": 1,
        "end_txn": 1,
    }

    @pytest.fixture
    def program(self) -> Program:
        return Program(node_program("kafkajs"))


@pytest.mark.client("@platformatic/kafka")
class TestPlatformatic(Contract, GroupContract):
    """@platformatic/kafka 1, for Node 20. It does not support regex subscriptions, and zstd only with Node 22.

    The loop is not tested in a consumer group: the client sends generation 0 with the offsets of a transaction,
    which a coordinator refuses (ILLEGAL_GENERATION). The client's classic members cannot be in a group that is
    upgraded: their subscriptions have version 1 with the fields of version 0, which cannot be parsed ("the
    embedded consumer protocol is malformed", UNKNOWN_SERVER_ERROR for a later member), and their OffsetFetch has
    epoch -1, which is stale. Apache Kafka 4.3.1 refuses these requests too.

    The loop with kills of members may write duplicate results: after a rebalance a member sometimes delivers
    records from its memory again, in the same generation. The trace shows that the member has fetched the
    committed offsets only once, and had already committed offsets beyond these records.
    """

    codecs = ("none", "gzip", "snappy", "lz4")
    exists = "TOPIC_ALREADY_EXISTS"
    fenced: ClassVar = {
        "produce": "INVALID_PRODUCER_EPOCH",
        "commit": "PRODUCER_FENCED",
        "abort": "PRODUCER_FENCED",
        "offsets": "PRODUCER_FENCED",
    }
    spoken: ClassVar = {
        "produce": 11,
        "fetch": 17,
        "init_producer_id": 5,
        "add_partitions_to_txn": 5,
        "add_offsets_to_txn": 4,
        "txn_offset_commit": 4,
        "end_txn": 4,
    }
    # A static member that is closed leaves the group.
    keeps_static_members = frozenset()
    test_the_broker_resolves_a_regular_expression = None
    test_a_group_with_members_changes_its_protocol = None
    test_the_loop_of_a_consumer_group_outlives_the_broker = None
    test_the_loop_is_exactly_once_though_members_are_killed = None
    test_the_loop_is_exactly_once_though_members_are_frozen_past_their_sessions = None

    @pytest.mark.feature("classic group")
    def test_the_loop_of_a_classic_group_loses_nothing_though_members_are_killed(
        self, program: Program, start_broker: StartBroker
    ):
        with AtLeastOnce(program, start_broker, "classic") as crew:
            crew.lose_members()
            crew.finish()

    @pytest.fixture
    def program(self) -> Program:
        return Program(node_program("platformatic"))
