"""A client of the control port. It uses only the standard library, so it adds no dependency to users' environments."""

from __future__ import annotations

import http.client
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import quote, urlencode, urlsplit

from odradek.asynchronous import CURRENT_CALL
from odradek.deadlines import stretched
from odradek.errors import HIDDEN_IN_TRACEBACKS, ControlRefused, ControlUnreachable, NotFound
from odradek.pending import waiting_for
from odradek.printable import printable_lines

__tracebackhide__ = HIDDEN_IN_TRACEBACKS

if TYPE_CHECKING:
    import ssl

TIMEOUT_S: Final = stretched(60.0)
"""Timeout of a call, in seconds. Long enough for calls that stop a node: a controlled shutdown may take long."""
ADVANCE_TIMEOUT_S: Final = stretched(3600.0)
"""Timeout of an advance of the clock, in seconds: all timers that become due fire before the broker responds."""
ENDS_WITH_CALLER: Final = ("/v1/clock/advance",)
"""Paths of the calls that the broker cancels when the caller disconnects."""
CA_VARIABLE: Final = "ODRADEK_CONTROL_CA"
_JSON: Final = "application/json"
TOKEN_VARIABLE: Final = "ODRADEK_CONTROL_TOKEN"
_UNAUTHORIZED: Final = 401


class ControlClient:
    """A client of one control port.

    client = ControlClient("http://127.0.0.1:18092")
    client.post("/v1/faults", {"rule": "EndTxn nth=2 -> lose-answer"})
    """

    def __init__(
        self, url: str, token: str | None = None, timeout_s: float = TIMEOUT_S, ca: str | None = None
    ) -> None:
        """``ca`` is a PEM file of trusted certificates; None: that of ODRADEK_CONTROL_CA, or the system's trust store."""
        parts = urlsplit(url if "//" in url else f"//{url}")
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme not in ("http", "https", "") or not parts.hostname or port is None:
            raise ControlUnreachable(
                f"{url!r} is not the URL of a control port, such as http://127.0.0.1:18092"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.url = f"{parts.scheme or 'http'}://{host}:{port}"
        self._tls = _context(ca or os.environ.get(CA_VARIABLE) or None) if parts.scheme == "https" else None
        self._host, self._port = parts.hostname, port
        self._token = token
        self._timeout_s = timeout_s
        self._gone = ""

    def retire(self, sentence: str) -> None:
        """Make all further calls fail with this sentence, because the broker has ended.

        The calls must not reach another broker at the same address, because its rules have the same ids.
        """
        self._gone = sentence

    def get(
        self, path: str, query: Mapping[str, object] | None = None, timeout_s: float | None = None
    ) -> Any:
        return self._call("GET", _with_query(path, query), None, timeout_s)

    def post(self, path: str, body: object = None, timeout_s: float | None = None) -> Any:
        return self._call("POST", path, body, timeout_s)

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path, None, None)

    def download(self, path: str, query: Mapping[str, object] | None, target: BinaryIO) -> None:
        """Write the response to the file ``target``."""
        step = waiting_for(f"GET {path}", self.url)
        with step, closing(self._connection(self._timeout_s)) as connection:
            answer = self._answer(connection, "GET", _with_query(path, query), None, self._timeout_s)
            shutil.copyfileobj(answer, target)

    @contextmanager
    def lines(self, path: str, query: Mapping[str, object] | None = None) -> Iterator[Iterator[Any]]:
        """Yield the JSON lines of the response as they arrive, without a timeout between them."""
        with closing(self._connection(None)) as connection:
            yield self._lines(self._answer(connection, "GET", _with_query(path, query), None, None))

    def _lines(self, answer: http.client.HTTPResponse) -> Iterator[Any]:
        while True:
            try:
                line = answer.readline()
            except (OSError, http.client.HTTPException):
                line = b""  # the broker was killed
            if not line:
                return
            yield json.loads(line)

    def _call(self, method: str, path: str, body: object, timeout_s: float | None) -> Any:
        timeout_s = timeout_s or self._timeout_s
        step = waiting_for(f"{method} {path.partition('?')[0]}", self.url)
        with step, closing(self._connection(timeout_s)) as connection:
            answer = self._answer(connection, method, path, body, timeout_s)
            try:
                return json.loads(answer.read())
            except TimeoutError as error:
                raise self._late(method, path, timeout_s) from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise self._unreachable(error) from error

    def _answer(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: object,
        timeout_s: float | None,
    ) -> http.client.HTTPResponse:
        if self._gone:
            raise ControlUnreachable(self._gone)
        headers = {"Accept": "*/*"}
        if method != "GET":
            headers["Content-Type"] = _JSON
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.connect()
        except OSError as error:
            raise self._unreachable(error) from error
        pending_call = CURRENT_CALL.get()
        if pending_call is not None:
            pending_call.connected(connection)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
        except TimeoutError as error:
            raise self._late(method, path, timeout_s) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        if answer.status >= 400:
            raise self._refused(answer)
        return answer

    def _connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls)

    def _refused(self, answer: http.client.HTTPResponse) -> ControlRefused:
        text = answer.read().decode("utf-8", "replace")
        try:
            sentence = str(json.loads(text)["error"])
        except (ValueError, KeyError, TypeError):
            sentence = f"{self.url} responded {answer.status} {answer.reason}, which no control port does"
        if answer.status == _UNAUTHORIZED and not self._token:
            sentence += f" ({TOKEN_VARIABLE}, or --token in a command)"
        # The text may contain names that clients have sent, and is printed on a terminal or in a test report.
        sentence = printable_lines(sentence)
        return (NotFound if answer.status == 404 else ControlRefused)(answer.status, sentence)

    def _late(self, method: str, path: str, timeout_s: float | None) -> ControlUnreachable:
        """The error for a call that the broker accepted but did not respond to in time."""
        if path in ENDS_WITH_CALLER:
            more = "; the advance stops where it is"
        else:
            more = "; it still completes the call" if method != "GET" else ""
        return ControlUnreachable(
            f"the broker at {self.url} accepted {method} {path} but did not respond within {timeout_s or 0:g} s: "
            f"it is busy{more}"
        )

    def _unreachable(self, error: Exception) -> ControlUnreachable:
        verify_message = getattr(error, "verify_message", None)
        if verify_message:
            return ControlUnreachable(
                f"the certificate of {self.url} is not trusted ({verify_message.rstrip('.')}): set {CA_VARIABLE} to a PEM "
                "file with the certificate, or with that of its authority"
            )
        if isinstance(error, http.client.RemoteDisconnected):
            reason = "the connection was closed without a response, as the port for Kafka clients does"
        else:
            reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
        return ControlUnreachable(
            f"no control port at {self.url} ({reason}): is the broker running, and was it started with --control-port?"
        )


def _context(ca: str | None) -> ssl.SSLContext:
    import ssl  # imported only for a control port with TLS, as the import is slow

    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ControlUnreachable(f"{CA_VARIABLE}={ca} cannot be read as certificates ({reason})") from None


def in_path(text: object) -> str:
    """The text, quoted as one segment of a URL path."""
    return quote(str(text), safe="")


def _with_query(path: str, query: Mapping[str, object] | None) -> str:
    said = {name: _text(value) for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(said)}" if said else path


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
