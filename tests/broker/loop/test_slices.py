"""Long work in slices: one slice in each turn of the event loop, other callbacks between them, and work in a thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from broker.loop.coroutines import start, start_in_background
from broker.loop.life import NodeLife
from broker.loop.slices import APART_AT_ONCE, Slices
from tests.support.deadlines import HANG_S


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def in_slices(name, count, told, outcome="done"):
    for number in range(count):
        told.append((name, number))
        yield None
    return outcome


async def run(slices, steps, outcomes):
    outcomes.append(await slices.run(steps))


def begin(slices, steps, outcomes, life=None):
    start_in_background(run(slices, steps, outcomes), life or NodeLife())


def test_what_takes_one_slice_is_done_at_once_and_without_a_loop():
    assert start(Slices().run(in_slices("a", 0, [])), NodeLife()) == "done"


async def test_one_slice_a_turn_for_all_jobs_together():
    slices = Slices()
    told: list[Any] = []
    outcomes: list[Any] = []
    begin(slices, in_slices("a", 4, told), outcomes)
    begin(slices, in_slices("b", 4, told), outcomes)
    loop = asyncio.get_running_loop()
    loop.call_soon(lambda: told.append("turn 1"))
    await turns(1)
    assert told[2:] == [("a", 1), "turn 1"], "other callbacks run between two slices"
    await turns()
    assert [each for each in told if each != "turn 1"] == [
        (name, number) for number in range(4) for name in "ab"
    ]
    assert outcomes == ["done", "done"]


@pytest.mark.parametrize("first", [None, lambda: 7])
async def test_an_exception_is_the_outcome(first):
    def failing():
        yield first
        raise ValueError("no")

    outcome = start(Slices().run(failing()), NodeLife())
    with pytest.raises(ValueError, match="no"):
        await outcome


async def until(condition) -> None:
    """Wait for a condition that a thread makes true. The test's timeout bounds the wait."""
    while not condition():
        await turns(1)


async def test_work_beside_the_loop_and_its_exceptions():
    def working():
        thread = yield threading.get_ident
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError:
            return thread
        return None

    outcome = start(Slices().run(working()), NodeLife())
    assert await outcome not in (None, threading.get_ident())


def gated(gates, running, number):
    """A job whose work in a thread lasts until the test opens its gate."""
    gate = threading.Event()
    gates.append(gate)

    def job():
        def work():
            running.append(number)
            gate.wait(HANG_S)

        yield work
        yield None
        running.remove(number)
        return number

    return job()


async def test_jobs_that_hold_much_memory_have_a_bound():
    slices = Slices()
    gates: list[threading.Event] = []
    running: list[Any] = []
    outcomes: list[Any] = []
    for number in range(APART_AT_ONCE + 2):
        begin(slices, gated(gates, running, number), outcomes)
    await until(lambda: len(running) == APART_AT_ONCE)
    await turns()
    assert running == list(range(APART_AT_ONCE))
    gates[0].set()
    await until(lambda: APART_AT_ONCE in running)
    assert outcomes == [0]
    for gate in gates:
        gate.set()
    await until(lambda: len(outcomes) == APART_AT_ONCE + 2)


@pytest.mark.parametrize("count", [2, 3])
async def test_small_jobs_do_not_wait_for_those_beside_the_loop(count):
    slices, gate = Slices(), threading.Event()
    outcomes: list[Any] = []

    def large():
        yield lambda: gate.wait(HANG_S)

    for _ in range(APART_AT_ONCE + count):
        begin(slices, large(), outcomes)
    begin(slices, in_slices("small", 3, []), outcomes)
    await turns()
    assert outcomes == ["done"]
    gate.set()
    await until(lambda: len(outcomes) == APART_AT_ONCE + count + 1)


class TestANodeThatDies:
    async def test_between_two_slices(self):
        slices, life = Slices(), NodeLife()
        told: list[Any] = []
        outcomes: list[Any] = []
        begin(slices, in_slices("dead", 4, told), outcomes, life)
        begin(slices, in_slices("living", 2, told), outcomes)
        life.end()
        await turns()
        assert told == [("dead", 0), ("living", 0), ("living", 1)]
        assert outcomes == ["done"]

    async def test_while_its_work_waits_for_others(self):
        slices, life = Slices(), NodeLife()
        gates: list[threading.Event] = []
        running: list[Any] = []
        outcomes: list[Any] = []
        for number in range(APART_AT_ONCE):
            begin(slices, gated(gates, running, number), outcomes)
        begin(slices, gated(gates, running, "dead"), outcomes, life)
        begin(slices, gated(gates, running, "living"), outcomes)
        life.end()
        for gate in gates:
            gate.set()
        await until(lambda: len(outcomes) == APART_AT_ONCE + 1)
        assert set(outcomes) == {*range(APART_AT_ONCE), "living"}

    async def test_while_a_thread_works_for_it_and_what_this_holds_counts_until_it_ends(self):
        slices, life = Slices(), NodeLife()
        gates: list[threading.Event] = []
        running: list[Any] = []
        outcomes: list[Any] = []
        for number in range(APART_AT_ONCE):
            begin(slices, gated(gates, running, number), outcomes, life)
        begin(slices, gated(gates, running, "dead"), outcomes, life)
        begin(slices, gated(gates, running, "living"), outcomes)
        await until(lambda: len(running) == APART_AT_ONCE)
        life.end()
        await turns()
        assert "living" not in running
        for gate in gates:
            gate.set()
        await until(lambda: outcomes)
        assert outcomes == ["living"]

    async def test_when_its_thread_has_failed(self):
        def failing():
            yield lambda: failed.set() or 1 // 0

        slices, life, failed = Slices(), NodeLife(), threading.Event()
        outcomes: list[Any] = []
        begin(slices, failing(), outcomes, life)
        assert failed.wait(HANG_S)
        life.end()
        await turns()
        assert outcomes == []
