"""A deterministic event loop without real clock, sockets or threads.

When no callback is ready, time jumps to the next timer. Work for a thread pool runs in the loop, a little later, in a turn
of its own. So the seed alone determines the run, turn by turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from broker.clock import Domain, Timer, Unmoved
from tests.simulation.network import NODE, SimNetwork, SimSocket

START_MS = 1_800_000_000_000
BACKGROUND_S_MAX = 0.01
"""Maximum simulated duration of the broker's work in a thread (an fsync, the removal of a file), in seconds."""


class NothingLeft(Exception):
    """No callback is ready and no timer is set: the run would hang forever."""


class _Jump:
    """Replacement of the selector, which advances the time instead of waiting."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise NothingLeft
        if timeout > 0:
            self._loop.now += timeout
        return []


class SimLoop(asyncio.BaseEventLoop):
    """The event loop. `now` is in seconds since the beginning."""

    def __init__(self, seed: object) -> None:
        super().__init__()
        self.now = 0.0
        self.random = Random(f"{seed}/loop")
        self.network = SimNetwork(self, Random(f"{seed}/network"))
        self._clock_resolution = 1e-9
        self._selector = _Jump(self)

    def time(self) -> float:
        return self.now

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread that would have to wake this loop."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except BaseException as error:
                future.set_exception(error)

        self.call_later(self.random.uniform(0, BACKGROUND_S_MAX), run)
        return future

    async def create_server(self, protocol_factory: Any, *, sock: SimSocket, **_: Any) -> SimSocket:
        return self.network.listen(sock, protocol_factory)

    async def create_connection(
        self, protocol_factory: Any, host: str | None = None, port: int | None = None, **_: Any
    ) -> tuple[Any, Any]:
        assert port is not None
        return await self.network.connect(NODE, port, protocol_factory)


class SimClock(Unmoved):
    """The simulation's time, on which the broker's virtual clock is based."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now_ms(self, domain: Domain | None = None) -> int:
        return START_MS + int(self._loop.now * 1000)

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> Timer:
        return self._loop.call_later(max(delay_ms, 0) / 1000, callback)
