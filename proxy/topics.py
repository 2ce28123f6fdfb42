"""The names of topics by their ids, as Metadata has told them to clients that passed, or to the proxy itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

TOPICS_MAX: Final = 100_000


class TopicNames:
    """Ids are never given twice, so a name once heard holds."""

    def __init__(self) -> None:
        self._names: OrderedDict[UUID, str] = OrderedDict()
        self.on_unknown: Callable[[], object] = lambda: None
        """Called when an id is asked for that has not passed yet."""

    def heard(self, metadata: Any) -> None:
        """A Metadata response."""
        for topic in metadata.topics:
            if topic.topic_id is not None and topic.name:
                self._names[topic.topic_id] = topic.name
        while len(self._names) > TOPICS_MAX:
            self._names.popitem(last=False)

    def name(self, topic_id: UUID) -> str | None:
        found = self._names.get(topic_id)
        if found is None:
            self.on_unknown()
        return found
