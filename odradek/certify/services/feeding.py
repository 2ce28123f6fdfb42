"""Give the job its input that is not in topics: files in the run's directory, and requests to the job's own port.

The requests are sent as webhook senders do: in order, each again with the same Idempotency-Key until the job accepts it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from odradek.certify.services.specs import FILES, PORT, Feed
from odradek.deadlines import stretched
from odradek.errors import OdradekError

RESPONSE_S: Final = stretched(5.0)
"""How long the job may take to respond until the request is sent again, in seconds."""
RETRY_S: Final = 0.05
RETRY_AFTER_MAX_S: Final = 1.0
"""Maximum wait for Retry-After: a longer one makes the run longer, and shows nothing else."""
_PORTS: Final = range(20_000, 32_000)
"""Below Linux's ephemeral ports, so that no connection of the job takes the port before the job listens."""
_LATER: Final = frozenset({408, 425, 429})
"""Statuses 4xx that ask for another attempt."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the job."""

    place: str
    """File and line."""
    method: str
    url: str
    body: bytes
    headers: Mapping[str, str]


def requests(feed: Feed, port: int) -> Iterator[Request]:
    """The requests of an input. Raises `OdradekError` with the number of an invalid line.

    Each line is a body. An object with exactly the fields ``body`` and ``headers`` has headers of its own.
    """
    method, _, url = feed.what.partition(" ")
    url = url.replace(f"{{{PORT}}}", str(port))
    for number, line in enumerate(feed.path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        place = f"{feed.path}:{number}"
        try:
            found = json.loads(line)
        except ValueError as error:
            raise OdradekError(f"--input {feed.stage}:{feed.what}: {place}: not JSON: {error}") from None
        body, kind, own = line, "application/json", {}
        if (
            isinstance(found, dict)
            and isinstance(found.get("headers"), dict)
            and found.keys() == {"body", "headers"}
        ):
            body, own = found["body"], found["headers"]
            if isinstance(body, str):
                kind = "text/plain; charset=utf-8"
            else:
                body = json.dumps(body, ensure_ascii=False)
        named = {name.title(): str(value) for name, value in own.items()}
        for each in (*named, *named.values()):
            if not each.isascii() or not each.isprintable():
                raise OdradekError(f"--input {feed.stage}:{feed.what}: {place}: invalid header: {each!r}")
        headers = {"Content-Type": kind, "Idempotency-Key": str(number), **named}
        yield Request(place, method, url, body.encode(), headers)


class Feeding:
    """The feeding of one run. Rows are not among it: they are in the database with which the run begins."""

    def __init__(self, feeds: Sequence[Feed], data: Path) -> None:
        self._files = [each for each in feeds if each.stage == FILES]
        self._data = data
        sent = [each for each in feeds if each.stage == "http"]
        self._port = _free_port() if sent else 0
        self._sender = _Sender([each for feed in sent for each in requests(feed, self._port)])

    def values(self) -> Mapping[str, str]:
        """Placeholders for the job's command: the port at which it has to serve the requests."""
        return {PORT: str(self._port)} if self._port else {}

    def begin(self) -> None:
        """Copy the files into the run's directory, and begin to send the requests.

        Files are no hard links: a job that changes its input in place would change the user's file.
        """
        for each in self._files:
            target = self._data / each.what
            if each.path.is_dir():
                shutil.copytree(each.path, target, dirs_exist_ok=True)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy2(each.path, target)
        if self._port:
            self._sender.start()

    @property
    def is_over(self) -> bool:
        """Whether the job has accepted all the requests, or rejected them for good."""
        return self._sender.is_over

    @property
    def rejected(self) -> Sequence[str]:
        """A sentence for each request that the job has rejected for good."""
        return self._sender.rejected

    def end(self) -> None:
        """End the sending of requests."""
        self._sender.end()


class _Sender(threading.Thread):
    """The thread that sends the requests of one run."""

    def __init__(self, requests: Sequence[Request]) -> None:
        super().__init__(name="odradek-feeding", daemon=True)
        self._requests = requests
        self._ended = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self.is_over = not requests
        self.rejected: list[str] = []

    def run(self) -> None:
        try:
            self.is_over = all(map(self._send, self._requests))
        finally:
            if self._connection is not None:
                self._connection.close()

    def _send(self, request: Request) -> bool:
        """Send a request until the job accepts or rejects it. Returns False if the run ends first."""
        while (pause_s := self._attempt(request)) is not None:
            if self._ended.wait(pause_s):
                return False
        return True

    def end(self) -> None:
        self._ended.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        if self.is_alive():
            self.join(RESPONSE_S)

    def _attempt(self, request: Request) -> float | None:
        """Send a request. Returns None if no further attempt is needed, otherwise the pause before it in seconds."""
        url = urlsplit(request.url)
        if self._connection is None or (self._connection.host, self._connection.port) != (
            url.hostname,
            url.port,
        ):
            self._connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=RESPONSE_S)
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        try:
            self._connection.request(request.method, target, request.body, dict(request.headers))
            response = self._connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()  # the next request opens it again
            return RETRY_S
        if response.status >= 500 or response.status in _LATER:
            return _retry_after_s(response.getheader("Retry-After"))
        if response.status >= 300:
            self.rejected.append(
                f"the job rejected {request.method} {target} with {response.status} {response.reason} ({request.place})"
            )
        return None


def _retry_after_s(said: str | None) -> float:
    return min(float(said), RETRY_AFTER_MAX_S) if said and said.isdecimal() else RETRY_S


def _free_port() -> int:
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
