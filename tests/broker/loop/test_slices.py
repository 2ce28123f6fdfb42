"""Long work on the loop: a slice a turn, whatever comes between, and work beside it."""

from __future__ import annotations

import asyncio
import threading

import pytest

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


async def test_what_takes_one_slice_is_done_at_once():
    outcomes = []
    Slices().start(in_slices("a", 0, []), outcomes.append)
    assert outcomes == ["done"]


async def test_one_slice_a_turn_for_all_jobs_together():
    slices, told, outcomes = Slices(), [], []
    slices.start(in_slices("a", 4, told), outcomes.append)
    slices.start(in_slices("b", 4, told), outcomes.append)
    loop = asyncio.get_running_loop()
    loop.call_soon(lambda: told.append("turn 1"))
    await turns(1)
    assert told[2:] == [("a", 1), "turn 1"], "others have their turn between two slices"
    await turns()
    assert [each for each in told if each != "turn 1"] == [
        (name, number) for number in range(4) for name in "ab"
    ]
    assert outcomes == ["done", "done"]


async def test_an_exception_is_the_outcome():
    def failing():
        yield None
        raise ValueError("no")

    outcomes = []
    Slices().start(failing(), outcomes.append)
    await turns()
    assert [str(each) for each in outcomes] == ["no"]


async def until(condition) -> None:
    """Threads take their time; the time-out of the test bounds it."""
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

    outcomes = []
    Slices().start(working(), outcomes.append)
    await until(lambda: outcomes)
    assert outcomes[0] not in (None, threading.get_ident())


async def test_jobs_that_hold_much_memory_have_a_bound():
    slices, gates, running, outcomes = Slices(), [], [], []

    def job(number):
        gate = threading.Event()
        gates.append(gate)

        def work():
            running.append(number)
            gate.wait(HANG_S)

        yield work
        yield None
        running.remove(number)
        return number

    for number in range(APART_AT_ONCE + 2):
        slices.start(job(number), outcomes.append)
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
    slices, outcomes, gate = Slices(), [], threading.Event()

    def large():
        yield lambda: gate.wait(HANG_S)

    for _ in range(APART_AT_ONCE + count):
        slices.start(large(), outcomes.append)
    slices.start(in_slices("small", 3, []), outcomes.append)
    await turns()
    assert outcomes == ["done"]
    gate.set()
    await until(lambda: len(outcomes) == APART_AT_ONCE + count + 1)
