"""The HTTP server of the control port: from a request to an operation and back. The operations are in other modules."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from broker.cluster.errors import BrokerEnding
from broker.logging import get_logger
from broker.resources.descriptors import CONTROL_CONNECTIONS_MAX, control_connections_max
from lab.control import page
from lab.control.access import Access, Role, require
from lab.control.errors import HttpError
from lab.control.operations import Operation, Stream, arguments, call, discover
from lab.control.ports import Looking
from lab.sharing import loop_goes_first

BODY_BYTES_MAX: Final = 256 * 1024
CALLS_MAX: Final = 64
"""Largest number of calls in progress that wait, follow or take long; further ones get 429. Operations that respond at once
(``GET /health``, the list of rules, their removal) are not counted: they must be possible while others wait."""
HANDSHAKE_S_MAX: Final = 10.0
"""Timeout of a TLS handshake."""
SHUTDOWN_S_MAX: Final = 0.3
"""Seconds that a stop waits for responses to be sent, as a stop of the broker does for Kafka clients."""
_JSON: Final = "application/json"

if TYPE_CHECKING:
    import socket
    import ssl

log = get_logger()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ControlServer:
    """The HTTP server of one control port. ``close`` ends all calls."""

    def __init__(self, control: Looking, access: Access, tls: ssl.SSLContext | None = None) -> None:
        self._control = control
        self._access = access
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self._servers: list[asyncio.Server] = []
        self._arriving: set[asyncio.Task[object]] = set()
        self._calls: dict[asyncio.Task[object], Operation] = {}
        self._calling: set[web.RequestHandler] = set()
        self._document = b""
        """The OpenAPI document; empty until it is requested."""

    async def serve(self, listening: Iterable[socket.socket], accepted: Iterable[socket.socket] = ()) -> None:
        """Take over listening sockets, and accepted connections from which nothing was read."""
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            logger=_silent(),
            # Cancel a call that follows or waits when its caller disconnects.
            handler_cancellation=True,
            shutdown_timeout=SHUTDOWN_S_MAX,
        )
        await runner.setup()
        self._runner = runner
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if self._tls is not None:
            tls = {"ssl": self._tls, "ssl_handshake_timeout": HANDSHAKE_S_MAX}
        for each in listening:
            server = await loop.create_server(
                lambda: self._accepted(runner), sock=each, backlog=CONTROL_CONNECTIONS_MAX, **tls
            )
            self._servers.append(server)
        for each in accepted:
            arriving = loop.create_task(self._arrive(runner, each, tls))
            self._arriving.add(arriving)
            arriving.add_done_callback(self._arriving.discard)

    async def close(self) -> None:
        """Close all connections. Calls that wait or stream are cancelled. Calls that change something run to their end."""
        for server in self._servers:
            server.close()
        for each in (*self._arriving, *self._calls):
            each.cancel()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _arrive(self, runner: web.AppRunner, accepted: socket.socket, tls: Mapping[str, Any]) -> None:
        """Serve an accepted connection. Close it if the TLS handshake fails, or if the caller has closed it."""
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: self._accepted(runner), accepted, **tls)
        except OSError:
            accepted.close()

    def _accepted(self, runner: web.AppRunner) -> asyncio.BaseProtocol:
        """The protocol for a new connection. If there are too many, the oldest without a call in progress is closed."""
        server = runner.server
        assert server is not None
        alive = [each for each in server.connections if each.transport is not None]
        if len(alive) >= control_connections_max():
            silent = next((each for each in alive if each not in self._calling), alive[0])
            silent.force_close()
        return server()

    # -- from a request to an operation and back ----------------------------------------------------------------

    def _application(self) -> web.Application:
        known = discover()
        operations = {at: each for at, each in known.items() if isinstance(self._control, each.control)}
        application = web.Application(
            middlewares=[_noting(self._calling), _say_errors_as_json], client_max_size=BODY_BYTES_MAX
        )
        for at, operation in known.items():
            handler = self._serving(operation) if at in operations else self._refusing(operation)
            application.router.add_route(operation.method, operation.path, handler)

        async def describe(request: web.Request) -> web.StreamResponse:
            self._access.check(headers=_headers(request), changes_state=False)
            if not self._document:
                self._document = await asyncio.to_thread(_described, operations, self._access.wants_token)
            return web.Response(body=self._document, content_type=_JSON)

        application.router.add_get("/openapi.json", describe)
        page.serve(application, lambda request: self._access.check_page(_headers(request)))
        return application

    def _serving(self, operation: Operation) -> Handler:
        async def serve(request: web.Request) -> web.StreamResponse:
            role = None if operation.open_to_all else self._check(operation, request)
            found = arguments(operation, _params(request), await request.read())
            if role is not None and operation.role_of is not None:
                require(role, operation.role_of(found["body"]))
            waiting = sum(each.may_wait for each in self._calls.values())
            if operation.may_wait and waiting >= CALLS_MAX:
                raise HttpError(429, f"{CALLS_MAX} calls are under way: wait for one of them to end")
            task = asyncio.current_task()
            assert task is not None
            self._calls[task] = operation
            try:
                return await self._answer(operation, request, found)
            finally:
                del self._calls[task]

        return serve

    def _check(self, operation: Operation, request: web.Request) -> Role:
        """The role of the caller. Raises ``HttpError`` if the call is not allowed."""
        return self._access.check(
            headers=_headers(request), changes_state=operation.changes_state, needed=operation.role
        )

    def _refusing(self, operation: Operation) -> Handler:
        """Handler for an operation that this control port does not have: 404."""

        async def refuse(request: web.Request) -> web.StreamResponse:
            self._check(operation, request)
            raise HttpError(404, self._control.refusal(f"{operation.method} {operation.path}"))

        return refuse

    async def _answer(
        self, operation: Operation, request: web.Request, found: Mapping[str, object]
    ) -> web.StreamResponse:
        work = call(operation, self._control, found)
        answer = await (work if operation.ends_with_caller else _finished(work))
        if isinstance(answer, Stream):
            return await _send(request, answer)
        return web.Response(body=msgspec.json.encode(answer), content_type=_JSON)


def _noting(calling: set[web.RequestHandler]) -> Middleware:
    """Middleware: record connections with a call in progress, so that they are not closed in favour of new ones."""

    @web.middleware
    async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
        # A connection has one call at a time (HTTP/1.1).
        calling.add(request.protocol)
        try:
            return await handler(request)
        finally:
            calling.discard(request.protocol)

    return note


async def _finished(work: Awaitable[object]) -> object:
    """Wait for ``work`` and return its result. If the caller disconnects, ``work`` continues.

    Otherwise a node could be left half stopped.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_note_failure)
        raise


