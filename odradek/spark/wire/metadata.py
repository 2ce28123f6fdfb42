"""A cache of topic metadata: the number of partitions and the id of each topic, and the partitions' leaders."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable
from typing import Any

from odradek._protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.spark.wire.errors import Retriable, UnknownTopic
from odradek.spark.wire.exchange import Exchange, Exchanges, Malformed, Refusal
from odradek.spark.wire.messages import METADATA
from odradek.spark.wire.network import Network
from odradek.spark.wire.settings import ClientSettings

_NO_LEADER = -1


class Metadata:
    """The topic metadata of the last Metadata responses; ``refresh`` requests them again."""

    def __init__(self, settings: ClientSettings, network: Network, exchanges: Exchanges) -> None:
        self._settings = settings
        self._network = network
        self._exchanges = exchanges
        self._leaders: dict[str, list[int]] = {}
        self._learned_at: dict[str, float] = {}
        self._ids: dict[str, bytes] = {}

    def partitions_of(self, topic: str, *, refresh: bool = False) -> int:
        """Number of partitions of a topic. Raises ``UnknownTopic`` if the topic does not exist for ``max.block.ms``."""
        learned_at = self._learned_at.get(topic, -math.inf)
        if refresh or time.monotonic() - learned_at > self._settings.metadata_max_age_ms / 1000:
            exchange = self._asking(topic, creating=True)
            self._exchanges.run([exchange], self._settings.max_block_ms)
            exchange.value()
        return len(self._leaders[topic])

    def topic_id(self, topic: str) -> bytes:
        """The 16 bytes of the id of a topic whose metadata are cached, zeros if the broker has no ids."""
        return self._ids[topic]

    def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        """Request the ids of topics; a topic that does not exist for ``max.block.ms`` is left out."""
        asked = sorted(topics)
        found: dict[str, bytes] = {}
        with contextlib.suppress(Retriable):
            answer = self._ask(asked, creating=False)
            found = {each.name: self._ids[each.name] for each in answer.topics if self._is_whole(each)}
        exchanges = {topic: self._asking(topic, creating=False) for topic in asked if topic not in found}
        self._exchanges.run(list(exchanges.values()), self._settings.max_block_ms)
        for topic, exchange in exchanges.items():
            with contextlib.suppress(UnknownTopic):
                exchange.value()
                found[topic] = self._ids[topic]
        return found

    def _asking(self, topic: str, *, creating: bool) -> Exchange:
        return Exchange(
            METADATA,
            f"topic {topic!r}",
            None,
            _request([topic], creating=creating),
            lambda answer, _: self._read_topic(topic, answer),
        )

    def leader(self, topic: str, partition: int) -> int | None:
        """Node id of the partition's leader, None if the partition has no leader or is not cached."""
        leaders = self._leaders[topic]
        # A topic that was deleted and created again may have fewer partitions.
        leader = leaders[partition] if partition < len(leaders) else _NO_LEADER
        return leader if leader != _NO_LEADER and self._network.knows(leader) else None

    def refresh(self, topics: Iterable[str]) -> None:
        """Request the topics' metadata once. Raises ``Retriable``, and keeps the cache, if no broker responded."""
        self._ask(sorted(topics))

    def nodes(self) -> list[int]:
        """Request the node ids of all brokers, once. Raises ``Retriable`` if no broker responded."""
        return [broker.node_id for broker in self._ask([]).brokers]

    def _ask(self, topics: list[str], *, creating: bool = True) -> Any:
        answer, _ = self._exchanges.ask_once(
            self._network.anyone(), METADATA, _request(topics, creating=creating)
        )
        self._learn(answer)
        return answer

    def _read_topic(self, asked: str, answer: Any) -> None:
        self._learn(answer)
        for topic in answer.topics:
            if topic.error_code:
                raise Refusal(topic.error_code)
        # Cached metadata do not count: the topic may have been deleted and created again since.
        if not any(topic.name == asked and self._is_whole(topic) for topic in answer.topics):
            raise Malformed(f"topic {asked!r} with its partitions is missing")

    @staticmethod
    def _is_whole(topic: Any) -> bool:
        return not topic.error_code and bool(topic.partitions)

    def _learn(self, answer: Any) -> None:
        for broker in answer.brokers:
            self._network.learn(broker.node_id, broker.host, broker.port)
        for topic in answer.topics:
            if not self._is_whole(topic):
                continue
            leaders = [_NO_LEADER] * len(topic.partitions)
            for partition in topic.partitions:
                if 0 <= partition.partition_index < len(leaders):
                    leaders[partition.partition_index] = partition.leader_id
            self._leaders[topic.name] = leaders
            self._learned_at[topic.name] = time.monotonic()
            # Topics have ids since KIP-516.
            self._ids[topic.name] = topic.topic_id.bytes if topic.topic_id else bytes(16)


def _request(topics: list[str], *, creating: bool) -> Any:
    """A Metadata request for the topics.

    With ``creating``, the broker may create missing topics (auto.create.topics.enable), as for Kafka's producer.
    """
    asked = [MetadataRequestTopic(name=topic) for topic in topics]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=creating)
