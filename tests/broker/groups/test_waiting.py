"""What follows from an answer that is there, or that comes, or that never comes."""

import asyncio

import pytest

from broker.groups.waiting import all_of, then


def test_what_is_there_needs_no_loop():
    assert then(1, str) == "1"
    assert all_of([1, 2], sum) == 3


async def test_what_comes_later():
    later = asyncio.get_running_loop().create_future()
    following, everything = then(later, str), all_of([1, later], sum)
    later.set_result(2)
    assert await following == "2"
    assert await everything == 3


async def test_a_client_that_goes_takes_only_its_own_wait_with_it():
    later = asyncio.get_running_loop().create_future()
    following = then(later, str)
    following.cancel()
    assert not later.cancelled()
    later.set_result(2)
    await asyncio.sleep(0)
    assert following.cancelled()


async def test_what_never_comes():
    later = asyncio.get_running_loop().create_future()
    following = then(later, str)
    later.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following


async def test_a_mistake_reaches_the_waiting_caller():
    later = asyncio.get_running_loop().create_future()
    following = then(later, int)
    later.set_result("not a number")
    with pytest.raises(ValueError):
        await following
