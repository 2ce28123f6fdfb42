"""The topics given by --topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.cluster.errors import StartError
from broker.metadata import ApiError, ClusterMetadata
from broker.metadata.internal_topics import startup_topic

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.config.settings import TopicSpec


class StartupTopics:
    """The topics of --topic, created at the start of the process, and again after a reset, which deletes all topics."""

    def __init__(self, specs: Sequence[TopicSpec], config: BrokerConfig) -> None:
        self._specs = specs
        self._config = config
        self.are_due = True
        """Whether topics may have to be created. False after the first start, or a reset, has created them."""

    async def create(self, metadata: ClusterMetadata) -> None:
        """Create the missing topics if `are_due`.

        `are_due` stays true if ``StartError`` is raised, for example because there are too few nodes.
        """
        new = [
            startup_topic(spec, self._config)
            for spec in self._specs
            if self.are_due and metadata.topic(spec.name) is None
        ]
        try:
            results = await metadata.replication_control.create_topics(new) if new else []
        except ApiError as refusal:
            raise StartError(f"--topic: {refusal.message}") from refusal
        for topic, result in zip(new, results, strict=True):
            if isinstance(result, ApiError):
                raise StartError(f"--topic {topic.name}: {result.message}")
        self.are_due = False
