"""Responses that a service gives from its memory of an earlier run: the request was applied then, and not in this run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from odradek.certify.services.http.messages import Response, idempotency_key, json_of


def remembered(responses: Iterable[Response], keys_max: int) -> dict[str, bytes]:
    """The successful response to each idempotency key, for at most ``keys_max`` keys."""
    found = {idempotency_key(each.request): bytes(each.body) for each in responses if each.is_success}
    found.pop("", None)
    return dict(islice(found.items(), keys_max))


def of_earlier_run(
    responses: Sequence[Response], earlier: Mapping[str, bytes], *, has_reset: bool
) -> Response | None:
    """The first response of this run that repeats one of an earlier run; None if there is none.

    ``earlier`` is the result of `remembered`. The first response to a key is a repetition if the service says so, or if it
    equals the earlier response and has a value that the service has made, such as an id. A service that was reset may make
    the same ids again.
    """
    known: set[str] = set()
    for each in responses:
        key = idempotency_key(each.request)
        if not key or key in known or not each.is_success:
            continue
        known.add(key)
        if each.says_replayed or (not has_reset and _is_repeated(each, key, earlier)):
            return each
    return None


def _is_repeated(response: Response, key: str, earlier: Mapping[str, bytes]) -> bool:
    body = bytes(response.body)
    if earlier.get(key) != body:
        return False
    other = next((each for one, each in earlier.items() if one != key and each != body), None)
    if other is None:
        return False  # all responses are the same, such as "ok"
    request = response.request
    sent = f"{request.target} {key} {request.body.decode('utf-8', 'replace')}"
    made = set(_values(json_of(body))) - set(_values(json_of(other)))
    return any(each.strip('"') not in sent for each in made)


def _values(value: object) -> Iterator[str]:
    """All numbers and texts in a JSON value, as JSON."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _values(each)
    elif value is not None:
        yield json.dumps(value, ensure_ascii=False)


def sentence(response: Response, stage: str, *, has_reset: bool) -> str:
    """Why a run with this response is not judged, and what the user can do."""
    request = response.request
    said = (
        f"{stage}: {request.method} {request.target} with Idempotency-Key {idempotency_key(request)} was answered from the "
        "memory of an earlier run, so this run has applied nothing: "
    )
    if has_reset:
        return f"{said}--stage-reset {stage} has not removed the service's idempotency keys"
    return f"{said}give --stage-reset {stage}=COMMAND, which returns the service to its first state before each run"
