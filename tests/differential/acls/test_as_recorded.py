"""Our broker's decisions about random sets of ACLs are those of Apache Kafka, recorded and live."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.acls.cases import CASES, Answers, case, recorded
from tests.differential.acls.kafka import kafka_with_authorizer
from tests.differential.acls.ours import ours_with_authorizer
from tests.differential.runner import differences
from tests.differential.story import Entry
from tests.support.deadlines import LONG_TEST_S

SOON = 80
"""Number of cases (random sets of ACLs) that every test run plays."""
LIVE = range(CASES, CASES + 100)
"""Numbers of the cases (random sets of ACLs) that are not recorded, but compared with a running Kafka."""


def different(kafka: list[Answers], ours: list[Answers], first: int = 0) -> list[str]:
    found = []
    for number, (theirs, mine) in enumerate(zip(kafka, ours, strict=True), first):
        entry = Entry("acls", str(case(number)), lambda s: None, "")
        asked = [[{"ask": what, "answer": each[what]} for what in theirs] for each in (theirs, mine)]
        found += [f"{number}: {difference}" for difference in differences(entry, *asked)]
    return found


@pytest.mark.parametrize(
    "numbers", [range(SOON), pytest.param(range(SOON, CASES), marks=pytest.mark.more)], ids=["soon", "more"]
)
def test_ours_is_as_recorded(numbers: range, tmp_path: Path) -> None:
    kafka = recorded()
    assert len(kafka) == CASES
    with ours_with_authorizer(tmp_path) as asking:
        ours = [asking.answers(case(number)) for number in numbers]
    found = different(kafka[numbers.start : numbers.stop], ours, numbers.start)
    assert not found, "\n".join(found)


@pytest.mark.java
@pytest.mark.timeout(LONG_TEST_S)
def test_kafka_is_as_recorded_and_ours_as_kafka(tmp_path: Path) -> None:
    with kafka_with_authorizer() as asking:
        again = [asking.answers(case(number)) for number in range(20)]
        live = [asking.answers(case(number)) for number in LIVE]
    found = different(recorded()[:20], again)
    assert not found, "Kafka is not as recorded (ours stands for Kafka now):\n" + "\n".join(found)
    with ours_with_authorizer(tmp_path) as asking:
        ours = [asking.answers(case(number)) for number in LIVE]
    found = different(live, ours, LIVE.start)
    assert not found, "\n".join(found)
