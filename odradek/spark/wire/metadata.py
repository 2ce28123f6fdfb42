"""Topics, how many partitions they have, and who leads each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odradek.spark.wire import messages
from odradek.spark.wire.exchange import Exchange, Exchanges, Refusal
from odradek.spark.wire.messages import METADATA
from odradek.spark.wire.network import Network

_NO_LEADER = -1


class Metadata:
    """What a cluster last said about topics; ``refresh`` asks again."""

    def __init__(self, network: Network, exchanges: Exchanges) -> None:
        self._network = network
        self._exchanges = exchanges
        self._leaders: dict[str, list[int]] = {}

    def partitions_of(self, topic: str) -> int:
        """``UnknownTopic`` if it is not there for as long as one waits."""
        if topic not in self._leaders:
            subject = f"topic {topic!r}"
            exchange = Exchange(
                METADATA, subject, None, lambda version: _request([topic], version), self._read_topic
            )
            self._exchanges.run([exchange])
            exchange.value()
        return len(self._leaders[topic])

    def leader(self, topic: str, partition: int) -> int | None:
        """Node id, as far as known; None while there is none."""
        leader = self._leaders[topic][partition]
        return leader if leader != _NO_LEADER and self._network.knows(leader) else None

    def refresh(self, topics: Iterable[str]) -> None:
        """One attempt to learn who leads. ``Retriable`` if nobody answered; what is not known yet stays as it was."""
        wanted = sorted(topics)
        answer, _ = self._exchanges.ask_once(
            self._network.anyone(), METADATA, lambda version: _request(wanted, version)
        )
        self._learn(answer)

    def nodes(self) -> list[int]:
        """The node ids of all brokers; one attempt to learn them. ``Retriable`` if nobody answered."""
        answer, _ = self._exchanges.ask_once(
            self._network.anyone(), METADATA, lambda version: _request([], version)
        )
        self._learn(answer)
        return [broker.node_id for broker in answer.brokers]

    def _read_topic(self, answer: Any, version: int) -> None:
        self._learn(answer)
        for topic in answer.topics:
            if topic.error_code:
                raise Refusal(int(topic.error_code))

    def _learn(self, answer: Any) -> None:
        for broker in answer.brokers:
            self._network.learn(broker.node_id, broker.host, broker.port)
        for topic in answer.topics:
            if topic.error_code or not topic.partitions:
                continue
            leaders = [_NO_LEADER] * len(topic.partitions)
            for partition in topic.partitions:
                leaders[partition.partition_index] = partition.leader_id
            self._leaders[topic.name] = leaders


def _request(topics: list[str], version: int) -> Any:
    """Like Kafka's producer, it has a missing topic created where the broker does so (auto.create.topics.enable)."""
    schema = messages.schema(METADATA, version)
    by_name: dict[str, Any] = {"topic_id": None} if version >= 10 else {}
    cluster: dict[str, Any] = {"include_cluster_authorized_operations": False} if version <= 10 else {}
    return schema.MetadataRequest(
        topics=tuple(schema.MetadataRequestTopic(name=topic, **by_name) for topic in topics),
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
        **cluster,
    )
