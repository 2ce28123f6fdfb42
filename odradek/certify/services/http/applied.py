"""What a service has applied, as its responses show it: the records of ``--output 'http:POST /v1/payments'``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from odradek.certify.services.http.connection import Request
from odradek.certify.services.http.messages import Response, idempotency_key, json_of, text
from odradek.certify.services.http.paths import ids, is_random, matches
from odradek.certify.services.specs import ServiceOutput
from odradek.certify.services.values import key_of, row
from odradek.topics import Record

_ID: Final = "id"
_IDEMPOTENT: Final = frozenset({"PUT", "DELETE"})


def records(responses: Iterable[Response], output: ServiceOutput) -> list[Record]:
    """The records of an output such as ``POST /v1/payments``: one for each application, in their order.

    The value is the JSON body of the request. It is an object with ``path`` and ``body`` if the body is no JSON, if the path
    has a query, or if the output's path contains ``{}``.
    """
    method, _, wanted = output.what.partition(" ")
    chosen = [
        each.request
        for each in applications(responses)
        if each.request.method == method and matches(wanted, _path(each.request))
    ]
    return [
        row(output.label, number, _value(each, wanted), _key(each, wanted, output.key))
        for number, each in enumerate(chosen)
    ]


def applications(responses: Iterable[Response]) -> list[Response]:
    """The responses to requests that the service has applied.

    A response with another status than 2xx applies nothing, nor does a repeated request: one to which the service gives the
    response of before (`_is_same`), or a PUT or DELETE that leaves its target as it is (RFC 9110, section 9.2.2).
    """
    found: list[Response] = []
    known: dict[tuple[str, ...], list[Response]] = {}
    last: dict[str, tuple[str, bytes]] = {}
    for each in responses:
        if not each.is_success:
            continue
        request, key = each.request, idempotency_key(each.request)
        what = request.method, request.body
        digest = hashlib.sha256(request.body).hexdigest()
        earlier = known.setdefault((request.method, request.target, key, "" if key else digest), [])
        is_again = any(each.says_replayed or _is_same(each, other) for other in earlier)
        earlier.append(each)
        if request.method in _IDEMPOTENT:
            is_again |= last.get(request.target) == what
            last[request.target] = what
        if not is_again:
            found.append(each)
    return found


def _is_same(one: Response, two: Response) -> bool:
    """Whether two responses to requests under one key, or with one content, are about the same application.

    Without an idempotency key only an ``id`` shows it that the service has made. The status may differ: 201, then 200.
    """
    ours, theirs = _id(one), _id(two)
    if not idempotency_key(one.request):
        sent = f"{one.request.target} {text(one.request.body)}"
        return ours is not None and ours == theirs and str(ours) not in sent
    return one.body == two.body or (ours is not None and ours == theirs)


def _id(response: Response) -> object:
    body = json_of(bytes(response.body))
    return body.get(_ID) if isinstance(body, dict) else None


def _value(request: Request, wanted: str) -> object:
    body = json_of(request.body)
    if body is not None and request.target == wanted:
        return body
    return {"path": request.target, "body": text(request.body) if body is None else body}


def _key(request: Request, wanted: str, field: str) -> str | None:
    """The key of the record: the field that the user has named, the ids in the path, or the body's ``id`` or first field.

    A generated value is no key unless the user says so, because it is another one in each run.
    """
    body = json_of(request.body)
    fields = body if isinstance(body, dict) else {}
    if field:
        return key_of(fields.get(field))
    found = "/".join(ids(wanted, _path(request))) or fields.get(_ID) or next(iter(fields.values()), None)
    key = key_of(found)
    return None if not key or is_random(key) else key


def _path(request: Request) -> str:
    return request.target.partition("?")[0]
