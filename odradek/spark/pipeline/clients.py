"""Create the topics and read the results, with the clients of confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.demo.clients import TIMEOUT_S
from odradek.demo.worker import PATIENCE
from odradek.errors import OdradekError
from odradek.spark.testing.kafka import Kafka

BROKERS_DEFAULT = -1


class KafkaRefused(OdradekError):
    """The Kafka cluster given by the user rejected a request."""


def _admin(bootstrap: str) -> AdminClient:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, **PATIENCE}
    return AdminClient(settings)


def create_topics(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Create the topics (number of partitions by name) that do not exist yet."""
    admin = _admin(bootstrap)
    wanted = [NewTopic(name, count, BROKERS_DEFAULT) for name, count in topics.items()]
    for name, made in admin.create_topics(wanted, operation_timeout=TIMEOUT_S).items():
        try:
            made.result(TIMEOUT_S)
        except KafkaException as failure:
            raise KafkaRefused(
                f"{bootstrap} did not create the topic {name}: {failure.args[0].str()}"
            ) from None


def delete_topics(bootstrap: str, names: list[str]) -> None:
    admin = _admin(bootstrap)
    for deleted in admin.delete_topics(names, operation_timeout=TIMEOUT_S).values():
        deleted.result(TIMEOUT_S)


def read_delays(bootstrap: str, topic: str, isolation_level: str) -> list[tuple[str, str]]:
    """The key and value of every record that a consumer with this isolation level reads."""
    return [
        ((record.key or b"").decode(), (record.value or b"").decode())
        for record in Kafka(bootstrap).read(topic, isolation_level)
    ]
