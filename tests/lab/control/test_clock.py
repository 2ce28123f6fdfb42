"""The clock at the control port: progress of an advance, and how it ends."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process

import aiokafka
import pytest
from aiohttp import ClientConnectionError

from broker.clock import Domain
from broker.clock.virtual import VirtualClock
from broker.replicas.maintenance import flushing
from lab.control.listener import ControlListener
from tests.lab.control.conftest import Caller, until

TWO_DAYS = {"by": "2d", "only": ["groups"]}


def stop_each_second(clock: VirtualClock) -> None:
    """Set a timer for each virtual second, so that an advance by two days does not end while a test runs."""

    def again() -> None:
        clock.call_later_ms(1000, again, Domain.GROUPS)

    again()


async def test_an_advance_ends_with_its_caller(caller: Caller) -> None:
    clock = caller.control.clock
    stop_each_second(clock)
    advance = asyncio.ensure_future(caller.post("/v1/clock/advance", TWO_DAYS))
    await until(lambda: clock.offset_ms(Domain.GROUPS) > 1000)
    under_way = (await caller.get("/v1/clock"))["advance"]
    moved_ms = under_way.pop("moved_ms")
    assert under_way == {"by_ms": 172_800_000, "only": ["groups"], "waiting": 0}
    advance.cancel()
    await until(lambda: clock.progress() is None)
    shown = await caller.get("/v1/clock")
    assert shown["advance"] is None
    assert moved_ms <= shown["ahead_ms"]["groups"] < 172_800_000


async def test_an_advance_is_cancelled_with_those_that_wait_for_it(caller: Caller) -> None:
    clock = caller.control.clock
    stop_each_second(clock)
    advances = [
        asyncio.ensure_future(caller("POST", "/v1/clock/advance", {**TWO_DAYS, "by": by}))
        for by in ("2d", "2h")
    ]
    await until(lambda: (progress := clock.progress()) is not None and progress.waiting)
    shown = await caller.delete("/v1/clock/advance")
    assert shown["advance"] is None
    answers = [await each for each in advances]
    assert [status for status, _ in answers] == [409, 409]
    assert any("by 2d was cancelled after" in answer["error"] for _, answer in answers)
    assert (await caller.delete("/v1/clock/advance"))["ahead_ms"] == shown["ahead_ms"]


async def command(caller: Caller, *words: str, stderr: int = PIPE) -> Process:
    """Start `odradek clock ...` as a process."""
    start = "import sys; sys.argv[0] = 'odradek'; from odradek.cli import main; main()"
    environment = {**os.environ, "ODRADEK_CONTROL": caller.url}
    words = (sys.executable, "-c", start, "clock", *words)
    return await asyncio.create_subprocess_exec(*words, env=environment, stdout=PIPE, stderr=stderr)


async def test_the_command_shows_on_a_terminal_how_far_it_has_got_until_it_is_cancelled(
    caller: Caller,
) -> None:
    stop_each_second(caller.control.clock)
    terminal, its_end = pty.openpty()
    advance = await command(caller, "advance", "2d", "--only", "groups", stderr=its_end)
    os.close(its_end)
    shown = await asyncio.to_thread(os.read, terminal, 100)
    assert re.match(rb"\radvanced by \S+ of 2d ", shown)
    cancel = await command(caller, "cancel")
    assert (await cancel.communicate())[0].startswith(b"now 2")
    assert await advance.wait() == 1
    os.close(terminal)
    assert caller.control.clock.progress() is None


async def test_ctrl_c_ends_the_command_and_its_advance(caller: Caller) -> None:
    clock = caller.control.clock
    stop_each_second(clock)
    advance = await command(caller, "advance", "2d", "--only", "groups")
    await until(lambda: clock.offset_ms(Domain.GROUPS) > 0)
    advance.send_signal(signal.SIGINT)
    assert await advance.wait() == 1
    await until(lambda: clock.progress() is None)
    assert 0 < clock.offset_ms(Domain.GROUPS) < 172_800_000


async def test_a_close_of_the_port_ends_an_advance(caller: Caller) -> None:
    other = ControlListener(lambda: caller.control)
    await other.start()
    clock = caller.control.clock
    stop_each_second(clock)
    headers = {"Content-Type": "application/json"}
    advance = asyncio.ensure_future(
        caller.session.post(f"{other.url}/v1/clock/advance", json=TWO_DAYS, headers=headers)
    )
    await until(lambda: clock.progress() is not None)
    await other.close()
    assert clock.progress() is None
    await asyncio.wait([advance])
    assert isinstance(advance.exception(), ClientConnectionError)


async def test_two_days_beside_writers_are_one_round_of_the_flush(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An advance by two days while clients write flushes the logs in few rounds. One flush in five virtual seconds would be
    34,560 flushes, each of which waits for the disk."""
    synced: list[str] = []

    def sync(syncs: list[flushing._Sync]) -> None:
        synced.extend(each.partition.log.directory.name for each in syncs)
        for each in syncs:
            each.run()

    monkeypatch.setattr(flushing, "_run_all", sync)
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    written = [0]

    async def write(partition: int) -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            while True:
                await producer.send_and_wait("orders", b"value", partition=partition)
                written[0] += 1

    writers = [asyncio.ensure_future(write(partition)) for partition in range(4)]
    try:
        await until(lambda: written[0] > 100)
        synced.clear()
        await caller.post("/v1/clock/advance", {"by": "2d", "only": ["retention"]})
        assert {name for name in synced if name.startswith("orders")} == {f"orders-{n}" for n in range(4)}
        assert len(synced) < 100
        already = written[0]
        await until(lambda: written[0] > already)
    finally:
        for writer in writers:
            writer.cancel()
        await asyncio.wait(writers)
