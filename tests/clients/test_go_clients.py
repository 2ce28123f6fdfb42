"""The tests that many client libraries must pass (`tests.clients.contract`), with franz-go and sarama."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.clients.contract import Contract, GroupContract
from tests.support.foreign import Program, go_program

pytestmark = pytest.mark.foreign


@pytest.mark.client("franz-go")
class TestFranzGo(Contract, GroupContract):
    """franz-go uses the newest request versions, and transaction version 2 (KIP-890)."""

    # Version 1.22.3 leaves a consumer group without its instance id, which the coordinator refuses, as in Kafka:
    # it keeps its partitions until its session times out.
    keeps_static_members = frozenset({"classic"})
    exists = "TOPIC_ALREADY_EXISTS"
    fenced: ClassVar = {
        "produce": "INVALID_PRODUCER_EPOCH",
        "commit": "PRODUCER_FENCED",
        "abort": "PRODUCER_FENCED",
    }
    spoken: ClassVar = {
        "api_versions": 5,
        "produce": 13,
        "fetch": 18,
        "init_producer_id": 5,
        "add_partitions_to_txn": None,
        "add_offsets_to_txn": None,
        "txn_offset_commit": 6,
        "end_txn": 5,
    }

    @pytest.fixture
    def program(self) -> Program:
        return Program(go_program("franz"))


@pytest.mark.client("sarama")
class TestSarama(Contract):
    """sarama uses transaction version 1: it adds partitions and offsets itself."""

    exists = "ErrTopicAlreadyExists"
    fenced: ClassVar = {
        "produce": "ErrInvalidProducerEpoch",
        "commit": "ErrProducerFenced",
        "abort": "ErrProducerFenced",
        "offsets": "ErrProducerFenced",
    }
    spoken: ClassVar = {
        "produce": 10,
        "fetch": 12,
        "init_producer_id": 4,
        "add_partitions_to_txn": 3,
        "add_offsets_to_txn": 3,
        "txn_offset_commit": 3,
        "end_txn": 3,
    }

    @pytest.fixture
    def program(self) -> Program:
        return Program(go_program("sarama"))
