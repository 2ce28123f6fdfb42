"""Orders the calls that change the state of a cluster: they are executed in the order in which they arrive.

    async with cluster.lifecycle.call():              # on one node: start, stop, kill, pause, ...; on the clock
        cluster.kill_node(2)
    async with cluster.lifecycle.call_on_all_nodes():   # reset, snapshot, restore
        ...
    async with cluster.lifecycle.last_call():           # the end of the process

Calls on single nodes run concurrently: whether a node can do what is requested follows from its state. A call on all nodes
makes all later calls wait until it has ended. It does not wait for earlier calls on single nodes: a reset kills the nodes of
these calls, and then waits for the calls to end (`calls_ended`); a snapshot is refused while a node starts or stops.

A fault rule that kills a node is not such a call: it uses ``Cluster.kill_node`` in the turn of the event loop in which it
hits, regardless of calls in progress. A start or stop of that node then fails. A reset or restore continues with the other
nodes, and reports at its end which node was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker.cluster.errors import BrokerEnding


class Lifecycle:
    """The order of the calls on one cluster (see the docstring of the module)."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # first come, first served
        self._calls = 0
        self._no_calls = asyncio.Event()
        self._no_calls.set()
        self._is_ending = False
        self.waiting = 0
        """Number of calls that wait because another call is running."""

    @property
    def is_at_rest(self) -> bool:
        """Whether no call on the cluster or on one of its nodes is running or waiting."""
        return not self._turn.locked() and not self.waiting and not self._calls

    def check(self) -> None:
        """Raise ``BrokerEnding`` if the broker is stopping: no call may begin, and no running call may start another
        node."""
        if self._is_ending:
            raise BrokerEnding("the broker is stopping")

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Context manager for a call on one node or the clock. Waits for calls on all nodes. Raises ``BrokerEnding``."""
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
        """Context manager for a call on all nodes: no other call begins before its end. Raises ``BrokerEnding``."""
        async with self._in_turn():
            self.check()
            yield

    async def calls_ended(self) -> None:
        """Return when the running calls on single nodes have ended. A call on all nodes uses this."""
        await self._no_calls.wait()

    @asynccontextmanager
    async def last_call(self) -> AsyncIterator[None]:
        """Context manager for the last call. It waits for running calls; waiting calls get ``BrokerEnding``."""
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
