"""Topic changes that are written to the metadata log but not yet in the image."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from broker.metadata.topics import unified_name


class PendingTopicChanges:
    """Serialises the changes of each topic.

    Topics with colliding names ("a.b" and "a_b") count as one topic, so that concurrent requests cannot create
    both.
    """

    def __init__(self) -> None:
        self._commits: dict[str, asyncio.Future[None]] = {}
        self._everything: asyncio.Future[None] | None = None

    async def settled(self, names: Iterable[str]) -> None:
        """Wait until no change of these topics is being written, since the image does not contain such a change yet."""
        keys = [unified_name(name) for name in names]
        while waiting := self._under_way(keys):
            await asyncio.wait(waiting)

    async def all_settled(self) -> None:
        """Wait until no change of any topic is being written, as registrations and fencing of brokers require."""
        while waiting := self._under_way(self._commits):
            await asyncio.wait(waiting)

    def _under_way(self, keys: Iterable[str]) -> set[asyncio.Future[None]]:
        waiting = {self._commits[key] for key in keys if key in self._commits}
        if self._everything is not None and not self._everything.done():
            waiting.add(self._everything)
        return waiting

    def mark_all(self, done: asyncio.Future[None]) -> None:
        """Note that the commit ``done`` may change every topic: later changes of any topic wait for it."""
        self._everything = done

    def mark(self, names: Iterable[str], done: asyncio.Future[None]) -> None:
        """Note that the commit ``done`` changes these topics: later changes of these topics wait for it."""
        for name in names:
            key = unified_name(name)
            self._commits[key] = done
            done.add_done_callback(self._forgetting(key))

    def _forgetting(self, key: str) -> Callable[[asyncio.Future[None]], None]:
        def forget(done: asyncio.Future[None]) -> None:
            if self._commits.get(key) is done:
                del self._commits[key]

        return forget
