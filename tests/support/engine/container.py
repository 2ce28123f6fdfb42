"""One container: its process, log and published ports, and its JSON in the Docker API."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import secrets
import shutil
import signal
import socket
import tarfile
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.engine.image import Image, python_folder
from tests.support.engine.process import Process

STDOUT, STDERR = 1, 2
CHUNK_BYTES = 65_536
ADDRESS = "172.17.0.2"
"""Address inside every container: each has a network namespace of its own."""
NEVER = "0001-01-01T00:00:00Z"


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class Log:
    """Output of a process, with the stream of each chunk, and whether the process has ended."""

    def __init__(self) -> None:
        self.chunks: list[tuple[int, bytes]] = []
        self.is_complete = False
        self._more = asyncio.Event()

    def add(self, stream: int, chunk: bytes) -> None:
        self.chunks.append((stream, chunk))
        self._wake()

    def end(self) -> None:
        self.is_complete = True
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    @property
    def text(self) -> str:
        return b"".join(chunk for _, chunk in self.chunks).decode("utf-8", "replace")

    async def read(self, *, follow: bool) -> AsyncIterator[tuple[int, bytes]]:
        """Yield all chunks from the first on. With ``follow``, wait for further chunks until the end."""
        seen = 0
        while True:
            while seen < len(self.chunks):
                yield self.chunks[seen]
                seen += 1
            if self.is_complete or not follow:
                return
            await self._more.wait()


async def copy_streams(process: Any, log: Log) -> None:
    """Copy the pipes of a process into its log until both pipes end."""

    async def copy(number: int, pipe: Any) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        while chunk := await reader.read(CHUNK_BYTES):
            log.add(number, chunk)
        transport.close()

    await asyncio.gather(copy(STDOUT, process.stdout), copy(STDERR, process.stderr))
    log.end()


class Container:
    def __init__(self, name: str, wanted: Mapping[str, Any], image: Image, work: Path) -> None:
        self.id = secrets.token_hex(32)
        self.name = name or f"container_{self.id[:8]}"
        self.wanted, self.image = wanted, image
        self.hostname = wanted.get("Hostname") or self.id[:12]
        self.log = Log()
        self.created, self.started, self.finished = now(), NEVER, NEVER
        self.status, self.exit_code = "created", 0
        self.ended = asyncio.Event()
        self.ports: dict[str, int] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        given = dict(each.partition("=")[::2] for each in wanted.get("Env") or ())
        self.environment = {**image.environment, "HOSTNAME": self.hostname, "HOME": "/", **given}
        self._work = work / self.id[:12]
        for folder in ("changes", "work"):
            (self._work / folder).mkdir(parents=True)
        self.process = Process.prepare(
            layers=[image.layer],
            changes=self._work / "changes",
            work=self._work / "work",
            also=[python_folder()],
            argv=self.argv,
            environment=self.environment,
            user=self.user,
            folder=self.folder,
            address=ADDRESS,
            hostname=self.hostname,
        )

    # ---- the settings it was created with

    @property
    def argv(self) -> list[str]:
        entry_point, command = self.wanted.get("Entrypoint"), self.wanted.get("Cmd")
        first = self.image.entry_point if entry_point is None else _words(entry_point)
        return [*first, *_words(command or [])]

    @property
    def user(self) -> tuple[int, int]:
        user, _, group = str(self.wanted.get("User") or "").replace("root", "0").partition(":")
        return (int(user), int(group or 0)) if user else self.image.user

    @property
    def folder(self) -> str:
        return str(self.wanted.get("WorkingDir") or self.image.folder)

    @property
    def exposed(self) -> list[str]:
        return sorted({*self.image.ports, *(self.wanted.get("ExposedPorts") or {})})

    # ---- start and stop

    async def start(self) -> None:
        if self.status != "created":
            return
        host = self.wanted.get("HostConfig") or {}
        bindings: Mapping[str, Any] = host.get("PortBindings") or {}
        published = self.exposed if host.get("PublishAllPorts") else sorted(bindings)
        for port in published:
            wanted = (bindings.get(port) or [{}])[0] or {}
            self.ports[port] = await self._publish(
                int(port.partition("/")[0]), int(wanted.get("HostPort") or 0)
            )
        self.status, self.started = "running", now()
        self.process.go()
        self._hold(self._watch())

    async def _watch(self) -> None:
        await copy_streams(self.process.popen, self.log)
        self.exit_code = await asyncio.to_thread(self.process.popen.wait)
        self.status, self.finished = "exited", now()
        self.ended.set()

    def _hold(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def kill(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    async def stop(self, within_s: float) -> None:
        if self.status != "running":
            return
        self.kill(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.ended.wait(), within_s)
        except TimeoutError:
            self.kill(signal.SIGKILL)
            await self.ended.wait()

    async def remove(self) -> None:
        for server in self._servers:
            server.close()
        if self.status == "running":
            self.kill(signal.SIGKILL)
            await self.ended.wait()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.to_thread(self.process.close)
        shutil.rmtree(self._work, ignore_errors=True)

    # ---- network

    async def _publish(self, inside: int, outside: int) -> int:
        """Open a port of this machine, IPv4 and IPv6, that forwards into the container."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                connection = await asyncio.to_thread(self.process.connect, ADDRESS, inside)
            except OSError:
                writer.close()
                return
            await self._relay(reader, writer, connection)

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._hold(serve(reader, writer))

        server = await asyncio.start_server(accept, "127.0.0.1", outside)
        port: int = server.sockets[0].getsockname()[1]
        self._servers.append(server)
        if socket.has_dualstack_ipv6():
            with contextlib.suppress(OSError):
                self._servers.append(await asyncio.start_server(accept, "::1", port))
        return port

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: socket.socket
    ) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(sock=connection)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while chunk := await source.read(CHUNK_BYTES):
                    target.write(chunk)
                    await target.drain()
                target.write_eof()

        try:
            await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
        finally:
            writer.close()
            inner_writer.close()

    # ---- files

    def extract(self, folder: str, archive: bytes) -> None:
        """Extract a tar into a folder, with the owners in the archive.

        Raises FileNotFoundError if there is no such folder.
        """
        target = self.process.path(folder)
        if not target.is_dir():
            raise FileNotFoundError(folder)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            for member in files.getmembers():
                member.name = member.name.lstrip("/")
                files.extract(member, target, numeric_owner=True)

    def archive(self, path: str) -> bytes:
        """A file or folder as a tar, under its own name. Raises FileNotFoundError if it does not exist."""
        source, target = self.process.path(path), io.BytesIO()
        if not source.exists():
            raise FileNotFoundError(path)
        with tarfile.open(fileobj=target, mode="w") as files:
            files.add(source, source.name)
        return target.getvalue()

    # ---- JSON of the API

    def inspect(self) -> dict[str, Any]:
        ports: dict[str, Any] = dict.fromkeys(self.exposed)
        if self.status == "running":
            ports |= {
                name: [{"HostIp": "0.0.0.0", "HostPort": str(port)}] for name, port in self.ports.items()
            }
        network = {
            "NetworkID": "bridge",
            "EndpointID": self.id,
            "Gateway": "172.17.0.1",
            "IPAddress": ADDRESS,
            "IPPrefixLen": 16,
            "MacAddress": "02:42:ac:11:00:02",
            "Aliases": None,
        }
        first, *others = self.argv
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "Created": self.created,
            "Path": first,
            "Args": others,
            "Image": "sha256:" + "0" * 64,
            "RestartCount": 0,
            "Driver": "overlay2",
            "Platform": "linux",
            "Mounts": [],
            "State": self._state(),
            "Config": {
                **self.wanted,
                "Hostname": self.hostname,
                "Env": [f"{name}={value}" for name, value in self.environment.items()],
                "ExposedPorts": {port: {} for port in self.exposed},
                "Labels": self.wanted.get("Labels") or {},
                "Tty": False,
            },
            "HostConfig": {"NetworkMode": "bridge", **(self.wanted.get("HostConfig") or {})},
            "NetworkSettings": {
                "Ports": ports,
                "Networks": {"bridge": network},
                **{name: network[name] for name in ("Gateway", "IPAddress", "IPPrefixLen", "MacAddress")},
            },
        }

    def _state(self) -> dict[str, Any]:
        running = self.status == "running"
        return {
            "Status": self.status,
            "Running": running,
            "Paused": False,
            "Restarting": False,
            "OOMKilled": False,
            "Dead": False,
            "Pid": self.process.pid if running else 0,
            "ExitCode": self.exit_code,
            "Error": "",
            "StartedAt": self.started,
            "FinishedAt": self.finished,
        }

    def summary(self) -> dict[str, Any]:
        """The container's entry in the list of containers."""
        full = self.inspect()
        return {
            "Id": self.id,
            "Names": [f"/{self.name}"],
            "Image": self.wanted["Image"],
            "ImageID": full["Image"],
            "Command": " ".join(self.argv),
            "Created": int(datetime.fromisoformat(self.created).timestamp()),
            "State": self.status,
            "Status": self.status,
            "Labels": full["Config"]["Labels"],
            "Ports": [
                {
                    "IP": "0.0.0.0",
                    "PrivatePort": int(name.partition("/")[0]),
                    "PublicPort": port,
                    "Type": "tcp",
                }
                for name, port in self.ports.items()
            ],
            "HostConfig": {"NetworkMode": full["HostConfig"]["NetworkMode"]},
            "NetworkSettings": {"Networks": full["NetworkSettings"]["Networks"]},
        }


def _words(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
