"""Coroutines that are started eagerly: when they run, what they return, and how they end with their node."""

import asyncio
from typing import Any

import pytest

from broker.loop import coroutines
from broker.loop.coroutines import Waiter, fork, start, start_in_background
from broker.loop.life import LifeOver, NodeLife


async def give(value):
    return value


async def wait(waiter, seen=None):
    try:
        value = await waiter
        if seen is not None:
            seen.append(value)
        return value
    finally:
        if seen is not None:
            seen.append("left")


def test_what_never_waits_gives_its_value_without_a_loop():
    assert start(give(7), NodeLife()) == 7


def test_a_waiter_that_was_woken_before_holds_nothing_up():
    waiter = Waiter[Any]()
    waiter.wake((1, 2))
    assert start(wait(waiter), NodeLife()) == (1, 2)


async def test_it_goes_on_in_the_turn_of_the_call_that_wakes_it():
    waiter = Waiter[Any]()
    seen: list[Any] = []
    future = start(wait(waiter, seen), NodeLife())
    assert not future.done()
    waiter.wake("committed")
    assert seen == ["committed", "left"]
    assert future.result() == "committed"


async def test_the_first_call_counts():
    waiter = Waiter[Any]()
    future = start(wait(waiter), NodeLife())
    waiter.wake("out of time")
    waiter.wake("committed")
    assert await future == "out of time"


def test_the_first_call_counts_before_the_wait_too():
    waiter = Waiter[Any]()
    waiter.wake("out of time")
    waiter.wake("committed")
    assert start(wait(waiter), NodeLife()) == "out of time"


async def test_a_coroutine_that_waits_several_times_is_one_future():
    first, second = Waiter[Any](), Waiter[Any]()

    async def both():
        return [await wait(first), await wait(second)]

    future = start(both(), NodeLife())
    second.wake(2)
    assert not future.done()
    first.wake(1)
    assert future.result() == [1, 2]


def test_an_error_before_it_waits_is_raised():
    async def fail():
        raise ValueError("early")

    with pytest.raises(ValueError, match="early"):
        start(fail(), NodeLife())


async def test_an_error_after_that_is_the_future_s_and_not_that_of_the_call_that_woke_it():
    waiter = Waiter[Any]()

    async def fail():
        await waiter
        raise ValueError("late")

    future = start(fail(), NodeLife())
    waiter.wake(None)
    with pytest.raises(ValueError, match="late"):
        await future


async def test_a_client_that_goes_does_not_stop_what_was_decided():
    waiter = Waiter[Any]()
    seen: list[Any] = []
    start(wait(waiter, seen), NodeLife()).cancel()
    waiter.wake("committed")
    assert seen == ["committed", "left"]


async def test_futures_of_asyncio_and_turns_of_the_loop_can_be_awaited():
    future = asyncio.get_running_loop().create_future()

    async def look():
        await asyncio.sleep(0)
        return await future

    outcome = start(look(), NodeLife())
    future.set_result(3)
    assert await outcome == 3


class TestFork:
    async def test_side_by_side_each_goes_on_when_its_own_waiter_is_woken(self):
        life, first, second = NodeLife(), Waiter[Any](), Waiter[Any]()
        seen: list[Any] = []

        async def both():
            joined = [fork(wait(first, seen), life), fork(wait(second, seen), life), fork(give(3), life)]
            return [await each for each in joined]

        future = start(both(), life)
        second.wake(2)
        assert seen == [2, "left"]
        first.wake(1)
        assert future.result() == [1, 2, 3]

    async def test_an_error_is_that_of_the_coroutine_that_awaits_it(self):
        waiter = Waiter[Any]()

        async def fail():
            await waiter
            raise ValueError("beside")

        async def join():
            await fork(fail(), NodeLife())

        future = start(join(), NodeLife())
        waiter.wake(None)
        with pytest.raises(ValueError, match="beside"):
            await future


class TestTheEndOfALife:
    async def test_closes_what_waits_in_the_order_in_which_it_waits(self):
        life = NodeLife()
        order: list[str] = []

        async def walk(name):
            try:
                await Waiter[Any]()
            finally:
                order.append(name)

        for name in "abc":
            start_in_background(walk(name), life)
        life.end()
        assert order == ["a", "b", "c"]

    async def test_the_future_of_a_dead_node_s_coroutine_stays_pending(self):
        life = NodeLife()
        future = start(wait(Waiter[Any]()), life)
        life.end()
        assert not future.done()

    async def test_a_coroutine_that_runs_when_its_node_dies_is_closed_at_its_next_wait(self):
        life = NodeLife()
        seen: list[Any] = []

        async def walk():
            life.end()
            await wait(Waiter[Any](), seen)

        start_in_background(walk(), life)
        assert seen == ["left"]

    async def test_no_coroutine_starts_after_the_node_s_death(self):
        life = NodeLife()
        seen: list[Any] = []
        life.end()
        start_in_background(wait(Waiter[Any](), seen), life)
        assert seen == []

    async def test_what_the_loop_had_taken_in_resumes_nothing(self):
        life = NodeLife()
        seen: list[Any] = []
        future = asyncio.get_running_loop().create_future()
        start_in_background(wait(future, seen), life)
        future.set_result(1)
        life.end()
        await asyncio.sleep(0)
        assert seen == ["left"]

    async def test_what_wakes_it_afterwards_resumes_nothing(self):
        life, waiter = NodeLife(), Waiter[Any]()
        seen: list[Any] = []
        start_in_background(wait(waiter, seen), life)
        life.end()
        waiter.wake(None)
        assert seen == ["left"]

    async def test_resuming_a_coroutine_of_a_dead_node_is_a_programming_error(self, monkeypatch):
        found: list[str] = []
        monkeypatch.setattr(coroutines, "misused", lambda event, coroutine: found.append(event))
        life = NodeLife()
        start_in_background(wait(Waiter[Any]()), life)
        (suspended,) = life.suspended_coroutines
        assert isinstance(suspended, coroutines.Suspended)
        life.end()
        suspended.resume()
        assert found == ["a coroutine was resumed after its node's life"]


async def test_a_failure_in_the_background_is_logged_and_hurts_no_request(capsys):
    first, second = Waiter[Any](), Waiter[Any]()

    async def fail():
        await first
        raise ValueError("alone")

    async def die():
        await second
        raise LifeOver

    start_in_background(fail(), NodeLife())
    start_in_background(die(), NodeLife())
    first.wake(None)
    second.wake(None)
    assert "a coroutine failed, and no request waits for it" in capsys.readouterr().out


def test_a_coroutine_that_is_never_started_is_a_warning_and_so_a_failure():
    with pytest.warns(RuntimeWarning, match="never awaited"):
        give(1)  # type: ignore[unused-coroutine]
