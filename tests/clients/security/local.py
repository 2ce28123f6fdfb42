"""Runs cells (a connection and an action, see `cells.py`) with librdkafka, aiokafka, kafka-python and Java's client.

The first three run in this process, the Java client in a JVM.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Final

import aiokafka
import kafka
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka.net.sasl.oauth import AbstractTokenProvider

from odradek.security import Authority, Client, Login, client_config
from tests.broker.security.sasl.world import unsecured
from tests.clients.security.cells import COMMITTED, ENDS_S, Cell
from tests.clients.security.world import World
from tests.support.clients import CLIENTS, Refused, TransactionalProducer, run_in_loop, tidy, value_of
from tests.support.deadlines import HANG_S, Deadline
from tests.support.javaprog import JavaFailed, java_clients

POLL_MS: Final = 50
KNOCK_MS: Final = 3000
"""Milliseconds after which a client that would retry for longer gives up."""
KNOCK_AGAIN_MS: Final = 500
"""Milliseconds between retries. The Java client's default of 50 ms would exhaust the rate limit of the broker's log."""
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


def token_of(cell: Cell) -> str:
    """The cell's fixed token, or a new unsecured token."""
    now_ms = time.time_ns() // 1_000_000
    return cell.token or unsecured(
        {"sub": cell.user, "iat": now_ms / 1000, "exp": (now_ms + cell.token_ms) / 1000}
    )


class LocalClient(ABC):
    """A client library. ``name`` is its name in `CLIENTS`, ``library`` its name for ``client_config``."""

    name: ClassVar[str]
    library: ClassVar[str]
    workers: ClassVar[int] = 8
    """Number of cells (connections with an action) that run concurrently."""

    def __init__(self, world: World, title: str) -> None:
        self.world = world
        self.title = title
        self._enough = threading.Event()

    def start(self, cells: Sequence[Cell]) -> dict[str, Future[dict[str, Any]]]:
        """Start the cells (connections with an action), first those that stay connected.

        Returns the future of each outcome by the name of the cell.
        """
        self._pool = ThreadPoolExecutor(self.workers)
        in_order = sorted(cells, key=lambda cell: cell.does != "stay")
        return {cell.name: self._pool.submit(self._outcome, cell) for cell in in_order}

    def finish(self) -> None:
        self._enough.set()
        self._pool.shutdown()
        tidy()

    def _outcome(self, cell: Cell) -> dict[str, Any]:
        try:
            match cell.does:
                case "transaction":
                    return {"values": self._transaction(cell)}
                case "stay":
                    return {"written": self._stay(cell)}
            self.knock(cell)
        except Refused as refused:
            return {"error": str(refused)}
        return {}

    def _transaction(self, cell: Cell) -> list[str]:
        producer = self._producer(cell, transactional_id=cell.topic(self.title))
        try:
            producer.init()
            for values, end in ((["aborted"], producer.abort), (COMMITTED, producer.commit)):
                producer.begin()
                producer.send(cell.topic(self.title), values)
                end()
        finally:
            producer.close()
        return self.read(cell)

    def _stay(self, cell: Cell) -> int:
        producer = self._producer(cell)
        written = 0
        try:
            while not self._enough.is_set():
                producer.send(cell.topic(self.title), ["staying"])
                self._enough.wait(POLL_MS / 1000)
                written += 1
        finally:
            producer.close()
        return written

    def _producer(self, cell: Cell, **options: Any) -> TransactionalProducer:
        bootstrap = self.world.bootstrap(cell.listener)
        return CLIENTS[self.name](bootstrap, more=self.config(cell), **options)

    def config(self, cell: Cell) -> dict[str, Any]:
        """The client's settings for a cell (a connection and an action), without a token."""
        folder = self.world.certificates
        protocol = cell.protocol_in(self.world)
        client = Client(
            self.world.bootstrap(cell.listener),
            protocol,
            folder / cell.ca / "ca.pem" if protocol.endswith("SSL") else None,
            Login(cell.user, cell.password, cell.mechanism) if cell.password else None,
            Authority(folder / cell.certificate) if cell.certificate else None,
        )
        return client_config(self.library, client)

    @abstractmethod
    def knock(self, cell: Cell) -> None:
        """Connect with the cell's settings. A client error is raised as `Refused`."""

    @abstractmethod
    def read(self, cell: Cell) -> list[str]:
        """Read all committed records of the cell's topic from the beginning; return their values."""


