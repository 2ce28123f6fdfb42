"""The recordings are still right: three brokers of a running Apache Kafka give the recorded responses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential import runner
from tests.differential.cluster import running
from tests.differential.cluster.running import Stage
from tests.differential.cluster.sides import kafka_side
from tests.support.deadlines import LONG_TEST_S

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(LONG_TEST_S)]
# Kafka's clocks are real: a machine that stalls in the middle of a scene may change its responses.
ATTEMPTS = 3


def rotten(stage: Stage, scene: running.Scene) -> list[runner.Difference]:
    """Differences from the recordings that Kafka shows in every attempt."""
    left = running.entries(scene.name)
    found: list[runner.Difference] = []
    for attempt in range(ATTEMPTS):
        transcripts = running.play(stage, scene, left, attempt)
        found = []
        for entry in left:
            recorded = running.recorded(entry)
            assert recorded is not None, f"{entry.id} is not recorded"
            found += runner.differences(entry, recorded, transcripts[entry.id])
        left = [entry for entry in left if any(each.story == entry.id for each in found)]
        if not left:
            break
    return found


def test_kafka_answers_as_recorded(tmp_path: Path) -> None:
    with kafka_side(tmp_path) as side, Stage(side) as stage:
        found = [each for scene in running.SCENES.values() for each in rotten(stage, scene)]
    assert not found, "Kafka no longer answers as recorded:\n" + "\n".join(map(str, found))
