"""The targets of the benchmarks: brokers, each a separate process. To add one, add a class to ``TARGETS``."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from odradek._server import command

HOST: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 60.0
ROOT: Final = Path(__file__).parents[1]


class TargetFailed(Exception):
    """The target did not start, or it died. The message contains the end of its log."""


@dataclass
class Running:
    """A target that has started."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    spawned_at: float
    """``perf_counter`` just before the process was started."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def connect(self) -> socket.socket:
        """Connect, retrying until the target accepts a connection."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                connection = socket.create_connection((HOST, self.port))
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise TargetFailed(self.log.read_text("utf-8", "replace")[-4000:]) from error
                time.sleep(0.001)
            else:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Target(ABC):
    """A kind of broker that can be started."""

    name: str

    @abstractmethod
    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]: ...

    def prepare(self, port: int, data: Path) -> None:
        """Prepare the directory, as Kafka formats its own. This time does not count as part of the start."""
        data.mkdir(parents=True, exist_ok=True)

    def environment(self) -> Mapping[str, str]:
        return os.environ

    @contextmanager
    def running(self, directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Running]:
        """Start a new target with data below ``directory``, and stop it after the block. ``settings`` are Kafka's."""
        directory.mkdir(parents=True, exist_ok=True)
        port, data, log = free_port(), directory / "data", directory / "log"
        self.prepare(port, data)
        command = self.command(port, data, settings or {})
        with log.open("wb") as output:
            spawned_at = time.perf_counter()
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=self.environment(),
                # Start a new session, as Docker, systemd and `odradek.Broker` do. Within one session Linux weighs the
                # broker's thread against each of the client's (sched_autogroup): librdkafka has fifty for 16 producers.
                start_new_session=True,
            )
        target = Running(process, port, log, spawned_at)
        try:
            yield target
        finally:
            target.stop()


class Odradek(Target):
    """The broker of this checkout, as `odradek serve` starts it."""

    name = "odradek"

    def environment(self) -> Mapping[str, str]:
        """Enable the cache of compiled modules, as for users, whatever this machine's environment says."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return kept | {"PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "bytecode")}

    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]:
        options = [option for name, value in settings.items() for option in ("--set", f"{name}={value}")]
        address = ["--host", HOST, "--port", str(port)]
        return command("serve", *address, "--data-dir", str(data), *options)


class OdradekWithControlPort(Odradek):
    """The broker with a control port, as `odradek.Broker`, the pytest fixtures and the Testcontainers module start it."""

    name = "odradek-control"

    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]:
        return [*super().command(port, data, settings), "--control-port", "0"]


def control_address(running: Running) -> tuple[str, int]:
    """The address of the control port, read from the target's log."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (
        found := re.search(
            r'"control": ?"http://([^:"]+):([0-9]+)"', running.log.read_text("utf-8", "replace")
        )
    ):
        if running.process.poll() is not None or time.monotonic() > deadline:
            raise TargetFailed(running.log.read_text("utf-8", "replace")[-4000:])
        time.sleep(0.001)
    return found[1], int(found[2])


TARGETS: Final[dict[str, type[Target]]] = {target.name: target for target in (Odradek,)}


def free_port() -> int:
    # The port must be below the range of ephemeral ports.
    for port in range(21_000 + os.getpid() % 5_000, 32_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise TargetFailed("no free port")
