"""The recordings are still right: the tools have the same output with a running Apache Kafka.

The test starts Kafka seven times and tools 700 times, so it is not run with each change.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.console_tools import runner
from tests.differential.console_tools.sides import PROFILES, Side, kafka_side
from tests.support.deadlines import LONG_TEST_S

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(LONG_TEST_S)]
# The clock is real on both sides: a machine that stalls in the middle of a story may change its output.
ATTEMPTS = 3


def rotten(entry: runner.Entry, side: Side) -> list[runner.Difference]:
    recorded = runner.load(entry.area)[entry.name]
    found: list[runner.Difference] = []
    for attempt in range(ATTEMPTS):
        found = runner.differences(entry, recorded, runner.run(entry, side, attempt))
        if not found:
            break
    return found


@pytest.mark.parametrize("profile", PROFILES)
def test_kafka_is_as_recorded(profile: str, tmp_path: Path) -> None:
    with kafka_side(profile, tmp_path) as side:
        found = [each for entry in runner.entries(profile) for each in rotten(entry, side)]
    assert not found, "not as recorded (ours stands for Kafka now):\n" + "\n".join(map(str, found))
