"""Requests that wait for data or for a low watermark (Kafka: delayed operations).

    with Parking(clock, timeout_ms, partitions) as parking:
        while await parking.moved():
            if enough():
                break

A waiting request has one coroutine, one timer, and a watch on each of its partitions. It does not poll. The end of the
``with`` block removes timer and watches, also when the node dies or the client closes the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from broker.clock import Clock, Domain
from broker.loop.coroutines import Waiter
from broker.requests.api import CloseConnection

if TYPE_CHECKING:
    from broker.replicas.partition import Partition


class ParkedHere(Waiter[bool]):
    """The waiter of a parked (delayed) request. The connection finds the waiter in `Suspended.waits_at`."""

    __slots__ = ("_gives_way",)

    def __init__(self, *, gives_way: bool) -> None:
        super().__init__()
        self._gives_way = gives_way

    def give_way(self) -> None:
        """End the wait early, if permitted: the client has sent another request on the same connection."""
        if self._gives_way:
            self.wake(False)

    def client_gone(self) -> None:
        """End the request, because the client has disconnected and does not wait for the response."""
        self.fail(CloseConnection("the client has gone"))


class Parking:
    """The wait of one request for changes of its partitions, at most ``timeout_ms``.

    With ``gives_way``, the wait ends early when the client sends its next request: the response then has less
    data.
    """

    __slots__ = (
        "_clock",
        "_gives_way",
        "_loop",
        "_parked",
        "_partitions",
        "_scheduled",
        "_timeout_ms",
        "_timer",
    )

    def __init__(
        self, clock: Clock, timeout_ms: int, partitions: Iterable[Partition], *, gives_way: bool = False
    ) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._partitions = list(partitions)
        self._gives_way = gives_way
        self._loop = asyncio.get_running_loop()
        self._parked: ParkedHere | None = None
        self._scheduled = False

    def __enter__(self) -> Self:
        for partition in self._partitions:
            partition.delayed.watch(self._moved)
        self._timer = self._clock.call_later_ms(self._timeout_ms, self._over, Domain.REQUESTS)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._parked = None
        self._timer.cancel()
        for partition in self._partitions:
            partition.delayed.unwatch(self._moved)

    async def moved(self) -> bool:
        """Wait for a change of one of the partitions. False at the timeout, or if the request must respond early.

        The request resumes in the turn after the change, so the request that caused the change (an append, a
        marker) gets its response first, and several changes in one turn wake this request once. Raises
        `CloseConnection` if the client has disconnected.
        """
        self._parked = ParkedHere(gives_way=self._gives_way)
        return await self._parked

    def _moved(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._scheduled = False
        if self._parked is not None:
            self._parked.wake(True)

    def _over(self) -> None:
        if self._parked is not None:
            self._parked.wake(False)