class Confluent(LocalClient):
    """librdkafka by confluent-kafka. It reports connection errors to a callback, and retries."""

    name, library = "confluent", "librdkafka"

    def config(self, cell: Cell) -> dict[str, Any]:
        config = {**super().config(cell), "client.id": cell.name, "log_level": 0}
        if cell.mechanism == "OAUTHBEARER":
            config["sasl.mechanism"] = cell.mechanism
            if cell.token:
                config["oauth_cb"] = lambda _: (cell.token, ENDS_S)
            else:
                seconds = cell.token_ms // 1000
                config["enable.sasl.oauthbearer.unsecure.jwt"] = True
                config["sasl.oauthbearer.config"] = f"principal={cell.user} lifeSeconds={seconds}"
        return config

    def knock(self, cell: Cell) -> None:
        errors: list[Any] = []
        client = Producer({**self.config(cell), "error_cb": errors.append})
        deadline = Deadline()
        while not errors:
            client.poll(POLL_MS / 1000)
            deadline.check(f"{cell.name}: an error")
        raise Refused(errors[0].name(), text=errors[0].str())

    def read(self, cell: Cell) -> list[str]:
        topic = cell.topic(self.title)
        consumer = Consumer({**self.config(cell), "group.id": topic, "isolation.level": "read_committed"})
        values: list[str] = []
        deadline = Deadline()
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            while len(values) < len(COMMITTED):
                deadline.check(f"{topic}: only {values}")
                for message in consumer.consume(len(COMMITTED), POLL_MS / 1000):
                    assert message.error() is None, message.error()
                    values.append(str(value_of(message), "utf-8"))
        finally:
            consumer.close()
        return values


