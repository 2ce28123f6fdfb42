"""Tests of the normalisation: it recognises ids in a tool's output."""

from __future__ import annotations

import pytest

from tests.differential.console_tools.normal import PLAIN, TextNormal


@pytest.mark.parametrize(
    "word", ["gezgeweVRhaOMiULZIDKUQ", "gQ3zVRhaOM-ULZIDKUQabc", "aBcDeFgHiJkLmNoPqRsTuV"]
)
def test_an_id_becomes_a_symbol(word: str) -> None:
    assert TextNormal("~", {}, {}).lines(f"TopicId: {word}", PLAIN) == ["TopicId: (id 1)"]


@pytest.mark.parametrize(
    "word", ["LatestCoordinatorEpoch", "GroupNotEmptyException", "latestCoordinatorEpoch"]
)
def test_a_name_of_kafka_stays(word: str) -> None:
    assert TextNormal("~", {}, {}).lines(word, PLAIN) == [word]


def test_repeated_lines_of_a_network_thread_are_dropped() -> None:
    line = "[kafka-producer-network-thread | p] ERROR org.apache.kafka.clients.Metadata - invalid topics"
    assert TextNormal("~", {}, {}).lines(f"{line}\n{line}\nout\nout", PLAIN) == [line, "out", "out"]
