"""The latest events for timelines: changes of nodes and leaders, and intercepted steps and requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from protocol.slotted import slotted

HAPPENINGS_KEPT: Final = 2000

TopicPartition = tuple[str, int]


@slotted(frozen=True, eq=False)
class Happening:
    """One event of a timeline: a node's new state, a new leader, or a hit of a fault rule.

    Without ids and partitions, the event concerns all transactional ids and all partitions.
    """

    time_ms: int
    kind: str
    """Type of the event: ``node``, ``election`` or ``rule``."""
    node_id: int
    text: str
    transactional_ids: frozenset[str] = frozenset()
    partitions: frozenset[TopicPartition] = frozenset()
    at: str = ""
    """API or injection point at which a rule intercepted the request or step; empty for events of nodes and
    elections."""
    groups: frozenset[str] = frozenset()
    offsets: tuple[tuple[str, int | None, int, int], ...] = ()
    """(topic, partition, first offset, last offset) of the records of a share group that the request or step names."""

    def concerns(self, transactional_id: str, partitions: frozenset[TopicPartition]) -> bool:
        """Whether the event belongs to the timeline of a transactional id with these partitions."""
        if self.transactional_ids:
            return transactional_id in self.transactional_ids
        return not self.partitions or not self.partitions.isdisjoint(partitions)


class Happenings:
    """The latest events to show in timelines, oldest first, at most ``HAPPENINGS_KEPT``."""

    def __init__(self) -> None:
        self._kept: deque[Happening] = deque(maxlen=HAPPENINGS_KEPT)

    def note(self, happening: Happening) -> None:
        self._kept.append(happening)

    def clear(self) -> None:
        self._kept.clear()

    def __iter__(self) -> Iterator[Happening]:
        return iter(tuple(self._kept))
