"""Random sequences of requests compared with a running Kafka. The long form is ``python -m tests.fuzz.differential``."""

from __future__ import annotations

import pytest

from tests.differential import runner
from tests.differential.ours import Ours
from tests.fuzz.differential import KINDS, compare, entry, fuzz
from tests.support.deadlines import LONG_TEST_S


@pytest.mark.more
@pytest.mark.java
@pytest.mark.timeout(LONG_TEST_S)
@pytest.mark.parametrize("kind", KINDS)
def test_ours_answers_as_kafka_and_writes_the_same_internal_topics(kind: str):
    found: list[str] = []
    fuzz([1, 2], lambda seed, differences, exchanges: found.extend(differences), kind)
    assert not found, "\n".join(found)


@pytest.mark.more
def test_a_story_of_a_seed_comes_to_its_end_and_a_difference_is_seen(tmp_path):
    ours = Ours(tmp_path)
    try:
        told = ours.transcript(entry(1))
    finally:
        ours.close()
    assert [line["ask"] for line in told[-4:]] == ["log of -tx0", "log of -tx1", "log of -g0", "log of -g1"]
    assert compare(entry(1), told, told) == []
    log = told[-4]["answer"]
    changed: runner.Transcript = [*told[:-4], {"ask": "log of -tx0", "answer": log[:-1]}, *told[-3:]]
    (difference,) = compare(entry(1), told, changed)
    assert "log of -tx0" in difference
