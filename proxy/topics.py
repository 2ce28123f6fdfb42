"""Topic names by topic id, from the Metadata responses to clients or to the proxy itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

TOPICS_MAX: Final = 100_000


class TopicNames:
    """The topic names known so far, by topic id. They stay valid, because no topic id is used twice."""

    def __init__(self) -> None:
        self._names: OrderedDict[UUID, str] = OrderedDict()
        self.on_unknown: Callable[[], object] = lambda: None
        """Called when the name of an unknown id is requested."""

    def heard(self, metadata: Any) -> None:
        """Note the names in a Metadata response."""
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
