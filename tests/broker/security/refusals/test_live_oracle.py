"""Apache Kafka still refuses the requests that it refused when its responses were recorded."""

from __future__ import annotations

import pytest

from tests.broker.security.refusals import stories
from tests.broker.security.refusals.kafka import kafka
from tests.broker.security.refusals.matrix import Recorded, ask
from tests.broker.security.refusals.story import STORIES, play, recorded_stories
from tests.broker.security.refusals.world import World

assert stories


@pytest.mark.java
def test_kafka_answers_as_recorded() -> None:
    recorded = Recorded()
    with kafka() as side:
        world = World(side)
        for row in recorded.one_each():
            assert ask(world, row) == recorded.answer(row), row
        assert {name: play(world, name) for name in STORIES} == recorded_stories()
