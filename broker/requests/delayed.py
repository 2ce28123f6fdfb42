"""Requests that wait: for data, for a low watermark, or for their time to be over.

A waiting request is one future, one timer and a watch on each of its partitions. While nothing moves it costs
nothing; when its future is done, by whichever way (also cancelled, as the connection went), timer and watches go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from broker.clock import Clock, Domain
from broker.replicas.partition import Partition

Response = TypeVar("Response")


class Delayed(Generic[Response]):
    """Answers its ``future`` with ``finish()``, once ``ready()`` says so or ``timeout_ms`` have passed."""

    __slots__ = ("_finish", "_loop", "_partitions", "_ready", "_scheduled", "_timer", "future")

    def __init__(
        self,
        clock: Clock,
        timeout_ms: int,
        partitions: Iterable[Partition],
        ready: Callable[[], bool],
        finish: Callable[[], Response],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Response] = self._loop.create_future()
        self._ready = ready
        self._finish = finish
        self._scheduled = False
        self._partitions = list(partitions)
        for partition in self._partitions:
            partition.delayed.watch(self._woken)
        self._timer = clock.call_later_ms(timeout_ms, self._complete, Domain.REQUESTS)
        self.future.add_done_callback(self._release)

    def complete_early(self) -> None:
        """Do not wait any longer: answer with what there is."""
        self._complete()

    def _woken(self) -> None:
        """Something moved in a partition. Look at it after the turn that moved it.

        The mover (an append, a marker) answers its own request first; ten moves in one turn cost one look.
        """
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._scheduled = False
        if self.future.done():
            return
        try:
            ready = self._ready()
        except Exception as error:
            self._fail(error)
            return
        if ready:
            self._complete()

    def _complete(self) -> None:
        if self.future.done():
            return
        try:
            response = self._finish()
        except Exception as error:
            self._fail(error)
            return
        self.future.set_result(response)
        self._release(self.future)

    def _fail(self, error: Exception) -> None:
        # The error is the request's: the handler that awaits the future gets it, not the append that woke us.
        self.future.set_exception(error)
        self._release(self.future)

    def _release(self, _: asyncio.Future[Response]) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.delayed.unwatch(self._woken)
        self._partitions = []
