"""The part of the Docker Engine API that the Testcontainers libraries use, on a unix socket, for one image.

    with Engine() as engine:
        subprocess.run(command, env={**os.environ, **engine.environment})

Paths and responses follow version 1.44 of the API. Any other call gets a 404 that names it. The image is built from our
Dockerfile and is found under every name and tag.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support.deadlines import TEST_S
from tests.support.engine.container import Container, Log, copy_streams
from tests.support.engine.image import Image, build
from tests.support.engine.process import SCRATCH

API_VERSION, API_VERSION_MIN = "1.44", "1.24"
IMAGE_ID = "sha256:" + "0" * 64
STOP_S = 10.0
STREAMS = {1: "stdout", 2: "stderr"}
NO_HEAD: dict[str, dict[str, Any]] = {"GET": {"allow_head": False}}
MULTIPLEXED = "application/vnd.docker.multiplexed-stream"

Call = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Engine:
    """Context manager that serves the API in a thread. All its containers end with the block."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="engine-", dir=SCRATCH))
        self.socket = self._folder / "docker.sock"
        self.image: Image | None = None
        self.containers: dict[str, Container] = {}
        self.removed: list[Container] = []
        self.executions: dict[str, dict[str, Any]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make Testcontainers use this engine."""
        return {
            "DOCKER_HOST": f"unix://{self.socket}",
            "TESTCONTAINERS_RYUK_DISABLED": "true",
            "TESTCONTAINERS_CHECKS_DISABLE": "true",
            # On a machine that is itself a container, Testcontainers would look for the ports at its gateway.
            "TESTCONTAINERS_HOST_OVERRIDE": "localhost",
            "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
        }

    def __enter__(self) -> Engine:
        try:
            self.image = build(self._folder / "image")
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._thread.start()
        self._call(self._open())
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TEST_S)
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TEST_S)

    async def _open(self) -> None:
        app = web.Application(client_max_size=1 << 30)
        app.add_routes(list(self._routes()))
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self.socket)).start()

    async def _close(self) -> None:
        for container in tuple(self.containers.values()):
            await container.remove()
        await self._runner.cleanup()

    # ---- routes

    def _routes(self) -> Iterator[web.RouteDef]:
        calls: list[tuple[str, str, Call]] = [
            ("GET", "_ping", self._ping),
            ("HEAD", "_ping", self._ping),
            ("GET", "version", answer(VERSION)),
            ("GET", "info", answer(INFO)),
            ("GET", "images/json", answer([])),
            ("GET", "images/{name:.+}/json", self._image),
            ("GET", "networks", answer([NETWORK])),
            ("GET", "networks/bridge", answer(NETWORK)),
            ("POST", "containers/create", self._create),
            ("GET", "containers/json", self._list),
            ("GET", "containers/{name}/json", self._inspect),
            ("POST", "containers/{name}/start", self._start),
            ("POST", "containers/{name}/stop", self._stop),
            ("POST", "containers/{name}/kill", self._kill),
            ("POST", "containers/{name}/wait", self._wait),
            ("GET", "containers/{name}/logs", self._logs),
            ("PUT", "containers/{name}/archive", self._extract),
            ("GET", "containers/{name}/archive", self._archive),
            ("POST", "containers/{name}/exec", self._create_execution),
            ("DELETE", "containers/{name}", self._remove),
            ("POST", "exec/{name}/start", self._start_execution),
            ("GET", "exec/{name}/json", self._inspect_execution),
            ("*", "{path:.*}", self._unknown),
        ]
        for method, path, call in calls:
            yield web.route(method, "/{version:(?:v[0-9.]+/)?}" + path, call, **NO_HEAD.get(method, {}))

    async def _unknown(self, request: web.Request) -> web.Response:
        return refusal(404, f"{request.method} {request.path} is not in this engine")

    def _container(self, request: web.Request) -> Container:
        name = request.match_info["name"]
        for container in self.containers.values():
            if container.id.startswith(name) or container.name == name:
                return container
        raise no_such("container", name)

    # ---- calls

    async def _ping(self, _: web.Request) -> web.Response:
        return web.Response(text="OK", headers={"API-Version": API_VERSION, "OSType": "linux"})

    async def _image(self, request: web.Request) -> web.Response:
        assert self.image is not None
        config: dict[str, Any] = {
            "Entrypoint": self.image.entry_point,
            "Cmd": None,
            "Env": [f"{key}={value}" for key, value in self.image.environment.items()],
            "ExposedPorts": {port: {} for port in self.image.ports},
            "Labels": {},
            "WorkingDir": self.image.folder,
        }
        return web.json_response(
            {
                "Id": IMAGE_ID,
                "RepoTags": [request.match_info["name"]],
                "RepoDigests": [],
                "Created": "2020-01-01T00:00:00Z",
                "Architecture": "amd64",
                "Os": "linux",
                "Size": 1,
                "Config": config,
                "RootFS": {"Type": "layers", "Layers": []},
            }
        )

    async def _create(self, request: web.Request) -> web.Response:
        assert self.image is not None
        name, wanted = request.query.get("name", ""), await request.json()
        container = Container(name, wanted, self.image, self._folder)
        self.containers[container.id] = container
        return web.json_response({"Id": container.id, "Warnings": []}, status=201)

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response([each.summary() for each in self.containers.values()])

    async def _inspect(self, request: web.Request) -> web.Response:
        return web.json_response(self._container(request).inspect())

    async def _start(self, request: web.Request) -> web.Response:
        await self._container(request).start()
        return web.Response(status=204)

    async def _stop(self, request: web.Request) -> web.Response:
        await self._container(request).stop(float(request.query.get("t", STOP_S)))
        return web.Response(status=204)

    async def _kill(self, request: web.Request) -> web.Response:
        self._container(request).kill(_signal(request.query.get("signal", "KILL")))
        return web.Response(status=204)

    async def _wait(self, request: web.Request) -> web.StreamResponse:
        container = self._container(request)
        # The docker command starts the container when it has the headers of the response to `wait`.
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await container.ended.wait()
        with contextlib.suppress(ConnectionResetError):
            await response.write(json.dumps({"StatusCode": container.exit_code}).encode())
            await response.write_eof()
        return response

    async def _remove(self, request: web.Request) -> web.Response:
        container = self._container(request)
        await container.remove()
        self.removed.append(self.containers.pop(container.id))
        return web.Response(status=204)

    async def _extract(self, request: web.Request) -> web.Response:
        try:
            self._container(request).extract(request.query["path"], await request.read())
        except FileNotFoundError as error:
            return refusal(404, f"Could not find the file {error} in the container")
        return web.Response()

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        container, query = self._container(request), request.query
        response = web.StreamResponse(headers={"Content-Type": MULTIPLEXED})
        await response.prepare(request)
        chosen = {number for number, name in STREAMS.items() if _is_true(query.get(name, "0"))}
        # A client that follows a log disconnects at any time.
        with contextlib.suppress(ConnectionResetError):
            async for number, chunk in container.log.read(follow=_is_true(query.get("follow", "0"))):
                if number in chosen:
                    await response.write(frame(number, chunk))
            await response.write_eof()
        return response

    # ---- exec

    def _execution(self, request: web.Request) -> dict[str, Any]:
        name = request.match_info["name"]
        if name not in self.executions:
            raise no_such("exec instance", name)
        return self.executions[name]

    async def _inspect_execution(self, request: web.Request) -> web.Response:
        execution = self._execution(request)
        told = {key: execution[key] for key in ("ID", "Running", "ExitCode", "Pid")}
        return web.json_response({**told, "ContainerID": execution["container"].id})

    async def _archive(self, request: web.Request) -> web.Response:
        try:
            content = self._container(request).archive(request.query["path"])
        except FileNotFoundError as error:
            return refusal(404, f"Could not find the file {error} in container")
        return web.Response(body=content, content_type="application/x-tar")

    async def _create_execution(self, request: web.Request) -> web.Response:
        container = self._container(request)
        name = os.urandom(32).hex()
        wanted = await request.json()
        self.executions[name] = {
            "ID": name,
            "container": container,
            "wanted": wanted,
            "Running": False,
            "ExitCode": None,
            "Pid": 0,
        }
        return web.json_response({"Id": name}, status=201)

    async def _start_execution(self, request: web.Request) -> web.StreamResponse:
        """Start an execution. Its output is sent over the upgraded connection if the client requests that, otherwise as the
        body."""
        execution = self._execution(request)
        # The request's body is not read to its end: a client that could send input ends it only after the command.
        upgrade = request.headers.get("Upgrade", "") == "tcp"
        response = web.StreamResponse(status=101 if upgrade else 200, headers={"Content-Type": MULTIPLEXED})
        response.force_close()
        if upgrade:
            response.headers.update({"Connection": "Upgrade", "Upgrade": "tcp"})
        await response.prepare(request)
        transport = request.transport
        assert isinstance(transport, asyncio.WriteTransport)
        with contextlib.suppress(ConnectionResetError):
            async for number, chunk in self._execute(execution):
                if upgrade:
                    transport.write(frame(number, chunk))
                else:
                    await response.write(frame(number, chunk))
            if not upgrade:
                await response.write_eof()
        transport.close()
        return response

    async def _execute(self, execution: dict[str, Any]) -> AsyncIterator[tuple[int, bytes]]:
        container: Container = execution["container"]
        wanted: Mapping[str, Any] = execution["wanted"]
        given = dict(each.partition("=")[::2] for each in wanted.get("Env") or ())
        command = container.process.join_command(
            wanted["Cmd"],
            {**container.environment, **given},
            (0, 0) if str(wanted.get("User") or "").startswith(("root", "0")) else container.user,
            str(wanted.get("WorkingDir") or container.folder),
        )
        log = Log()
        process = subprocess.Popen(  # noqa: ASYNC220
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        execution |= {"Running": True, "Pid": process.pid}
        copying = asyncio.get_running_loop().create_task(copy_streams(process, log))
        async for each in log.read(follow=True):
            yield each
        await copying
        execution |= {"Running": False, "ExitCode": await asyncio.to_thread(process.wait)}


def frame(stream: int, chunk: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(chunk)) + chunk


def answer(value: Any) -> Call:
    """A handler that always returns the same JSON."""

    async def call(_: web.Request) -> web.Response:
        return web.json_response(value)

    return call


def no_such(kind: str, name: str) -> web.HTTPNotFound:
    text = json.dumps({"message": f"No such {kind}: {name}"})
    return web.HTTPNotFound(text=text, content_type="application/json")


def refusal(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)


def _is_true(text: str) -> bool:
    return text.lower() in ("1", "true")


def _signal(name: str) -> int:
    return int(name) if name.isdigit() else signal.Signals[f"SIG{name.removeprefix('SIG')}"]


VERSION = {
    "Version": "25.0.0",
    "ApiVersion": API_VERSION,
    "MinAPIVersion": API_VERSION_MIN,
    "Os": "linux",
    "Arch": "amd64",
    "KernelVersion": os.uname().release,
    "Components": [],
}
INFO = {
    "ID": "engine-of-the-tests",
    "Name": "engine",
    "ServerVersion": "25.0.0",
    "OSType": "linux",
    "OperatingSystem": "Linux",
    "Architecture": "x86_64",
    "KernelVersion": os.uname().release,
    "MemTotal": 1 << 34,
    "NCPU": 2,
    "Driver": "overlay2",
    "IndexServerAddress": "https://index.docker.io/v1/",
    "RegistryConfig": {"IndexConfigs": {}, "InsecureRegistryCIDRs": [], "Mirrors": []},
    "Labels": [],
    "SecurityOptions": [],
}
NETWORK = {
    "Name": "bridge",
    "Id": "bridge",
    "Driver": "bridge",
    "Scope": "local",
    "IPAM": {"Driver": "default", "Config": [{"Subnet": "172.17.0.0/16", "Gateway": "172.17.0.1"}]},
    "Options": {},
    "Labels": {},
    "Containers": {},
}
