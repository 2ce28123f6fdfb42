"""The topics of the command line."""

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
    """They are created at the start of the process, and again after a reset has deleted all topics."""

    def __init__(self, specs: Sequence[TopicSpec], config: BrokerConfig) -> None:
        self._specs = specs
        self._config = config
        self.are_due = True
        """Some of them may have to be created: before the end of the first start, or of a reset."""

    async def create(self, metadata: ClusterMetadata) -> None:
        """Create those that are due and not there yet. ``StartError``, and they are still due: too few nodes may run."""
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
