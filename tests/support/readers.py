"""One consumer of each client library that reads partition 0 of a topic from its beginning, without a group."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.support.clients import PATIENCE, run_in_loop, tidy, value_of
from tests.support.deadlines import Deadline
from tests.support.javaprog import java_clients

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import aiokafka
    import kafka


POLLS = 5
"""Number of polls in `Reader.sees`. Each poll is a Fetch, with a response after at most 100 ms."""


class Poller(Protocol):
    def __init__(self, bootstrap: str, topic: str, isolation_level: str) -> None: ...
    def poll(self) -> list[str]: ...
    def close(self) -> None: ...


class Reader:
    def __init__(self, poller: Poller) -> None:
        self._poller = poller

    def read(self, count: int) -> list[str]:
        """Read at least ``count`` values, more if a poll returns more."""
        found: list[str] = []
        deadline = Deadline()
        while len(found) < count:
            deadline.check(f"{count} values; {found}")
            found += self._poller.poll()
        return found

    def sees(self) -> list[str]:
        """Poll ``POLLS`` times and return the values. Most tests use this to show that there are none."""
        return [value for _ in range(POLLS) for value in self._poller.poll()]

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._poller.close()
        tidy()


class ConfluentReader:
    def __init__(self, bootstrap: str, topic: str, isolation_level: str) -> None:
        self._consumer = Consumer(
            {
                **PATIENCE,
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "isolation.level": isolation_level,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def poll(self) -> list[str]:
        messages = self._consumer.consume(100, 0.1)
        return [value_of(each).decode() for each in messages if each.error() is None]

    def close(self) -> None:
        self._consumer.close()


class JavaReader:
    def __init__(self, bootstrap: str, topic: str, isolation_level: str) -> None:
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation_level,
            "enable.auto.commit": "false",
        }
        self._java = java_clients()
        self._on = self._java.ask("consumer", config=config)
        self._java.ask("assign", on=self._on, partitions=[[topic, 0]])

    def poll(self) -> list[str]:
        return [record[4] for record in self._java.ask("poll", on=self._on, timeout_ms=100)]

    def close(self) -> None:
        self._java.ask("close", on=self._on)


class KafkaPythonReader:
    def __init__(self, bootstrap: str, topic: str, isolation_level: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=isolation_level, auto_offset_reset="earliest"
        )
        self._consumer.assign([kafka.TopicPartition(topic, 0)])

    def poll(self) -> list[str]:
        polled = self._consumer.poll(100)
        return [each.value.decode() for records in polled.values() for each in records]

    def close(self) -> None:
        self._consumer.close()


class AioKafkaReader:
    def __init__(self, bootstrap: str, topic: str, isolation_level: str) -> None:
        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap, isolation_level=isolation_level, auto_offset_reset="earliest"
            )
            await consumer.start()
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            return consumer

        self._consumer = run_in_loop(start())

    def poll(self) -> list[str]:
        polled: dict[Any, list[Any]] = run_in_loop(self._consumer.getmany(timeout_ms=100))
        return [each.value.decode() for records in polled.values() for each in records]

    def close(self) -> None:
        run_in_loop(self._consumer.stop())


_POLLERS: dict[str, type[Poller]] = {
    "confluent": ConfluentReader,
    "java": JavaReader,
    "kafka-python": KafkaPythonReader,
    "aiokafka": AioKafkaReader,
}


def reader(client: str, bootstrap: str, topic: str, isolation_level: str = "read_committed") -> Reader:
    return Reader(_POLLERS[client](bootstrap, topic, isolation_level))
