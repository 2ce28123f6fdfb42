"""The clients around the job: who makes the topics, who reads the result. Both confluent-kafka's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from odradek.demo.clients import TIMEOUT_S, read_all
from odradek.demo.worker import PATIENCE
from odradek.errors import OdradekError

BROKERS_DEFAULT = -1


class KafkaRefused(OdradekError):
    """The Kafka that was named does not do what is needed."""


def _admin(bootstrap: str) -> AdminClient:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, **PATIENCE}
    return AdminClient(settings)


def create_topics(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Topics that are not there yet, by name and number of partitions."""
    admin = _admin(bootstrap)
    wanted = [NewTopic(name, count, BROKERS_DEFAULT) for name, count in topics.items()]
    for name, made in admin.create_topics(wanted, operation_timeout=TIMEOUT_S).items():
        try:
            made.result(TIMEOUT_S)
        except KafkaException as failure:
            raise KafkaRefused(
                f"{bootstrap} did not make the topic {name}: {failure.args[0].str()}"
            ) from None


def delete_topics(bootstrap: str, names: list[str]) -> None:
    admin = _admin(bootstrap)
    for deleted in admin.delete_topics(names, operation_timeout=TIMEOUT_S).values():
        deleted.result(TIMEOUT_S)


def read_delays(bootstrap: str, topic: str, isolation_level: str) -> list[tuple[str, str]]:
    """(key, value) of every record that a reader sees."""
    return [
        ((message.key() or b"").decode(), (message.value() or b"").decode())
        for message in read_all(bootstrap, topic, isolation_level)
    ]
