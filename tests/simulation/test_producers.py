"""Tests of the simulated producers: they do what a client of Kafka may do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.simulation.producers import Producer


class NetworkStub:
    """A `Wire` whose leader accepts all batches. It notes how many of them the network may deliver twice."""

    def __init__(self) -> None:
        self.random = Random(0)
        self.repeatable: list[int] = []
        self.facts = SimpleNamespace(
            topic_id=lambda _: None, leader_epoch=lambda *_: 0, log_start=lambda *_: 0, ids_ms=lambda: 0
        )

    def now_ms(self) -> int:
        return 0

    def say(self, text: str) -> None:
        pass

    async def ask_leader_all(
        self,
        topic: str,
        index: int,
        key: int,
        version: int,
        requests: Sequence[Any],
        repeatable: Sequence[Any] | None = None,
    ) -> list[ProduceResponse]:
        self.repeatable.append(len(requests if repeatable is None else repeatable))
        row = PartitionProduceResponse(index=index, error_code=0, base_offset=0)
        return [
            ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[row])])
            for _ in requests
        ]


def test_no_batch_overtakes_the_first_one_that_a_leader_gets():
    network = NetworkStub()
    producer: Any = Producer(network, None, level=2)  # type: ignore[arg-type]
    for index in (0, 0, 1):
        asyncio.run(producer.send(("orders", index), [b"a"], [b"b"]))
    assert network.repeatable[0] == network.repeatable[-1] == 1  # the leader accepts any first sequence
    assert 2 in network.repeatable[1:-1]
