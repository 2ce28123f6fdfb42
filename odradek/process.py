"""A broker as a process, controlled only through its command line and its log.

    with BrokerProcess(Path("work"), topics=["orders:4"]) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        broker.kill()
        broker.restart()

Its interpreter is isolated: it does not import the user's own packages ``broker``, ``protocol`` or ``storage``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from odradek._server import Program, command, ends_with_stdin
from odradek.child import Child
from odradek.deadlines import stretched
from odradek.errors import HIDDEN_IN_TRACEBACKS, BrokerFailed

__tracebackhide__ = HIDDEN_IN_TRACEBACKS

__all__ = ["BrokerFailed", "BrokerProcess"]

HOST: Final = "127.0.0.1"
# Below the range from which the system assigns clients' ephemeral ports: a client that retries a connection to a broker that
# is down could otherwise be assigned that very port, and connect to itself.
PORTS: Final = range(15_000, 32_000)
START_TIMEOUT_S: Final = stretched(60.0)
STOP_TIMEOUT_S: Final = stretched(30.0)
POLL_S: Final = 0.005
# Names of the settings whose type is PASSWORD.
_SECRET: Final = re.compile(
    r"(password|passphrase|jaas\.config|keystore\.key|certificate\.chain|secret(\.key)?|\.token(\.\w+)?)$"
)
TRACEBACK: Final = "Traceback (most recent call last)"


class BrokerProcess:
    """One broker: its data directory, its port, and at most one process at a time.

    The broker's process ends when this process ends, for whatever reason. With ``is_temporary``, ``directory`` is then
    deleted. With ``program="proxy"`` the process is a proxy, which has no data directory.
    """

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        topics: Iterable[str] = (),
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        port: int | None = None,
        control: bool = False,
        is_temporary: bool = False,
        program: Program = "serve",
    ) -> None:
        self.directory = directory
        self._program: Program = program
        self._server_options = [ends_with_stdin(str(directory) if is_temporary else "")]
        self.data_dir = data_dir or directory / "data"
        self.log_file = directory / "broker.log"
        self.host = HOST
        self.port = port or 0
        self.has_control_port = control
        self._control_port = 0
        self.arguments = [*arguments]
        for topic in topics:
            self.arguments += ["--topic", topic]
        self.environment = dict(environment or {})
        self._set(settings or {})
        self.tracebacks_expected = False
        self._child: Child | None = None
        self._log_begin = 0
        self._said: dict[str, Any] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    # ---- state

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def bootstrap_servers(self) -> str:
        """The advertised addresses of all nodes."""
        advertised = self._started()["advertised"]
        return ",".join(str(address).partition("://")[2] for address in advertised)

    @property
    def control_url(self) -> str:
        """The URL of the control port. Requires ``control=True``."""
        return str(self._started()["control"])

    def _started(self) -> dict[str, Any]:
        """The fields of the broker's log event ``started``."""
        if self._said is None:
            raise BrokerFailed("the broker has not been started")
        return self._said

    @property
    def pid(self) -> int:
        assert self._child is not None, "the broker was never started"
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.is_running

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last process, negative for a signal; None while it runs."""
        return None if self._child is None else self._child.exit_code

    @property
    def log(self) -> list[str]:
        """The log lines of all processes of this broker."""
        return self._text(0).splitlines()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log events of the current process, or of the last one."""
        return list(_events(self._text(self._log_begin)))

    # ---- start and end

    def start(self) -> BrokerProcess:
        """Start the process, and wait until its log reports that it is ready."""
        assert not self.is_running, "the broker is running"
        if self.has_control_port and not self._control_port:
            self._control_port = _free_port()
        if self.port:
            self._spawn(self.port)
            self._wait_until_ready()
            return self
        for _ in range(20):
            port = _free_port()
            if self.has_control_port:
                self._control_port = _free_port()
            self._spawn(port)
            with contextlib.suppress(_PortTaken):
                self._wait_until_ready()
                self.port = port
                return self
        raise BrokerFailed("no free port was found")

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._signal(signal.SIGKILL)
        self.wait()

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Stop the process cleanly with SIGTERM. Returns the seconds that the stop took."""
        began = time.monotonic()
        self._signal(number)
        code = self.wait()
        if code != 0:
            raise BrokerFailed(f"the broker ended with exit code {code} after {number.name}\n{self._tail()}")
        return time.monotonic() - began

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for the process to end by itself. Returns its exit code, negative for a signal."""
        assert self._child is not None, "the broker was never started"
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise BrokerFailed(f"the broker is still running after {timeout_s} s\n{self._tail()}") from None

    def restart(
        self, *, environment: Mapping[str, str] | None = None, settings: Mapping[str, object] | None = None
    ) -> BrokerProcess:
        """Stop the process cleanly if it runs, and start it again with the same directory and port."""
        if self.is_running:
            self.terminate()
        if environment is not None:
            self.environment = dict(environment)
        self._set(settings or {})
        return self.start()

    def close(self) -> None:
        """Stop the process if it runs. Raises ``BrokerFailed`` if its log contains a traceback."""
        if self.is_running:
            try:
                self.terminate()
            finally:
                if self.is_running:
                    self.kill()
        self._close_input()
        if not self.tracebacks_expected and TRACEBACK in self._text(0):
            raise BrokerFailed(f"the broker's log contains a traceback\n{self._tail()}")

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # ---- implementation

    def _set(self, settings: Mapping[str, object]) -> None:
        """Pass the settings to the broker.

        Secrets are passed as environment variables, because other users can read a command line.
        """
        for name, value in settings.items():
            if _SECRET.search(name):
                self.environment[_variable(name)] = str(value)
            else:
                self.arguments += ["--set", f"{name}={value}"]

    def _spawn(self, port: int) -> None:
        arguments = ["--host", self.host, "--port", str(port)]
        if self._program == "serve":
            arguments += ["--data-dir", str(self.data_dir)]
        arguments += ["--log-format", "json", *self.arguments]
        if self.has_control_port:
            # The port is chosen once, so that programs find the control port at the same address after a restart.
            arguments += ["--control-port", str(self._control_port)]
        # Settings in this process's environment are meant for another broker.
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_", "ODRADEK_", "CLUSTER_ID"))
        }
        self._close_input()
        self._log_begin = self.log_file.stat().st_size if self.log_file.exists() else 0
        # The child does not get a Ctrl-C at the terminal: the user's program ends its brokers itself.
        self._child = Child(
            command(self._program, *arguments, options=self._server_options),
            self.log_file,
            environment={**inherited, **self.environment},
            holds_input=True,
        )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            ended = not self.is_running
            for event in self.events:
                if event.get("event") == "started":
                    self._said = event
                    return
            if ended:
                if "in use by another process" in self._text(self._log_begin):
                    raise _PortTaken(f"port taken\n{self._tail()}")
                raise BrokerFailed(f"the broker ended with exit code {self.exit_code}\n{self._tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFailed(f"the broker was not ready after {START_TIMEOUT_S} s\n{self._tail()}")
            time.sleep(POLL_S)

    def _close_input(self) -> None:
        if self._child is not None:
            self._child.close_input()

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.send_signal(number)

    def _text(self, begin: int) -> str:
        if not self.log_file.exists():
            return ""
        with self.log_file.open("rb") as file:
            file.seek(begin)
            return file.read().decode("utf-8", "replace")

    def _tail(self, lines: int = 60) -> str:
        # A traceback is one line of JSON in the log: unfold it.
        return "\n".join(self.log[-lines:]).replace("\\n", "\n")


class _PortTaken(BrokerFailed):
    """Another process bound the broker's port first."""


def _events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict):
                yield event


def _variable(name: str) -> str:
    """The environment variable that sets a setting of the broker."""
    text = re.sub("[._-]", lambda mark: {".": "_", "_": "__", "-": "___"}[mark[0]], name).upper()
    return text if name.startswith("odradek.") else f"KAFKA_{text}"


def _free_port() -> int:
    # Not seeded: concurrent test runs must not try the same ports in the same order.
    rng = random.SystemRandom()
    while True:
        port = rng.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                return port
