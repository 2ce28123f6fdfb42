"""The gauge of the event loop's lag, on a loop with a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
import structlog

from broker.loop.lag import INTERVAL_S, LoopLag


class FakeLoop:
    """A loop that runs its one timer as late as the test wants."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.due = 0.0
        self.callback: Callable[[], None] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeLoop:
        self.due, self.callback = when, callback
        return self

    def cancel(self) -> None:
        self.callback = None

    def run(self, late_s: float = 0.0) -> None:
        callback, self.callback = self.callback, None
        assert callback is not None
        self.now = self.due + late_s
        callback()

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        while self.due <= end:
            self.run()


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def lag(loop: FakeLoop) -> LoopLag:
    lag = LoopLag(cast(asyncio.AbstractEventLoop, loop))
    lag.start()
    return lag


def test_a_loop_in_time_has_no_lag(loop: FakeLoop, lag: LoopLag) -> None:
    loop.run_for(10)
    assert (lag.last_ms, lag.max_ms) == (0, 0)


def test_what_comes_late_is_measured_and_remembered(loop: FakeLoop, lag: LoopLag) -> None:
    loop.run(late_s=0.040)
    loop.run(late_s=0.003)
    assert lag.last_ms == pytest.approx(3, abs=0.01)
    assert lag.max_ms == pytest.approx(40, abs=0.01)


def test_after_a_minute_a_lag_is_forgotten(loop: FakeLoop, lag: LoopLag) -> None:
    loop.run(late_s=0.040)
    loop.run_for(50)
    assert lag.max_ms == pytest.approx(40, abs=0.01)
    loop.run_for(15)
    assert lag.max_ms == 0


def test_a_long_stall_is_one_warning_in_all(loop: FakeLoop, lag: LoopLag) -> None:
    with structlog.testing.capture_logs() as lines:
        loop.run(late_s=0.090)
        assert lines == []
        loop.run(late_s=0.250)
        loop.run(late_s=3_600)
    assert [(line["log_level"], line["lag_ms"]) for line in lines] == [("warning", 250)]


def test_a_stall_of_the_length_that_is_warned_of_cannot_fall_between_two_looks() -> None:
    assert INTERVAL_S <= 0.1 / 2


def test_a_stopped_gauge_sets_no_timer(loop: FakeLoop, lag: LoopLag) -> None:
    lag.stop()
    assert loop.callback is None
