"""When responses are written: at once for a single client, at the end of a turn of the event loop for many clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from broker.net.answers import AT_ONCE, TOGETHER, Answers


class Loop:
    """An event loop that collects the callbacks of its next turn."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class Writer:
    def __init__(self, name: int, written: list[int]) -> None:
        self.name, self.written = name, written

    def write_answers(self) -> None:
        self.written.append(self.name)


class Turns:
    """Connections whose responses are written in turns of the event loop."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.answers = Answers(cast(Any, self.loop))
        self.written: list[int] = []

    def serve(self, *names: int) -> list[int]:
        """Write a response to each connection. Returns the connections whose response was written before the end of the
        turn."""
        for name in names:
            self.answers.write(Writer(name, self.written))
        return list(self.written)

    def end(self) -> list[int]:
        """End the turn and begin a new one. Returns the connections whose response was written in the old turn."""
        self.loop.turn()
        written, self.written[:] = list(self.written), []
        return written


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_responses_to_many_clients_are_written_at_the_end_of_the_turn(turns: Turns):
    for _ in range(3):
        assert turns.serve(1, 2, 3) == []
        assert turns.end() == [1, 2, 3]
    assert turns.loop.soon == []


def test_the_response_to_a_single_client_is_written_at_once(turns: Turns):
    assert turns.serve(1) == []
    assert turns.end() == [1]
    for _ in range(AT_ONCE):
        assert turns.serve(1) == [1]
        assert turns.loop.soon == []
        assert turns.end() == [1]


def test_a_second_client_changes_the_mode(turns: Turns):
    turns.serve(1)
    turns.end()
    for _ in range(AT_ONCE // 2):
        assert turns.serve(1, 2) == [1, 2]
        turns.end()
    assert turns.serve(1, 2) == []
    assert turns.end() == [1, 2]
    assert turns.serve(1, 2) == []


def test_a_limited_number_of_responses_is_written_before_the_end_of_the_turn(turns: Turns):
    names = range(TOGETHER)
    assert turns.serve(*names, 100) == [*names]
    assert turns.end() == [*names, 100]
    assert turns.serve(1) == [], "the last turn served many connections"
