"""Scenario A8: the consume-process-produce loop is killed at each step and restarted.

Each result is in the output exactly once.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.demo.doomed import restart_doomed
from tests.scenarios.conftest import named
from tests.support.broker import Broker, StartBroker
from tests.support.clients import ConfluentProducer, committed_offset, eventually, read
from tests.support.deadlines import HANG_S
from tests.support.javaprog import worker_command

# All four take eighty seconds, so two of them run only in the longer tier.
SOME = [
    named("aiokafka"),
    named("confluent"),
    named("kafka-python", marks=[pytest.mark.more]),
    named("java", marks=[pytest.mark.java, pytest.mark.more]),
]
PARTITIONS = 2
STEPS = ("init:1", "poll:2", "begin:1", "send:2", "offsets:1", "commit:2")
ROOT = Path(__file__).parents[2]
NEVER = "never:1"
# Crash points at which the broker dies, and at which hit. The order is arbitrary; every few transactions reach each of them.
DEATHS = (
    "txn.begin.append:2",
    "txn.prepare.before:3",
    "txn.prepare.after:2",
    "txn.marker.before:4",
    "txn.marker.after:3",
    "txn.complete.before:2",
    "txn.complete.after:3",
    "txn.offset.commit.after:2",
    "group.append.before:3",
    "group.append.after:2",
    "file.write:11",
    "file.write:18",
)


class Workers:
    """Starts worker processes of the loop, one at a time."""

    def __init__(self, client: str, broker: Broker, directory: Path) -> None:
        self._client = client
        self._broker = broker
        self._log = directory / "workers.log"
        self._process: subprocess.Popen[str] | None = None
        self.reached = threading.Event()

    def start(self, step: str = NEVER) -> None:
        arguments = [self._broker.bootstrap, "source", "sink", step]
        if self._client == "java":
            command = worker_command(*arguments)
        else:
            command = [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "tests.scenarios.loop_workers",
                self._client,
                *arguments,
            ]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.reached = threading.Event()
        threading.Thread(target=self._listen, args=(self._process, self.reached), daemon=True).start()

    @staticmethod
    def _listen(process: subprocess.Popen[str], reached: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout:
            for _ in process.stdout:
                reached.set()

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> int:
        assert self._process is not None
        self._process.kill()
        return self._process.wait(HANG_S)

    def complaints(self) -> str:
        return self._log.read_text()[-3000:]


@pytest.fixture
def workers(client: str, start_broker: StartBroker, tmp_path: Path) -> Iterator[Callable[[Broker], Workers]]:
    made = []

    def make(broker: Broker) -> Workers:
        made.append(Workers(client, broker, tmp_path))
        return made[-1]

    yield make
    for each in made:
        if each.is_alive:
            each.kill()


def fill(broker: Broker, count: int) -> None:
    producer = ConfluentProducer(broker.bootstrap)
    for partition in range(PARTITIONS):
        producer.send("source", [f"{partition}-{number}" for number in range(count)], partition=partition)
    producer.close()


def all_is_moved(broker: Broker, count: int) -> bool:
    return all(
        committed_offset(broker.bootstrap, "loop", "source", partition) == count
        for partition in range(PARTITIONS)
    )


def assert_each_result_is_there_once(broker: Broker, count: int) -> None:
    results = read(broker.bootstrap, "sink")
    for partition in range(PARTITIONS):
        found = [each.value for each in results if each.partition == partition]
        assert found == [f"<{partition}-{number}>" for number in range(count)]


@pytest.mark.feature("exactly-once loop, members killed", "exactly-once loop")
@pytest.mark.parametrize("client", SOME, indirect=True)
def test_a_worker_killed_at_any_step_leaves_each_result_once(
    client: str, start_broker: StartBroker, workers: Callable[[Broker], Workers]
):
    """Scenario A8: workers are killed with SIGKILL at each step in turn, and a last worker finishes.

    Each result is in the output once.
    """
    count = 40
    broker = start_broker(topics=[f"source:{PARTITIONS}", f"sink:{PARTITIONS}"])
    fill(broker, count)
    crew = workers(broker)
    steps = STEPS[1::2] if client == "java" else STEPS  # a JVM takes seconds to start
    for step in steps:
        crew.start(step)
        assert crew.reached.wait(HANG_S), f"{step} was not reached\n{crew.complaints()}"
        assert crew.is_alive, f"{step}\n{crew.complaints()}"
        assert crew.kill() == -signal.SIGKILL
    crew.start()
    eventually(lambda: all_is_moved(broker, count), "all records are processed")
    assert crew.is_alive, crew.complaints()
    assert_each_result_is_there_once(broker, count)


@pytest.mark.feature("exactly-once loop, broker killed")
@pytest.mark.parametrize("client", SOME, indirect=True)
def test_a_broker_killed_at_any_point_leaves_each_result_once(
    client: str, start_broker: StartBroker, workers: Callable[[Broker], Workers]
):
    """Scenario A8: the broker dies at each crash point in turn, and a worker that ends with an error is started again.

    Each result is in the output once.
    """
    count = 300
    broker = start_broker(topics=[f"source:{PARTITIONS}", f"sink:{PARTITIONS}"])
    fill(broker, count)
    crew = workers(broker)
    crew.start()
    broker.terminate()
    for death in DEATHS:
        restart_doomed(broker, death)

        def dead() -> bool:
            if not crew.is_alive:
                crew.start()
            return not broker.is_running

        eventually(dead, f"the broker dies at {death}\n{crew.complaints()}")
        assert broker.wait() == -signal.SIGKILL
    broker.restart(environment={})

    def moved() -> bool:
        if not crew.is_alive:
            crew.start()
        return all_is_moved(broker, count)

    eventually(moved, "all records are processed")
    assert_each_result_is_there_once(broker, count)
