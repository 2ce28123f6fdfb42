"""Creates topics that a request needs (Kafka's ``AutoTopicCreationManager``)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.logging import get_logger
from broker.metadata.creation import AUTO_CREATED_AT_ONCE, NewTopic, check_total
from broker.metadata.image import Image
from broker.metadata.internal_topics import creatable_topic, internal_topic
from broker.metadata.replication_control import ReplicationControlManager
from broker.metadata.results import ApiError, CreatedTopic
from broker.metadata.values import Topic
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.config import BrokerConfig

log = get_logger()


class AutoTopicCreationManager:
    """Creates topics for Metadata requests in the background, and a coordinator's topic when a request needs it."""

    def __init__(self, image: Image, config: BrokerConfig, creator: ReplicationControlManager) -> None:
        self._image = image
        self._config = config
        self._creator = creator
        self._in_flight: dict[str, asyncio.Task[Topic]] = {}
        self._background: set[asyncio.Task[None]] = set()

    def create_in_background(self, names: Sequence[str]) -> None:
        """Create topics without waiting; logs a warning for each topic that cannot be created."""
        wanted = [creatable_topic(NewTopic(name), self._config) for name in names]
        task = asyncio.get_running_loop().create_task(self._create_and_log(wanted))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def settled(self) -> None:
        """Wait until all creations in the background have ended."""
        if self._background:
            await asyncio.wait(self._background)

    async def ensure_internal_topic(self, name: str) -> Topic:
        """Return the topic of a coordinator; create it if it does not exist. Concurrent callers share one creation.

        Raises ApiError in cases in which Kafka would respond with COORDINATOR_NOT_AVAILABLE indefinitely.
        """
        topic = self._image.topics.get(name)
        if topic is not None:
            return topic
        task = self._in_flight.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._create_internal_topic(name))
            self._in_flight[name] = task
            task.add_done_callback(lambda _: self._in_flight.pop(name, None))
        return await asyncio.shield(task)

    async def _create_and_log(self, wanted: Sequence[NewTopic]) -> None:
        results: list[CreatedTopic | ApiError] = []
        try:
            check_total(wanted, self._creator.topic_defaults)
            for first in range(0, len(wanted), AUTO_CREATED_AT_ONCE):
                results += await self._creator.create_topics(wanted[first : first + AUTO_CREATED_AT_ONCE])
        except ApiError as error:
            results = [error]
        for new, result in zip(wanted, results, strict=False):
            if isinstance(result, ApiError) and result.error != ErrorCode.topic_already_exists:
                log.warning(
                    "topic not created", topic=new.name, error=result.error.name, reason=result.message
                )

    async def _create_internal_topic(self, name: str) -> Topic:
        [result] = await self._creator.create_topics([internal_topic(name, self._config)])
        topic = self._image.topics.get(name)
        if topic is not None:
            return topic  # created here, or by a client at the same time
        if isinstance(result, ApiError):
            raise result
        raise ApiError(
            ErrorCode.unknown_topic_or_partition, f"topic {name} was deleted right after its creation"
        )
