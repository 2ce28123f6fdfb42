"""Rate limit for log lines of one kind from many connections."""

from __future__ import annotations

from typing import Any

import pytest

from broker.logging.limits import BURST_LINES, KINDS_MAX, RateLimit


class Limited:
    """A rate limit with a manual clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.told = 0
        self.limit = RateLimit(lambda: self.now_s)
        self.limit.on_first_suppressed = self._tell

    def _tell(self) -> None:
        self.told += 1

    def passes(self, event: str = "connection closed", **fields: Any) -> dict[str, object] | None:
        line = {"event": event, "connection": 1, **fields}
        return line if self.limit(line) else None


def test_of_a_storm_the_first_lines_pass_and_the_rest_is_counted() -> None:
    limited = Limited()
    passed = [line for _ in range(16_000) if (line := limited.passes(reason="malformed request"))]
    assert len(passed) == BURST_LINES
    said = {"of": "connection closed: malformed request", "lines": 16_000 - BURST_LINES}
    assert limited.limit.take() == [("log lines suppressed", said)]
    assert limited.limit.take() == []


def test_the_next_line_that_passes_carries_the_count() -> None:
    limited = Limited()
    for _ in range(BURST_LINES + 5):
        limited.passes()
    limited.now_s = 1.0
    line = limited.passes()
    assert line is not None
    assert line["suppressed"] == 5
    assert limited.limit.take() == []
    assert limited.passes() is None


def test_the_writer_is_told_once_until_it_has_taken_the_counts() -> None:
    limited = Limited()
    for _ in range(BURST_LINES + 5):
        limited.passes()
    assert limited.told == 1
    limited.limit.take()
    limited.passes()
    assert limited.told == 2


def test_kinds_do_not_use_up_each_other_s_lines() -> None:
    limited = Limited()
    for _ in range(BURST_LINES + 1):
        limited.passes(reason="bad request size")
    assert limited.passes(reason="malformed request") is not None
    assert limited.passes("request failed") is not None


def test_kinds_are_bounded() -> None:
    limited = Limited()
    passed = sum(limited.passes(reason=str(number)) is not None for number in range(1_000))
    assert passed == KINDS_MAX + BURST_LINES


@pytest.mark.parametrize("event", ["accept paused", "batch refused", "topic not created"])
def test_what_clients_cause_is_limited_where_no_connection_is_known_too(event: str) -> None:
    """The rate limit covers events that clients cause and that have no connection field: a producer in a loop can cause
    thousands of rejected batches a second."""
    limit = RateLimit(lambda: 0.0)
    for _ in range(BURST_LINES):
        assert limit({"event": event, "topic": "t"})
    assert not limit({"event": event, "topic": "t"})


@pytest.mark.parametrize("fields", [{}, {"topic": "t", "partition": 3}])
def test_lines_about_the_broker_itself_always_pass(fields: dict[str, object]) -> None:
    limit = RateLimit(lambda: 0.0)
    for _ in range(1_000):
        event = {"event": "partition offline", **fields}
        line = dict(event)
        assert limit(line)
        assert line == event
