"""The machine's own Docker engine, with the same interface as the engine without Docker: containers, and the logs of removed
containers."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Self

from tests.support.clients import eventually
from tests.support.deadlines import HANG_S
from tests.support.docker import Docker, built

NAMES = ("odradek", "odradek:local", "odradek:7.9.0", "odradek:8.3.0")
STARTED = ("events", "--filter", "type=container", "--filter", "event=start", "--format", "{{.ID}}")


class Started:
    """A container that was started in the block, and the log of its output."""

    def __init__(self, name: str, file: Path) -> None:
        self.id = name
        self._file = file
        with file.open("wb") as log:
            self._following = subprocess.Popen(
                ["docker", "logs", "--follow", name], stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def log(self) -> Started:
        return self

    @property
    def text(self) -> str:
        """The output so far; complete after the end of the container."""
        if Docker().tried("inspect", self.id).returncode:
            self._following.wait(HANG_S)
        return self._file.read_text("utf-8", "replace")

    def forget(self) -> None:
        self._following.kill()
        self._following.wait()


class RealEngine:
    """Context manager that follows the containers started in its block. Containers that existed before are ignored."""

    def __init__(self, socket: str) -> None:
        self._docker = Docker()
        self.environment = {
            "DOCKER_HOST": socket,
            "TESTCONTAINERS_RYUK_DISABLED": "true",
            "TESTCONTAINERS_CHECKS_DISABLE": "true",
            # On a machine that is itself a container, Testcontainers would look for the ports at its gateway.
            "TESTCONTAINERS_HOST_OVERRIDE": "localhost",
        }
        self._seen: dict[str, Started] = {}

    def __enter__(self) -> Self:
        image = built(self._docker)
        for name in NAMES:
            self._docker("tag", image, name)
        self._logs = tempfile.TemporaryDirectory()
        self._since = self._docker("info", "--format", "{{.SystemTime}}")
        self._events = subprocess.Popen(
            ["docker", *STARTED, "--since", self._since], stdout=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._events.kill()
        self._thread.join(HANG_S)
        self._events.communicate()
        for started in self._seen.values():
            self._docker.tried("rm", "--force", "--volumes", started.id)
            started.forget()
        self._logs.cleanup()

    def _follow(self) -> None:
        assert self._events.stdout is not None
        for line in self._events.stdout:
            name = line.strip()
            if name not in self._seen:  # a restart
                self._seen[name] = Started(name, Path(self._logs.name, name))

    def _all_are_seen(self) -> bool:
        now = self._docker("info", "--format", "{{.SystemTime}}")
        return (
            set(self._docker(*STARTED, "--since", self._since, "--until", now).split()) <= self._seen.keys()
        )

    @property
    def containers(self) -> dict[str, Started]:
        there = set(self._docker("ps", "--all", "--quiet", "--no-trunc").split())
        return {name: started for name, started in self._seen.items() if name in there}

    @property
    def removed(self) -> list[Started]:
        """Removed containers, in the order of their starts."""
        eventually(self._all_are_seen, "the engine's events")
        there = self.containers
        return [started for name, started in self._seen.items() if name not in there]
