"""Requests and responses as evidence: the fields of a `Call`, without more of the bodies than a reader wants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import h11

from odradek.certify.services.calls import Call
from odradek.certify.services.http.connection import Request
from odradek.certify.services.http.origin import RawHeaders
from odradek.certify.services.values import loads

BODY_SHOWN_BYTES: Final = 10_000
"""How much of a body is kept as evidence."""
LINE_MAX: Final = 200
READS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Safe methods (RFC 9110, section 9.2.1): they change nothing."""


def json_of(body: bytes) -> object:
    """The body as a JSON value; None if it is none."""
    try:
        found: object = loads(body)
    except ValueError:
        return None
    return found


def text(body: bytes) -> str:
    """The beginning of a body as text. JSON is in its canonical form, with sorted keys."""
    found = json_of(body)
    if found is not None:
        return json.dumps(found, sort_keys=True, ensure_ascii=False)[:BODY_SHOWN_BYTES]
    return body[:BODY_SHOWN_BYTES].decode("utf-8", "backslashreplace")


def idempotency_key(request: Request) -> str:
    """The key under which a service recognises a request that it has applied; empty if there is none."""
    return request.header(b"idempotency-key") or request.header(b"x-idempotency-key")


def request_view(request: Request) -> dict[str, Any]:
    return {
        "method": request.method,
        "path": request.target,
        "idempotency_key": idempotency_key(request) or None,
        "request_id": request.header(b"x-request-id") or None,
        "body": text(request.body),
        "digest": hashlib.sha256(request.body).hexdigest()[:16],
    }


def line(request: Request) -> str:
    body = text(request.body)
    return f"{request.method} {request.target} {body}".strip()[:LINE_MAX]


@dataclass(slots=True, eq=False)
class Response:
    """A response of the service, as far as it has arrived."""

    request: Request
    call: Call
    status: int = 0
    headers: RawHeaders = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    """The first `BODY_SHOWN_BYTES` of the body."""
    is_complete: bool = False
    events: list[h11.Event] = field(default_factory=list)
    """The whole response, if it is not passed on as it arrives."""

    def add(self, event: h11.Event) -> None:
        match event:
            case h11.Response():
                self.status, self.headers = event.status_code, event.headers.raw_items()
            case h11.Data():
                self.body += event.data[: BODY_SHOWN_BYTES - len(self.body)]
            case h11.EndOfMessage():
                self.is_complete = True

    def header(self, *names: bytes) -> str:
        """The value of the first header with one of the names; empty if there is none. Names are in lower case."""
        found = (value for name, value in self.headers if name.lower() in names)
        return next(found, b"").decode("latin-1")

    @property
    def says_replayed(self) -> bool:
        """Whether the service says that it has applied the request before, and gives the response of that time."""
        return self.header(b"idempotency-replayed", b"idempotent-replayed").lower() == "true"

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def errors(self) -> tuple[str, ...]:
        return (str(self.status),) if self.status >= 400 else ()

    def view(self) -> Mapping[str, Any]:
        retry_after = self.header(b"retry-after") or None
        return {"status": self.status, "retry_after": retry_after, "body": text(bytes(self.body))}
