"""Tests of the comparison: it finds a planted difference, and a listed difference that no longer exists."""

from __future__ import annotations

import pytest

from tests.differential import listed, runner
from tests.differential.story import Entry
from tests.support.java import RECORDED_VERSION

TABLE = """
| id | stories | fields | Kafka | ours | why | how to switch it off |
|---|---|---|---|---|---|---|
| one | `a.*`, `b.c` | `x.*.code` | `3`, `-1` | `0` | because | not |
"""
ENTRY = Entry("a", "b", lambda s: None, "main")


def exchange(answer: object) -> runner.Transcript:
    return [{"ask": "it", "answer": answer}]


@pytest.mark.parametrize(
    ("kafka", "ours", "fields"),
    [
        ({"x": 1}, {"x": 1}, []),
        ({"x": 1}, {"x": 2}, ["x"]),
        ({"x": 1}, {"x": True}, ["x"]),
        ({"x": None}, {"x": []}, ["x"]),
        ({"x": 1}, {}, ["x"]),
        ({}, {"x": 1}, ["x"]),
        ({"x": [1, 2]}, {"x": [1]}, ["x"]),
        ({"x": [{"y": 1}, {"y": 2}]}, {"x": [{"y": 1}, {"y": 3}]}, ["x.1.y"]),
        ("closed", {"x": 1}, ["answer"]),
    ],
)
def test_differences(kafka: object, ours: object, fields: list[str]) -> None:
    assert [d.field for d in runner.differences(ENTRY, exchange(kafka), exchange(ours))] == fields


def test_a_missing_exchange_is_a_difference() -> None:
    both = exchange(1) + exchange(2)
    assert len(runner.differences(ENTRY, both, exchange(1))) == 1
    assert len(runner.differences(ENTRY, exchange(1), both)) == 1


def difference(story: str, field: str, kafka: object, ours: object) -> runner.Difference:
    return runner.Difference(story, 0, "it", field, kafka, ours)


@pytest.mark.parametrize(
    ("found", "is_listed"),
    [
        (difference("a.z", "x.0.code", 3, 0), True),
        (difference("b.c", "x.1.code", -1, 0), True),
        (difference("b.d", "x.0.code", 3, 0), False),
        (difference("a.z", "x.0.other", 3, 0), False),
        (difference("a.z", "x.0.code", 4, 0), False),
        (difference("a.z", "x.0.code", 3, 1), False),
    ],
)
def test_listed(found: runner.Difference, is_listed: bool) -> None:
    assert (listed.unlisted([found], listed.rows(TABLE)) == []) is is_listed


def test_stale_patterns_are_named() -> None:
    found = [difference("a.z", "x.0.code", 3, 0)]
    assert listed.stale(found, listed.rows(TABLE)) == {("one", "story", "b.c")}
    assert not listed.stale([*found, difference("b.c", "x.0.code", 3, 0)], listed.rows(TABLE))


def test_the_page_names_the_release_that_is_recorded():
    assert listed.FILE.read_text().startswith(f"# Differences from Apache Kafka {RECORDED_VERSION}\n")