def _note_failure(task: asyncio.Future[object]) -> None:
    """Log an unexpected error of a call whose caller has disconnected. Expected errors are dropped."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, (HttpError, BrokerEnding)):
        log.error("control call failed", exc_info=error)


async def _send(request: web.Request, stream: Stream) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": stream.content_type})
    async with contextlib.aclosing(stream.chunks) as chunks:
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async for chunk in chunks:
                await response.write(chunk)
            await response.write_eof()
    return response


@web.middleware
async def _say_errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Middleware: turn every error into a response {"error": a sentence}."""
    try:
        return await handler(request)
    except HttpError as refused:
        return _error(refused.status, refused.sentence)
    except web.HTTPRequestEntityTooLarge:
        return _error(413, f"the body is larger than {BODY_BYTES_MAX} bytes")
    except web.HTTPException as error:
        return _error(error.status, _unknown(request, error))
    except ValueError as error:
        # An error in the input, from msgspec or from a parser of rules, durations or domains.
        return _error(400, str(error))
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception as error:
        log.exception("control call failed", method=request.method, path=request.path)
        return _error(500, f"this is a bug of Odradek's: {error!r}; the broker's log has the traceback")


def _unknown(request: web.Request, error: web.HTTPException) -> str:
    if isinstance(error, web.HTTPMethodNotAllowed):
        return f"{request.path} takes {' or '.join(sorted(error.allowed_methods))}, not {request.method}"
    if error.status == 404:
        return f"there is nothing at {request.path}: GET /openapi.json says what there is"
    return error.reason


def _error(status: int, sentence: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    # The message may contain input that cannot be encoded.
    body = msgspec.json.encode({"error": sentence.encode("utf-8", "backslashreplace").decode()})
    return web.Response(status=status, body=body, content_type=_JSON, headers=headers)


def _headers(request: web.Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        name = name.lower()
        if name in found and name in ("host", "origin", "authorization", "content-type"):
            raise HttpError(400, f"the header {name} is given more than once")
        found[name] = value
    return found


def _params(request: web.Request) -> dict[str, str]:
    """The parameters of path and query, by name."""
    found = dict(request.match_info)
    for name, value in request.query.items():
        if name in found:
            raise HttpError(400, f"the parameter {name[:100]!r} is given more than once")
        found[name] = value
    return found


def _described(operations: Mapping[tuple[str, str], Operation], with_token: bool) -> bytes:
    """The OpenAPI document. Its generation takes 25 ms, so this function runs in a thread."""
    with loop_goes_first():
        from lab.control import openapi  # rarely requested

        return msgspec.json.encode(openapi.document(operations, version=_version(), with_token=with_token))


def _version() -> str:
    """Version of the installation, from the name of its folder: `importlib.metadata` takes 9 ms and 1.4 MiB to find it."""
    found = (each.stem for folder in sys.path for each in Path(folder).glob("odradek-*.dist-info"))
    return next(found, "odradek-0").removeprefix("odradek-")


def _silent() -> logging.Logger:
    """A logger without output: a client's HTTP errors get a response, and no line in the broker's log."""
    logger = logging.getLogger("odradek.control")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
