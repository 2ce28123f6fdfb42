"""State of the links between the nodes of a cluster (up, slow or cut), and of followers whose fetching is paused.

A link has a direction, from ``sender`` to ``receiver``. Replication and the channels between nodes check the link
before they transfer anything, and subscribe to changes. This module transfers no data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from protocol.slotted import slotted

Link = tuple[int, int]
"""(sender, receiver), as node ids."""

Paused = tuple[int, str | None, int | None]
"""(node, topic or None for all, partition or None for all): a paused follower, which does not fetch."""


@slotted(eq=False)
class Links:
    """The links of one cluster. Cuts and pauses are counted: a link that was cut twice is up after both cuts are mended."""

    _cuts: dict[Link, int] = field(default_factory=dict)
    _delays_ms: dict[Link, list[int]] = field(default_factory=dict)
    _paused: dict[Paused, int] = field(default_factory=dict)
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    @property
    def all_up(self) -> bool:
        """Whether no link is cut or slow, and no follower is paused, so that no further check is needed."""
        return not (self._cuts or self._delays_ms or self._paused)

    def is_cut(self, sender: int, receiver: int) -> bool:
        return (sender, receiver) in self._cuts

    def delay_ms(self, sender: int, receiver: int) -> int:
        return sum(self._delays_ms.get((sender, receiver), ()))

    def is_paused(self, node_id: int, topic: str, partition: int) -> bool:
        return any(
            key in self._paused
            for key in ((node_id, None, None), (node_id, topic, None), (node_id, topic, partition))
        )

    def cut(self, sender: int, receiver: int) -> None:
        self._cuts[sender, receiver] = self._cuts.get((sender, receiver), 0) + 1
        self._changed()

    def mend(self, sender: int, receiver: int) -> None:
        _count_down(self._cuts, (sender, receiver))
        self._changed()

    def slow(self, sender: int, receiver: int, delay_ms: int) -> None:
        self._delays_ms.setdefault((sender, receiver), []).append(delay_ms)
        self._changed()

    def quicken(self, sender: int, receiver: int, delay_ms: int) -> None:
        """Remove one delay of ``delay_ms`` from the link."""
        delays = self._delays_ms[sender, receiver]
        delays.remove(delay_ms)
        if not delays:
            del self._delays_ms[sender, receiver]
        self._changed()

    def pause(self, node_id: int, topic: str | None = None, partition: int | None = None) -> None:
        key = (node_id, topic, partition)
        self._paused[key] = self._paused.get(key, 0) + 1
        self._changed()

    def resume(self, node_id: int, topic: str | None = None, partition: int | None = None) -> None:
        _count_down(self._paused, (node_id, topic, partition))
        self._changed()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` without arguments after every change of a link or pause."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[], None]) -> None:
        self._listeners.remove(listener)

    def _changed(self) -> None:
        for listener in tuple(self._listeners):
            listener()


def _count_down(counts: dict[Link, int] | dict[Paused, int], key: Link | Paused) -> None:
    counts[key] -= 1  # type: ignore[index]
    if not counts[key]:  # type: ignore[index]
        del counts[key]  # type: ignore[arg-type]