class Java(LocalClient):
    name, library = "java", "java"
    workers = 2  # more would not help, as the shared JVM executes one call at a time

    def config(self, cell: Cell) -> dict[str, Any]:
        config = {**super().config(cell), "client.id": cell.name}
        if cell.mechanism == "OAUTHBEARER":
            config["sasl.mechanism"] = cell.mechanism
            config["sasl.jaas.config"] = f"{_OAUTH}.OAuthBearerLoginModule required{self._claims(cell)};"
            if cell.token:
                config |= self._from_file(cell)
        if cell.does == "knock":
            config |= dict.fromkeys(("reconnect.backoff.ms", "reconnect.backoff.max.ms"), KNOCK_AGAIN_MS)
        if cell.does == "knock" and cell.protocol:
            config["max.block.ms"] = (
                KNOCK_MS  # the client gets no error from a listener with another protocol
            )
        return config

    def _claims(self, cell: Cell) -> str:
        """Options of Kafka's login module from which it creates a token, if none is read from a file."""
        if cell.token:
            return ""
        seconds = cell.token_ms // 1000
        return f' unsecuredLoginStringClaim_sub="{cell.user}" unsecuredLoginLifetimeSeconds="{seconds}"'

    def _from_file(self, cell: Cell) -> dict[str, str]:
        file = self.world.certificates / f"{cell.name}.token"
        file.write_text(cell.token)
        return {
            "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }

    def start(self, cells: Sequence[Cell]) -> dict[str, Future[dict[str, Any]]]:
        files = (self.world.certificates / f"{cell.name}.token" for cell in cells)
        # Set for all cells at once, as they share a JVM.
        java_clients().ask("property", name=_ALLOWED_URLS, value=",".join(file.as_uri() for file in files))
        return super().start(cells)

    def knock(self, cell: Cell) -> None:
        producer = self._producer(cell, transactional_id=cell.name)
        try:
            producer.init()
        finally:
            producer.close()

    def read(self, cell: Cell) -> list[str]:
        java, topic = java_clients(), cell.topic(self.title)
        values: list[str] = []
        deadline = Deadline()
        try:
            config = {**self.config(cell), "isolation.level": "read_committed"}
            consumer = java.ask("consumer", config=config)
            java.ask("assign", on=consumer, partitions=[[topic, 0]])
            while len(values) < len(COMMITTED):
                deadline.check(f"{topic}: only {values}")
                values += [record[4] for record in java.ask("poll", on=consumer, timeout_ms=POLL_MS)]
            java.ask("close", on=consumer)
        except JavaFailed as failed:
            raise Refused(*failed.names, text=str(failed)) from failed
        return values


class _Token(AbstractTokenProvider):
    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self._cell = cell

    def token(self) -> str:
        return token_of(self._cell)


class KafkaPython(LocalClient):
    name, library = "kafka-python", "kafka-python"

    def config(self, cell: Cell) -> dict[str, Any]:
        config = {**super().config(cell), "client_id": cell.name}
        if cell.mechanism == "OAUTHBEARER":
            config |= {"sasl_mechanism": cell.mechanism, "sasl_oauth_token_provider": _Token(cell)}
        if cell.does == "knock":
            config |= dict.fromkeys(("reconnect_backoff_ms", "reconnect_backoff_max_ms"), KNOCK_MS)
        return config

    def knock(self, cell: Cell) -> None:
        try:
            kafka.KafkaAdminClient(**self.config(cell), bootstrap_timeout_ms=KNOCK_MS).close()
        except kafka.errors.KafkaError as failed:
            raise Refused(type(failed).__name__, text=str(failed)) from failed

    def read(self, cell: Cell) -> list[str]:
        consumer = kafka.KafkaConsumer(
            **self.config(cell), auto_offset_reset="earliest", isolation_level="read_committed"
        )
        values: list[str] = []
        deadline = Deadline()
        try:
            consumer.assign([kafka.TopicPartition(cell.topic(self.title), 0)])
            while len(values) < len(COMMITTED):
                deadline.check(f"{cell.name}: only {values}")
                for records in consumer.poll(POLL_MS).values():
                    values += [record.value.decode() for record in records]
        finally:
            consumer.close()
        return values


class _AioToken(AioTokenProvider):
    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    async def token(self) -> str:
        return token_of(self._cell)


class AioKafka(LocalClient):
    name, library = "aiokafka", "aiokafka"

    def start(self, cells: Sequence[Cell]) -> dict[str, Future[dict[str, Any]]]:
        run_in_loop(asyncio.sleep(0))  # create the shared event loop before there are threads
        return super().start(cells)

    def config(self, cell: Cell) -> dict[str, Any]:
        config = {**super().config(cell), "client_id": cell.name}
        if cell.mechanism == "OAUTHBEARER":
            config |= {"sasl_mechanism": cell.mechanism, "sasl_oauth_token_provider": _AioToken(cell)}
        return config

    def knock(self, cell: Cell) -> None:
        producer = self._producer(cell, transactional_id=cell.name)
        try:
            producer.init()
        finally:
            producer.close()

    def read(self, cell: Cell) -> list[str]:
        async def records() -> list[str]:
            consumer = aiokafka.AIOKafkaConsumer(
                **self.config(cell), auto_offset_reset="earliest", isolation_level="read_committed"
            )
            await consumer.start()
            try:
                consumer.assign([aiokafka.TopicPartition(cell.topic(self.title), 0)])
                return [(await consumer.getone()).value.decode() for _ in COMMITTED]
            finally:
                await consumer.stop()

        return run_in_loop(records(), HANG_S)
