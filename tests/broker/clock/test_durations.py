"""Parsing and formatting of durations such as `30s` and `1d`."""

from __future__ import annotations

import pytest

from broker.clock.durations import DURATION_MS_MAX, BadDuration, checked_duration_ms, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("15m", 900_000),
        ("36h", 129_600_000),
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        ("1d12h", 129_600_000),
        ("1h 30m", 5_400_000),
        ("1.5s", 1_500),
        ("7D", 604_800_000),
        ("0s", 0),
    ],
)
def test_a_duration_is_numbers_with_units(text, expected_ms):
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "7", "d", "7x", "7d-1h", "-7d", "7dd", "7 days", "1e3s", "s7", "٧d7"])
def test_anything_else_is_told_what_to_write(text):
    with pytest.raises(
        BadDuration, match=r"is not a duration: write a number and a unit .* as in 7d or 1h30m"
    ):
        parse_duration_ms(text)


def test_a_century_is_the_most():
    assert parse_duration_ms("36525d") == DURATION_MS_MAX
    with pytest.raises(BadDuration, match="more than a century"):
        parse_duration_ms("36526d")


def test_time_cannot_go_back():
    with pytest.raises(BadDuration, match="cannot go back by 5 ms"):
        checked_duration_ms(-5)
