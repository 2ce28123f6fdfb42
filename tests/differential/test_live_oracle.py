"""The recordings are still right: a running Apache Kafka gives the recorded responses, and so does our broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.differential import listed, runner
from tests.differential.ours import ours
from tests.differential.record import on_own_kafka
from tests.differential.story import Entry
from tests.support.deadlines import LONG_TEST_S
from tests.support.kafka_oracle import kafka_with_relay

# test_recorded.py compares our broker with the recordings each time.
pytestmark = [pytest.mark.java, pytest.mark.more, pytest.mark.timeout(LONG_TEST_S)]
# Each profile starts a Kafka, and `main` takes four minutes: the other profiles run in the soak. Each change also runs
# requests that are not recorded (tests/fuzz/test_differential.py).
WITH_EACH_CHANGE = ("consumer-groups",)
# The clock is real on both sides: a machine that stalls in the middle of a story may change its responses.
ATTEMPTS = 3


def as_recorded(
    entry: Entry, on_kafka: Callable[[Entry, int], runner.Transcript]
) -> tuple[runner.Transcript, list[runner.Difference]]:
    """Kafka's transcript of a story, and its differences from the recording. ``on_kafka`` runs one attempt.

    Both are of the first attempt without a difference, or of the last of ``ATTEMPTS``.
    """
    recorded = runner.recorded(entry)
    assert recorded is not None, f"{entry.id} is not recorded"
    for attempt in range(ATTEMPTS):
        transcript = on_kafka(entry, attempt)
        found = runner.differences(entry, recorded, transcript)
        if not found:
            break
    return transcript, found


@contextmanager
def kafka_of(profile: str) -> Iterator[Callable[[Entry, int], runner.Transcript]]:
    """Yields a function that runs a story: on one Kafka for all stories of the profile, or on a new Kafka for each."""
    if runner.has_own_broker(profile):
        yield on_own_kafka
        return
    setting = runner.PROFILES[profile]
    with kafka_with_relay(runner.kafka_properties(profile), transaction_version=setting["feature"]) as (
        oracle,
        relay,
    ):
        runner.warm_up(oracle.host, oracle.port)
        hold = partial(relay.hold, "write_txn_markers")
        yield lambda entry, attempt: runner.run(entry, oracle.host, oracle.port, attempt, hold)


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(each, marks=[] if each in WITH_EACH_CHANGE else [pytest.mark.slow])
        for each in runner.PROFILES
    ],
)
def test_kafka_answers_as_recorded_and_ours_as_kafka(profile: str, tmp_path: Path) -> None:
    table = listed.rows()
    rotten: list[runner.Difference] = []
    different: list[runner.Difference] = []
    with kafka_of(profile) as on_kafka, ours(tmp_path) as told:
        for entry in runner.entries(profile):
            transcript, found = as_recorded(entry, on_kafka)
            rotten += found
            different += listed.unlisted(runner.differences(entry, transcript, told.transcript(entry)), table)
    assert not rotten, "Kafka no longer answers as recorded (ours stands for Kafka now):\n" + "\n".join(
        map(str, rotten)
    )
    assert not different, "\n" + "\n".join(map(str, different))
