"""Apache Kafka from its jars, on free loopback ports with its own directory: the reference of the differential tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import raw
from tests.support.deadlines import HANG_S, TEST_S, Deadline
from tests.support.java import (
    KAFKA_VERSION,
    SHORT_LIVED,
    class_archive,
    java,
    kafka_classpath,
    with_archive,
)
from tests.support.javaprog import programs_classpath
from tests.support.relay import Relay

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
CLUSTER_ID = "b2RyYWRla19vcmFjbGVfMQ"


@dataclass
class Oracle:
    host: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path


def ask(wire: raw.Wire, api: str, version: int, **body: Any) -> dict[str, Any]:
    """Send a request and return the decoded body of its response."""
    wire.send_frame(raw.encode_request(api, version, body, 1))
    return raw.decode_response(api, version, wire.receive_frame())[1]


def archive_of(release: str) -> Path:
    """The archive of the classes of Kafka's broker, which the first broker of the usual release writes at its exit."""
    return class_archive(f"kafka-{release}")


def _ready(port: int) -> bool:
    try:
        wire = raw.Wire("127.0.0.1", port, timeout=HANG_S)
    except OSError:
        return False
    try:
        ask(wire, "api_versions", 0)
        answer = ask(wire, "init_producer_id", 0, transactional_id=None, transaction_timeout=1000)
        return answer["error_code"] == 0
    except (raw.Closed, raw.Silence):
        return False
    finally:
        wire.close()


def _wait(oracle: Oracle) -> None:
    deadline = Deadline(TEST_S)
    while not _ready(oracle.port):
        if oracle.process.poll() is not None or deadline.is_over:
            raise RuntimeError(f"Kafka did not start:\n{oracle.log.read_text()[-4000:]}")
        time.sleep(0.1)


def write_settings(directory: Path, port: int, properties: Mapping[str, str], standalone: bool) -> Path:
    """Write the ``server.properties`` of a node whose log directory is ``data`` in this directory."""
    controller = raw.free_port()
    quorum = {"controller.quorum.voters": f"1@127.0.0.1:{controller}"}
    if standalone:
        quorum = {"controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}"}
    settings = SETTINGS | {
        **quorum,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(directory / "data"),
        **properties,
    }
    file = directory / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def format_directory(
    home: Path,
    properties: Mapping[str, str] = {},
    *,
    transaction_version: int | None = 2,
    standalone: bool = False,
    arguments: Sequence[str] = (),
    release: str = KAFKA_VERSION,
) -> Path:
    """Write a settings file in ``home`` and format its log directory.

    The quorum's voters are those in the settings, or (``standalone``) a record in the log, as in Kafka's quick start.
    ``arguments`` are further arguments of the tool. Before Kafka 3.9 the tool has no option for feature levels, so
    ``transaction_version`` must be None.
    """
    settings = write_settings(home, raw.free_port(), properties, standalone)
    tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(settings)]
    if transaction_version is not None:
        tool += ["--feature", f"transaction.version={transaction_version}"]
    tool += arguments
    if standalone:
        tool.append("--standalone")
    options = ["-Xmx1g", *SHORT_LIVED, *with_archive(archive_of(release))]
    command = [java(), *options, "-cp", kafka_classpath(release), *tool]
    subprocess.run(command, check=True, capture_output=True, cwd=home)
    return settings


@contextmanager
def started(settings: Path, *, release: str = KAFKA_VERSION) -> Iterator[Oracle]:
    """Start the node of a settings file whose directory is formatted, and yield it when it serves requests."""
    home = settings.parent
    [listeners] = re.findall(r"^listeners=PLAINTEXT://[^:]*:(\d+)", settings.read_text(), re.MULTILINE)
    log = home / "kafka.log"
    # A plug-in for the broker (metric.reporters) is one of our Java programs.
    has_plugin = "metric.reporters=" in settings.read_text()
    classpath = programs_classpath() if has_plugin else kafka_classpath(release)
    archive = archive_of(release)
    written = archive.with_suffix(f".{os.getpid()}")
    options = ["-Xmx1g", *SHORT_LIVED, *with_archive(archive)]
    if release == KAFKA_VERSION and not has_plugin and not archive.exists():
        options = ["-Xmx1g", *SHORT_LIVED, f"-XX:ArchiveClassesAtExit={written}"]
    command = [java(), *options, "-cp", classpath, "kafka.Kafka", str(settings)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=home)
    oracle = Oracle("127.0.0.1", int(listeners), process, log)
    try:
        _wait(oracle)
        yield oracle
    finally:
        _stop(process)
        if written.exists():
            written.replace(archive)


@contextmanager
def kafka(
    properties: Mapping[str, str] = {}, *, transaction_version: int = 2, directory: Path | None = None
) -> Iterator[Oracle]:
    """Format and start a node, and yield it. Start only one node at a time, as a node needs a gigabyte of memory."""
    with tempfile.TemporaryDirectory(prefix="kafka-oracle-") as temporary:
        home = directory or Path(temporary)
        with started(format_directory(home, properties, transaction_version=transaction_version)) as oracle:
            yield oracle


class Restartable:
    """A node that a test can restart on the same directory and port."""

    def __init__(self, settings: Path, stack: ExitStack) -> None:
        self._settings = settings
        self._stack = stack
        self._oracle = stack.enter_context(started(settings))
        self.host, self.port = self._oracle.host, self._oracle.port

    def restart(self) -> None:
        self._stack.close()
        self._oracle = self._stack.enter_context(started(self._settings))


@contextmanager
def restartable(properties: Mapping[str, str] = {}, *, transaction_version: int = 2) -> Iterator[Restartable]:
    with tempfile.TemporaryDirectory(prefix="kafka-oracle-") as home, ExitStack() as stack:
        settings = format_directory(Path(home), properties, transaction_version=transaction_version)
        yield Restartable(settings, stack)


@contextmanager
def kafka_with_relay(
    properties: Mapping[str, str] = {}, *, transaction_version: int = 2
) -> Iterator[tuple[Oracle, Relay]]:
    """Like `kafka`, with a relay between the transaction coordinator and the partition leaders, all of them in this node.

    A test that holds WriteTxnMarkers in the relay keeps a transaction in PrepareCommit or PrepareAbort until it ends the
    hold.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-oracle-") as home, Relay() as relay:
        settings = format_directory(Path(home), properties, transaction_version=transaction_version)
        _advertise_to_brokers(relay, settings)
        with started(settings) as oracle:
            yield oracle, relay


def _advertise_to_brokers(relay: Relay, settings: Path) -> None:
    """Add a listener for inter-broker requests that advertises the relay's address."""
    port = raw.free_port()
    relay.forward_to("127.0.0.1", port)
    text = settings.read_text()
    for name, address in (("listeners", f"127.0.0.1:{port}"), ("advertised.listeners", relay.bootstrap)):
        text = re.sub(rf"^({re.escape(name)}=.*)$", rf"\1,REPLICATION://{address}", text, flags=re.MULTILINE)
    text += "inter.broker.listener.name=REPLICATION\n"
    text += "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,REPLICATION:PLAINTEXT\n"
    settings.write_text(text)


def add_listener(settings: Path, name: str) -> int:
    """Add a listener to a node that is not started yet, and return the port. The listener's security protocol must
    already be in the file."""
    port = raw.free_port()
    text = settings.read_text()
    for setting in ("listeners", "advertised.listeners"):
        text = re.sub(
            rf"^({re.escape(setting)}=.*)$", rf"\1,{name}://127.0.0.1:{port}", text, flags=re.MULTILINE
        )
    settings.write_text(text)
    return port


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(HANG_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(HANG_S)
