"""The brokers of the comparison, each a separate process."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.peers.load import load_program
from benchmarks.targets import (
    HOST,
    START_TIMEOUT_S,
    Odradek,
    OdradekWithControlPort,
    Running,
    Target,
    TargetFailed,
)

# The JVM options of bin/kafka-server-start.sh, instead of the garbage collector and single compiler that the tests use.
KAFKA_JVM: Final = (
    "-server",
    "-Xmx1g",
    "-Xms1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
# By default the files of a deleted topic stay for a minute, and their deletion would disturb another measure.
KAFKA_SETTINGS: Final = {"log.segment.delete.delay.ms": "1000"}


class Kafka(Target):
    """Apache Kafka from its jars: one node, with default settings except for those that a single node needs."""

    name = "kafka"

    def __init__(self) -> None:
        self._formatted: Path | None = None

    def prepare(self, port: int, data: Path) -> None:
        from tests.support.kafka_oracle import format_directory, write_settings

        home = data.parent
        if not data.exists():
            # Formatting needs a separate JVM, so do it once. Each node starts with a copy.
            if self._formatted is None:
                template = home.parent / "kafka-formatted"
                template.mkdir(exist_ok=True)
                format_directory(template)
                self._formatted = template / "data"
            shutil.copytree(self._formatted, data)
        write_settings(home, port, self.properties(), standalone=False)

    def properties(self) -> Mapping[str, str]:
        """Settings in addition to those that a single node needs."""
        return KAFKA_SETTINGS

    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]:
        from tests.support.java import java, kafka_classpath

        properties = str(data.parent / "server.properties")
        return [java(), *KAFKA_JVM, "-cp", kafka_classpath(), "kafka.Kafka", properties]


class Kfake(Target):
    """franz-go's fake cluster with one broker, which keeps its records in memory."""

    name = "kfake"

    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]:
        return [load_program(), "kfake", "-port", str(port)]


class KfakeOnDisk(Kfake):
    """franz-go's fake cluster with a data directory, which it reads at the start."""

    name = "kfake-disk"

    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]:
        return [*super().command(port, data, settings), "-data", str(data)]


class Null(Target):
    """A broker that responds to producers and stores nothing: it shows the limit of the client."""

    name = "null"

    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]:
        return [load_program(), "null", "-port", str(port)]


class Mock(Target):
    """librdkafka's mock cluster. It chooses its port, and prints it on the first line of its output."""

    name = "mock"

    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]:
        return [sys.executable, "-m", "benchmarks.peers.mock"]

    @contextmanager
    def running(self, directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Running]:
        with super().running(directory, settings) as target:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not (said := target.log.read_text("utf-8", "replace")).endswith("\n"):
                if target.process.poll() is not None or time.monotonic() > deadline:
                    raise TargetFailed(said[-4000:] or f"no mock cluster at {HOST}")
                time.sleep(0.001)
            target.port = int(said.splitlines()[0].rpartition(":")[2])
            yield target


TARGETS: Final[dict[str, type[Target]]] = {
    target.name: target for target in (Odradek, OdradekWithControlPort, Kafka, Kfake, KfakeOnDisk, Mock, Null)
}


@cache
def target(name: str) -> Target:
    return TARGETS[name]()
