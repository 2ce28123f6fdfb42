"""The owner of the cluster's life: the calls that change it are carried out in the order in which they arrive.

    async with cluster.lifecycle.call():              # on one node: start, stop, kill, pause, ...; on the clock
        cluster.kill_node(2)
    async with cluster.lifecycle.call_on_all_nodes():   # reset, snapshot, restore
        ...
    async with cluster.lifecycle.last_call():           # the end of the process

Calls on single nodes run side by side: the state of the node says at once whether it can do what is asked. A call on all
nodes holds back every later call until it has ended. It does not wait for the calls on single nodes that came before it: a
reset kills the nodes that they are about, and then waits for the calls (`calls_ended`); a snapshot is refused while a node
starts or stops.

An interceptor that kills a node is no call: it kills by ``Cluster.kill_node``, in the turn of the loop in which it is met,
whatever is under way. A start or a stop of that node fails then. A reset or a restore goes on with the other nodes, and says
at its end which node was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker.cluster.errors import BrokerEnding


class Lifecycle:
    """See above; one for each cluster."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # first come, first served
        self._calls = 0
        self._no_calls = asyncio.Event()
        self._no_calls.set()
        self._is_ending = False
        self.waiting = 0
        """Calls that wait for their turn."""

    @property
    def is_at_rest(self) -> bool:
        """Whether no call is under way and none waits."""
        return not self._turn.locked() and not self.waiting and not self._calls

    def check(self) -> None:
        """``BrokerEnding`` once the broker ends: no call begins, and none of those under way starts a further node."""
        if self._is_ending:
            raise BrokerEnding("the broker is stopping")

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """A call on one node, or on the clock: it waits for the calls on all nodes that came before it. ``BrokerEnding``"""
        async with self._in_turn():
            self.check()
            self._calls += 1
            self._no_calls.clear()
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls:
                self._no_calls.set()

    @asynccontextmanager
    async def call_on_all_nodes(self) -> AsyncIterator[None]:
        """A call on all nodes: no other call begins before it has ended. ``BrokerEnding``"""
        async with self._in_turn():
            self.check()
            yield

    async def calls_ended(self) -> None:
        """Return once the calls on single nodes that came before the current call on all nodes have ended."""
        await self._no_calls.wait()

    @asynccontextmanager
    async def last_call(self) -> AsyncIterator[None]:
        """The last call: it waits for those under way, and those that wait are refused."""
        self._is_ending = True
        async with self._in_turn():
            await self.calls_ended()
            yield

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        self.waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._turn.release()
