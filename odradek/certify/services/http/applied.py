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


def records(responses: Iterable[Response], output: ServiceOutput) -> list[Record]:
    """The records of an output such as ``POST /v1/payments``: one for each application, in their order.

    The value is the JSON body of the request. It is an object with ``path`` and ``body`` if the body is no JSON, if the path
    has a query, or if the output's path contains ``{}``.
    """
    method, _, wanted = output.what.partition(" ")
    chosen = [
        each for each in responses if each.request.method == method and matches(wanted, _path(each.request))
    ]
    return [
        row(output.label, number, _value(each.request, wanted), _key(each.request, wanted, output.key))
        for number, each in enumerate(applications(chosen))
    ]


def applications(responses: Iterable[Response]) -> list[Response]:
    """The responses to requests that the service has applied.

    A response with another status than 2xx applies nothing. A second response under the same idempotency key is the
    application of the first one, if it is the same, has the same ``id``, or says that it is replayed.
    """
    found: list[Response] = []
    known: dict[str, list[Response]] = {}
    for each in responses:
        if not each.is_success:
            continue
        key = idempotency_key(each.request)
        earlier = known.setdefault(key or _content(each.request), [])
        if not any(each.says_replayed or (key and _is_same(each, other)) for other in earlier):
            found.append(each)
        earlier.append(each)
    return found


def _is_same(one: Response, two: Response) -> bool:
    """Whether two responses are about the same application. A status may differ: 201 at first, then 200."""
    if one.body == two.body:
        return True
    ours, theirs = json_of(bytes(one.body)), json_of(bytes(two.body))
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return False
    return ours.get(_ID) is not None and ours.get(_ID) == theirs.get(_ID)


def _content(request: Request) -> str:
    return f"{request.method} {request.target} {hashlib.sha256(request.body).hexdigest()}"


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
