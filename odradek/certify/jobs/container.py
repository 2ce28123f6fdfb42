"""Instances in containers, through the command ``docker``; any engine with Docker's API works.

A container uses the host's network, so ``{bootstrap}`` is the same inside and outside. The directory ``{data}`` of a
run has the same path in the container as on the host.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from odradek.certify.jobs.command import Command
from odradek.certify.jobs.instance import ENDS_S, is_connected
from odradek.certify.jobs.processes import KILLED_S, StillAlive
from odradek.deadlines import stretched

LABEL: Final = "odradek.certify.jobs.job"
CALL_S: Final = stretched(60.0)
"""Timeout of one docker command, in seconds."""
PULL_S: Final = stretched(1800.0)
_FOR_ALL: Final = 0o777
"""Mode of the run's directory: the image may run as another user, who must be able to write there."""


def check(container: Sequence[str]) -> None:
    """Raise ``ValueError`` if there is no engine, or the image is missing and cannot be pulled.

    A missing image is pulled.
    """
    if shutil.which("docker") is None:
        raise ValueError("--job-container needs the command docker, which was not found")
    said = _docker("version", "--format", "{{.Server.Version}}")
    if said.returncode:
        raise ValueError(f"--job-container: the container engine does not respond: {_last_line(said.stderr)}")
    image = container[-1]
    if _docker("image", "inspect", image).returncode:
        said = _docker("pull", "--quiet", image, timeout_s=PULL_S)
        if said.returncode:
            raise ValueError(
                f"--job-container: the image {image} does not exist and cannot be pulled: {_last_line(said.stderr)}"
            )


def parse(text: str) -> tuple[str, ...]:
    """Parse the value of ``--job-container``: an image, preceded by options of ``docker create``."""
    words = tuple(shlex.split(text))
    if not words or words[-1].startswith("-"):
        raise ValueError(f"--job-container {text!r}: expected an image, preceded by options of docker create")
    return words


class ContainerInstance:
    """An instance in a container. ``docker start --attach`` passes on the output and exit code of the container."""

    def __init__(self, number: int, name: str, attached: subprocess.Popen[bytes]) -> None:
        self.number, self.name = number, name
        self.began = time.monotonic()
        self.was_ended = False
        self.attached = attached

    @property
    def code(self) -> int | None:
        return self.attached.poll()

    @property
    def is_alive(self) -> bool:
        return self.code is None

    def kill(self) -> None:
        self.was_ended = True
        _remove([self.name])
        _await([self], KILLED_S)

    def freeze(self) -> None:
        _docker("pause", self.name)

    def thaw(self) -> None:
        _docker("unpause", self.name)

    def end(self) -> None:
        self.was_ended = True
        _docker("stop", "--time", f"{ENDS_S:.0f}", self.name, timeout_s=ENDS_S + CALL_S)
        self.kill()

    def clear(self) -> int:
        """Return 0: all processes of a container end with its first process."""
        return 0

    def processes(self) -> list[tuple[int, str]]:
        rows = [
            each.split(maxsplit=1)
            for each in _docker("top", self.name, "-eo", "pid,comm").stdout.splitlines()
        ]
        return [(int(row[0]), row[1]) for row in rows if len(row) == 2 and row[0].isdecimal()]

    def has_connection(self, port: int) -> bool:
        return any(is_connected(pid, port) for pid, _ in self.processes())


class Containers:
    """Launcher of instances as containers."""

    def __init__(self, command: Command, mark: str) -> None:
        self._command, self._mark = command, mark
        self._started: list[ContainerInstance] = []

    def start(
        self, number: int, values: Mapping[str, str], variables: Mapping[str, str], log: Path
    ) -> ContainerInstance:
        name = f"odradek-certify-{self._mark}-{len(self._started)}"
        Path(values["data"]).chmod(_FOR_ALL)
        said = _docker(*self._creation(name, values, variables), folder=self._command.directory)
        if said.returncode:
            raise ValueError(f"the job cannot be started: {_last_line(said.stderr)}")
        with log.open("ab") as output:
            attached = subprocess.Popen(
                ["docker", "start", "--attach", name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        instance = ContainerInstance(number, name, attached)
        self._started.append(instance)
        return instance

    def _creation(self, name: str, values: Mapping[str, str], variables: Mapping[str, str]) -> list[str]:
        *options, image = self._command.container
        variables = {**variables, **self._command.environment(values)}
        data = values["data"]
        has_network = any(each.startswith("--net") for each in options)
        return [
            *("create", "--rm", "--name", name, "--label", f"{LABEL}={self._mark}"),
            *(() if has_network else ("--network", "host")),
            *("--mount", f"type=bind,source={data},target={data}"),
            *(f"--env={variable}={value}" for variable, value in variables.items()),
            *options,
            image,
            *self._command.filled(values),
        ]

    def freeze(self) -> None:
        if names := [each.name for each in self._started if each.is_alive]:
            _docker("pause", *names)

    def end(self, grace_s: float) -> bool:
        alive = [each for each in self._started if each.is_alive]
        in_time = not alive or not grace_s or self._end_by_themselves(alive, grace_s)
        _remove([each.name for each in alive if each.is_alive])
        _await(alive, KILLED_S)
        self._started.clear()
        left = _docker("ps", "--all", "--quiet", "--filter", f"label={LABEL}={self._mark}").stdout.split()
        _remove(left)
        return in_time

    @staticmethod
    def _end_by_themselves(instances: Sequence[ContainerInstance], grace_s: float) -> bool:
        names = [each.name for each in instances]
        _docker("unpause", *names)  # a paused container does not receive SIGTERM
        _docker("kill", "--signal", "TERM", *names)
        try:
            _await(instances, grace_s)
        except StillAlive:
            return False
        return True


def _remove(names: Sequence[str]) -> None:
    """Remove the containers with SIGKILL. Raises `StillAlive` if one remains."""
    if not names:
        return
    _docker("rm", "--force", "--volumes", *names)
    deadline = time.monotonic() + KILLED_S
    for name in names:
        # The call also fails for a container whose removal is in progress but not finished.
        while not _docker("container", "inspect", name).returncode:
            if time.monotonic() > deadline:
                raise StillAlive(f"the container {name} cannot be removed")
            _docker("rm", "--force", "--volumes", name)


def _await(instances: Sequence[ContainerInstance], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for each in instances:
        try:
            each.attached.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise StillAlive(f"the container {each.name} did not end") from None


def _docker(
    *words: str, timeout_s: float = CALL_S, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return subprocess.run(
            ["docker", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            cwd=folder,
            check=False,
        )
    return subprocess.CompletedProcess(
        words, 1, "", f"docker {words[0]} did not end within {timeout_s:.0f} s"
    )


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1]
