"""Kafka Connect, distributed: the lines of a file are copied into a topic exactly once, and from there into another file."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.clients.jvm.http_json import ask_json
from tests.clients.jvm.kills import GROUP_DEATHS, SETTINGS, TRANSACTION_DEATHS, Kill, Loop, run
from tests.support.broker import Broker, StartBroker
from tests.support.clients import eventually, topic_settings, topics, values
from tests.support.deadlines import HANG_S
from tests.support.foreign import Running
from tests.support.jvm import jvm_program
from tests.support.raw import free_port

pytestmark = [pytest.mark.foreign, pytest.mark.client("Kafka Connect")]

INTERNAL = {"config": 1, "offset": 3, "status": 2}
"""Internal topics that the workers create, with their numbers of partitions."""


class Worker(Running):
    """A Connect worker, with its REST API. A signal ends the worker."""

    def __init__(self, command: list[str], port: int) -> None:
        super().__init__(command)
        self._port = port

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and body of a response. Status 0 while the worker does not respond."""
        return ask_json(self._port, method, path, body)

    def finish(self) -> list[dict[str, Any]]:
        self._process.terminate()
        try:
            self._process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the worker is still running {HANG_S} s after SIGTERM\n{self.complaints}"
            ) from None
        return self.seen


class ConnectLoop(Loop):
    name = "connect"
    framework: ClassVar[str] = "connect"
    converter: ClassVar[str] = "org.apache.kafka.connect.storage.StringConverter"
    topics = ("lines:1",)
    output = "lines"
    portion = 40
    deaths: ClassVar[tuple[str, ...]] = (*TRANSACTION_DEATHS, *GROUP_DEATHS)

    @property
    def source(self) -> Path:
        return self.directory / "source.txt"

    @property
    def sink(self) -> Path:
        return self.directory / "sink.txt"

    def open(self) -> None:
        self.source.touch()

    def connectors(self) -> dict[str, dict[str, str]]:
        return {
            "source": {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "file": str(self.source),
                "topic": "lines",
                "exactly.once.support": "required",
            },
            "sink": {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
                "file": str(self.sink),
                "topics": "lines",
            },
        }

    def worker_settings(self, port: int) -> dict[str, str]:
        settings = {
            "bootstrap.servers": self.broker.bootstrap,
            "group.id": "workers",
            "listeners": f"http://127.0.0.1:{port}",
            "key.converter": self.converter,
            "value.converter": self.converter,
            "exactly.once.source.support": "enabled",
            "consumer.isolation.level": "read_committed",
            "consumer.auto.offset.reset": "earliest",
            "consumer.session.timeout.ms": "2000",
            "consumer.heartbeat.interval.ms": "200",
            "offset.flush.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            "rebalance.timeout.ms": "5000",
            "session.timeout.ms": "2000",
            "heartbeat.interval.ms": "200",
            "reconnect.backoff.max.ms": "100",
            "producer.transaction.timeout.ms": "5000",
        }
        for name, partitions in INTERNAL.items():
            settings[f"{name}.storage.topic"] = f"connect-{name}"
            settings[f"{name}.storage.replication.factor"] = "1"
            if partitions > 1:
                settings[f"{name}.storage.partitions"] = str(partitions)
        return settings

    def member(self, number: int) -> Worker:
        port = free_port()
        file = self.directory / f"worker-{number}.properties"
        settings = self.worker_settings(port)
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = jvm_program(self.framework, "org.apache.kafka.connect.cli.ConnectDistributed").command
        worker = Worker([*command, str(file)], port)
        if number == 0:
            try:
                self.create_connectors(worker)
            except BaseException:
                worker.close()
                raise
        return worker

    def create_connectors(self, worker: Worker) -> None:
        for name, settings in self.connectors().items():

            def created(name: str = name, settings: dict[str, str] = settings) -> bool:
                assert worker.is_alive, worker.complaints
                status, answer = worker.ask("PUT", f"/connectors/{name}/config", settings)
                # A worker that has not joined its group yet does not know the leader.
                assert status in (0, 200, 201, 404, 409, 500, 503), answer
                return status in (200, 201)

            eventually(created, f"the connector {name} exists")

    def feed(self, first: int, count: int) -> None:
        with self.source.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(first, first + count))

    def is_done(self, count: int) -> bool:
        sunk = self.sink.read_text().splitlines() if self.sink.exists() else []
        return len(set(sunk)) >= count and len(values(self.broker.bootstrap, self.output)) >= count

    def check(self, count: int) -> None:
        lines = [f"line {number}" for number in range(count)]
        assert values(self.broker.bootstrap, self.output) == lines
        # This sink is at-least-once: after a kill it writes lines again.
        assert set(self.sink.read_text().splitlines()) == set(lines)


@pytest.mark.feature(
    "exactly-once loop",
    "exactly-once loop, members killed",
    "exactly-once loop, broker killed",
    "state stores and internal topics",
)
def test_a_file_is_copied_once_whatever_is_killed(start_broker: StartBroker, tmp_path: Path):
    broker = start_broker(topics=ConnectLoop.topics, settings=SETTINGS)
    run(ConnectLoop(broker, tmp_path), [Kill("broker", "txn.marker.after:2"), Kill("member", after=10)])
    expect_internal_topics(broker)


def expect_internal_topics(broker: Broker) -> None:
    there = topics(broker.bootstrap)
    for name, partitions in INTERNAL.items():
        assert there[f"connect-{name}"] == partitions
        assert topic_settings(broker.bootstrap, f"connect-{name}")["cleanup.policy"] == "compact"
