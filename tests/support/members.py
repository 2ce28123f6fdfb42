"""A consumer group member, for each client library that fails over to another broker.

with member("java", bootstrap, "group", "topic") as one:
    one.poll()        # the values of one poll
    one.commit()      # commit the positions after these values
"""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Any, Protocol

from confluent_kafka import Consumer, TopicPartition

from tests.support.clients import PATIENCE, offset_of, place_of, run_in_loop, tidy, value_of
from tests.support.javaprog import java_clients

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import aiokafka

POLL_MS = 100
Record = tuple[int, int, str]
"""(partition, offset, value) of a consumed record."""


class Library(Protocol):
    def __init__(self, bootstrap: str, group: str, topic: str) -> None: ...
    def poll(self) -> list[Record]: ...
    def commit(self, topic: str, positions: dict[int, int]) -> None: ...
    def close(self) -> None: ...


class Member:
    def __init__(self, library: Library, topic: str) -> None:
        self._library = library
        self._topic = topic
        self._positions: dict[int, int] = {}

    def poll(self) -> list[str]:
        records = self._library.poll()
        for partition, offset, _ in records:
            self._positions[partition] = offset + 1
        return [value for _, _, value in records]

    def commit(self) -> None:
        if self._positions:
            self._library.commit(self._topic, self._positions)

    def __enter__(self) -> Member:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.close()
        tidy()


class ConfluentMember:
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                **PATIENCE,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 50,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[Record]:
        messages = self._consumer.consume(100, POLL_MS / 1000)
        return [(place_of(m)[1], offset_of(m), value_of(m).decode()) for m in messages if m.error() is None]

    def commit(self, topic: str, positions: dict[int, int]) -> None:
        places = [TopicPartition(topic, partition, offset) for partition, offset in positions.items()]
        self._consumer.commit(offsets=places, asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class AioKafkaMember:
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=200,
                retry_backoff_ms=20,
                fetch_max_wait_ms=50,
            )
            await consumer.start()
            return consumer

        self._consumer = run_in_loop(start())

    def poll(self) -> list[Record]:
        polled: dict[Any, list[Any]] = run_in_loop(self._consumer.getmany(timeout_ms=POLL_MS))
        return [(m.partition, m.offset, m.value.decode()) for each in polled.values() for m in each]

    def commit(self, topic: str, positions: dict[int, int]) -> None:
        offsets = {aiokafka.TopicPartition(topic, partition): at for partition, at in positions.items()}
        run_in_loop(self._consumer.commit(offsets))

    def close(self) -> None:
        run_in_loop(self._consumer.stop())


class JavaMember:
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "heartbeat.interval.ms": 200,
            "retry.backoff.ms": 20,
        }
        self._java = java_clients()
        self._on = self._java.ask("consumer", config=config)
        self._java.ask("subscribe", on=self._on, topics=[topic])

    def poll(self) -> list[Record]:
        polled = self._java.ask("poll", on=self._on, timeout_ms=POLL_MS)
        return [(partition, offset, value) for _, partition, offset, _, value in polled]

    def commit(self, topic: str, positions: dict[int, int]) -> None:
        offsets = [[topic, partition, offset] for partition, offset in positions.items()]
        self._java.ask("commit", on=self._on, offsets=offsets)

    def close(self) -> None:
        self._java.ask("close", on=self._on)


_LIBRARIES: dict[str, type[Library]] = {
    "confluent": ConfluentMember,
    "aiokafka": AioKafkaMember,
    "java": JavaMember,
}


def member(client: str, bootstrap: str, group: str, topic: str) -> Member:
    return Member(_LIBRARIES[client](bootstrap, group, topic), topic)
