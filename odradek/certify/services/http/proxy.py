"""The proxy of an HTTP service, and the faults at its requests."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

import h11

from odradek.certify.outcome import NotJudged
from odradek.certify.services.calls import Call, Traffic
from odradek.certify.services.http import applied, messages, replays
from odradek.certify.services.http.connection import Events, NotSupported, Request, Session, Upstream
from odradek.certify.services.http.messages import Response
from odradek.certify.services.http.origin import Origin
from odradek.certify.services.http.paths import pattern
from odradek.certify.services.proxy import LATE_S, Client, Listener, end
from odradek.certify.services.service import Loop
from odradek.certify.services.specs import Feed, ServiceOutput
from odradek.errors import OdradekError
from odradek.topics import Record

IN_FLIGHT_S: Final = 2.0
"""How long the outputs wait for requests that the service is handling, in seconds."""
KEYS_MAX: Final = 10_000
"""Maximum number of idempotency keys of earlier runs that are remembered."""
RETRY_AFTER_S: Final = 1
_OTHER_PROTOCOLS: Final = (501, 505)
_RETRY_LATER: Final = (429, 503)


class HttpService:
    """The proxy of an HTTP service. Its state is not restored: the certifier knows nothing of it."""

    def __init__(
        self, name: str, origin: Origin, loop: asyncio.AbstractEventLoop, *, has_reset: bool = False
    ) -> None:
        self._name, self._origin, self._has_reset = name, origin, has_reset
        self._tls = ssl.create_default_context() if origin.scheme == "https" else None
        self.traffic = Traffic(loop)
        self._listener = Listener(self._serve)
        self._in_flight: set[asyncio.Task[Response | None]] = set()
        """Requests that the service is handling. They go on when the job's connection ends."""
        self._responses: list[Response] = []
        self._refused = ""
        """Why the last request of another protocol was refused."""
        self._earlier: dict[str, bytes] = {}
        """The response to each idempotency key of earlier runs."""

    def start(self, loop: Loop, feeds: Sequence[Feed]) -> None:
        self._loop = loop
        loop.run(self._check())
        loop.run(self._listener.open())

    async def _check(self) -> None:
        try:
            _, writer = await asyncio.open_connection(self._origin.host, self._origin.port, ssl=self._tls)
        except OSError as error:
            raise OdradekError(f"--stage {self._name}: {self._origin.authority}: {error}") from None
        end(writer)

    def restore(self) -> None:
        self._loop.run(self._restore())

    async def _restore(self) -> None:
        await self._listener.restore()
        await self._settle()
        self._refused = ""
        self._earlier |= replays.remembered(self._responses, KEYS_MAX - len(self._earlier))
        self._responses = []

    async def _settle(self) -> None:
        """Wait for the requests that the service is handling now, at most for `IN_FLIGHT_S`."""
        if self._in_flight:
            await asyncio.wait(set(self._in_flight), timeout=IN_FLIGHT_S)

    def values(self) -> Mapping[str, str]:
        port = str(self._listener.port)
        return {
            self._name: f"http://127.0.0.1:{port}{self._origin.base}",
            f"{self._name}.host": "127.0.0.1",
            f"{self._name}.port": port,
        }

    def records(self, output: ServiceOutput) -> list[Record]:
        self._loop.run(self._settle())
        calls = set(self.traffic.calls())
        found = [each for each in list(self._responses) if each.call in calls]
        replayed = replays.of_earlier_run(found, self._earlier, has_reset=self._has_reset)
        if replayed is not None:
            raise NotJudged(replays.sentence(replayed, self._name, has_reset=self._has_reset))
        return applied.records(found, output)

    def open_transactions(self) -> list[str]:
        """None: HTTP has no transactions. Raises `NotJudged` if the job speaks another protocol, such as HTTP/2."""
        if self._refused:
            raise NotJudged(f"--stage {self._name}: a request of the job was refused: {self._refused}")
        return []

    def close(self) -> None:
        self._loop.run(self._listener.close())

    # -- one connection ------------------------------------------------------------------------------------------

    async def _serve(self, client: Client) -> None:
        session, upstream = Session(client), Upstream(self._origin, self._tls)
        try:
            while (request := await session.request()) is not None:
                if not await self._handle(session, upstream, request) or not session.is_reusable():
                    return
        except NotSupported as refused:
            if refused.status in _OTHER_PROTOCOLS:
                self._refused = str(refused)
            if session.state.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await session.answer(refused.status, str(refused), [("Connection", "close")])
        finally:
            upstream.close()

    async def _handle(self, session: Session, upstream: Upstream, request: Request) -> bool:
        """Handle a request. Returns whether the connection may go on."""
        call = self.traffic.arrived(
            f"{self._name}:{request.method} {pattern(request.target)}",
            "",
            session.client.peer,
            messages.line(request),
            messages.request_view(request),
            is_write=request.method not in messages.READS,
        )
        try:
            action = await call.decided()
        except asyncio.CancelledError:
            call.unanswered()
            raise
        kind, _, how = action.partition(" ")
        match kind:
            case "drop" | "lose-request" | "restart" | "close-all":
                call.unanswered()
                await self._lose(session, action)
                return False
            case "error":
                await _reject(session, call, int(how))
                return True
        passes = kind in ("", "duplicate")
        response = await self._asked(session, upstream, request, call, passes=kind == "")
        if kind == "duplicate" and response is not None:
            # A request is sent again by something between that got no response: the client gets the second response.
            response = await self._asked(session, upstream, request, call, passes=True)
        if response is None or passes:
            return response is not None
        return await self._held_back(session, response, action)

    async def _lose(self, session: Session, action: str) -> None:
        """End the connection before the service gets the request."""
        if action == "lose-request silent":
            await session.gone()
        elif action == "close-all":
            await self._listener.close_all(session.client)
            return  # and close this one without RST, as a server does whose keep-alive timeout is over
        elif action == "restart":
            await self._listener.go_away(session.client)
        session.client.reset()

    async def _asked(
        self, session: Session, upstream: Upstream, request: Request, call: Call, *, passes: bool
    ) -> Response | None:
        """Send the request to the service, and return the response when it is complete; None if there is none.

        If the connection of the job ends, the service still gets the request and handles it.
        """
        task = asyncio.create_task(self._ask(session, upstream, Response(request, call), passes=passes))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return await asyncio.shield(task)

    async def _ask(
        self, session: Session, upstream: Upstream, response: Response, *, passes: bool
    ) -> Response | None:
        async def take(events: Events) -> None:
            for each in events:
                response.add(each)
            if response.is_complete:
                self._responses.append(response)
                if passes:
                    _end(session, response)
            if passes:
                await self._pass(session, events)
            else:
                response.events += events

        try:
            await upstream.ask(response.request, take)
        except OSError:
            response.call.unanswered()
            session.client.reset()
            return None
        return response

    async def _pass(self, session: Session, events: Events) -> None:
        proxy = f"127.0.0.1:{self._listener.port}"
        with contextlib.suppress(OSError):  # the connection of the job has ended
            await session.send(*(self._translated(each, proxy) for each in events))

    def _translated(self, event: h11.Event, proxy: str) -> h11.Event:
        if not isinstance(event, h11.Response):
            return event
        headers = self._origin.answered(event.headers.raw_items(), proxy)
        return h11.Response(status_code=event.status_code, reason=event.reason, headers=headers)

    async def _held_back(self, session: Session, response: Response, action: str) -> bool:
        """Lose or delay a response. Returns whether the connection may go on."""
        if action == "late-answer" and not await session.gone(LATE_S):
            _end(session, response)
            await self._pass(session, response.events)
            return True
        response.call.lost(response.view(), response.errors)
        if action == "lose-answer":
            session.client.reset()
        else:
            await session.gone()
        return False


def _end(session: Session, response: Response) -> None:
    """Report that the response goes to the job, whose connection may have ended."""
    is_gone = session.client.writer.is_closing() or session.client.reader.at_eof()
    report = response.call.lost if is_gone else response.call.answered
    report(response.view(), response.errors)


async def _reject(session: Session, call: Call, status: int) -> None:
    """Answer instead of the service."""
    reason = HTTPStatus(status).phrase
    headers = [("Retry-After", str(RETRY_AFTER_S))] if status in _RETRY_LATER else []
    view = {"status": status, "retry_after": headers[0][1] if headers else None, "body": reason}
    call.answered(view, (str(status),))
    await session.answer(status, reason, headers)
