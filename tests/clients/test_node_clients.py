"""kafkajs."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.clients.contract import Contract
from tests.support.foreign import Program, node_program

pytestmark = pytest.mark.foreign


@pytest.mark.client("kafkajs")
class TestKafkaJs(Contract):
    """It speaks old versions, and transactions of version 1."""

    codecs = ("none", "gzip", "snappy", "zstd")
    exists = "false"
    # The coordinator says PRODUCER_FENCED from version 2 of these requests on (KIP-588).
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
