"""A reset beside what is under way in the cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.cluster.reset import reset
from broker.metadata import NewTopic
from tests.support.in_process import InProcess


@pytest.mark.parametrize("others", [0, 2])
def test_a_topic_whose_creation_was_under_way_is_gone_too(tmp_path: Path, others: int):
    with InProcess(tmp_path, "--topic", "orders:2") as broker:
        metadata = broker.cluster.metadata

        async def create_and_reset() -> set[str]:
            await metadata.create_topics(
                [NewTopic(f"other-{number}", 1, configs={}) for number in range(others)]
            )
            creating = asyncio.create_task(metadata.create_topics([NewTopic("late", 1, configs={})]))
            await asyncio.sleep(0)
            assert metadata.topic("late") is None
            await reset(broker.cluster)
            await creating
            return set(metadata.topics)

        assert broker.run(create_and_reset()) == {"orders"}
