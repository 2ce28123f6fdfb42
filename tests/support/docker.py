"""A real Docker engine (`docker_socket.py`) and containers of our image.

    docker = Docker()
    with docker.container(["--publish", f"{port}:{port}"], ["--port", str(port)]) as broker:
        broker.until_healthy()
        transaction(f"localhost:{port}")

Ports are published at localhost. Files are copied into a container, not mounted: the engine may have another file system.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer

from tests.support.clients import PATIENCE, eventually, value_of
from tests.support.deadlines import HANG_S, TEST_S

ROOT: Final = Path(__file__).resolve().parents[2]
IMAGE: Final = os.environ.get("ODRADEK_CHECKED_IMAGE", "odradek:checks")
"""Tag of the image to test: built from this checkout, or an existing image that ``ODRADEK_CHECKED_IMAGE`` names."""
FOLDERS_MODE: Final = 0o755


class Docker:
    """The command `docker`. A call fails the test if the exit code is not 0."""

    def __call__(self, *arguments: str, data: bytes | None = None) -> str:
        done = self.tried(*arguments, data=data)
        assert done.returncode == 0, f"docker {arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def tried(self, *arguments: str, data: bytes | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["docker", *arguments], input=data, capture_output=True, timeout=TEST_S, check=False
        )
        return subprocess.CompletedProcess(
            done.args,
            done.returncode,
            done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"),
        )

    def build(self, folder: Path = ROOT, image: str = IMAGE) -> str:
        # The package index may be reachable only through a proxy on this machine.
        self("build", "--network=host", "--quiet", "--tag", image, str(folder))
        return image

    @contextmanager
    def container(
        self,
        options: Sequence[str] = (),
        arguments: Sequence[str] = (),
        *,
        image: str = IMAGE,
        files: Mapping[str, str] | None = None,
    ) -> Iterator[Container]:
        """Run ``docker run -d OPTIONS IMAGE ARGUMENTS`` with these files in the container; remove it at the end."""
        name = f"odradek-{secrets.token_hex(4)}"
        self("create", "--name", name, *options, image, *arguments)
        try:
            if files:
                self("cp", "-", f"{name}:/", data=_archive(files))
            self("start", name)
            yield Container(self, name)
        finally:
            self("rm", "--force", "--volumes", name)

    @contextmanager
    def volume(self) -> Iterator[str]:
        name = self("volume", "create")
        try:
            yield name
        finally:
            self("volume", "rm", name)


class Container:
    def __init__(self, docker: Docker, name: str) -> None:
        self.docker = docker
        self.name = name

    @property
    def state(self) -> dict[str, Any]:
        """State from ``docker inspect``: Status, ExitCode, Health."""
        state: dict[str, Any] = json.loads(self.docker("inspect", "--format", "{{json .State}}", self.name))
        return state

    @property
    def log(self) -> str:
        """Standard output and standard error of the container."""
        done = self.docker.tried("logs", self.name)
        return done.stdout + done.stderr

    def until_healthy(self) -> None:
        eventually(lambda: self.is_healthy(), f"{self.name} is healthy")

    def is_healthy(self) -> bool:
        """Whether the health check passes. Fails the test if the container has ended."""
        state = self.state
        assert state["Status"] == "running", self.log
        return bool(state["Health"]["Status"] == "healthy")

    def until_unhealthy(self) -> None:
        eventually(lambda: self.state["Health"]["Status"] == "unhealthy", f"{self.name} is unhealthy")

    def until_over(self) -> int:
        """Wait for the end of the container and return its exit code."""
        return int(eventually(lambda: self.docker("wait", self.name), f"{self.name} ends"))

    def stop(self) -> int:
        self.docker("stop", "--time", str(round(HANG_S)), self.name)
        return self.until_over()

    def tried(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as a health check does; the exit code may be nonzero."""
        return self.docker.tried("exec", self.name, *command)

    def says(self, *command: str) -> str:
        done = self.tried(*command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}\n{self.log}"
        return done.stdout.strip()


def built(docker: Docker) -> str:
    """The tag of the image to test, built if this checkout has changed."""
    if "ODRADEK_CHECKED_IMAGE" not in os.environ:
        docker.build()
    return IMAGE


def transaction(bootstrap: str, topic: str = "orders", **settings: Any) -> list[str]:
    """Abort one transaction, commit another, and return what a read_committed consumer reads."""
    client = {"bootstrap.servers": bootstrap, **PATIENCE, **settings}
    producer = Producer({**client, "transactional.id": "checks"})
    producer.init_transactions(HANG_S)
    for value, end in (("lost", producer.abort_transaction), ("paid", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(HANG_S)
        end(HANG_S)
    return committed(bootstrap, topic, 1, **settings)


def committed(bootstrap: str, topic: str, count: int, **settings: Any) -> list[str]:
    """The first ``count`` records of a topic that a read_committed consumer reads."""
    client = {"bootstrap.servers": bootstrap, **PATIENCE, **settings}
    group = {"group.id": "checks", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**client, **group})
    consumer.subscribe([topic])
    read: list[str] = []
    try:
        while len(read) < count:
            record = consumer.poll(HANG_S)
            assert record is not None, f"{len(read)} of {count} records"
            assert record.error() is None, record.error()
            read.append(value_of(record).decode())
    finally:
        consumer.close()
    return read


def _archive(files: Mapping[str, str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        folders: set[str] = set()
        for path, text in files.items():
            for parent in reversed(Path(path.lstrip("/")).parents[:-1]):
                if str(parent) not in folders:
                    folders.add(str(parent))
                    folder = tarfile.TarInfo(str(parent))
                    folder.type, folder.mode = tarfile.DIRTYPE, FOLDERS_MODE
                    archive.addfile(folder)
            data = text.encode()
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()
