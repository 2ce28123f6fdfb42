"""What a service has applied, and what it repeats from an earlier run, by its responses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.certify.services.http import replays
from odradek.certify.services.http.applied import records
from odradek.certify.services.http.connection import Request
from odradek.certify.services.http.messages import Response
from odradek.certify.services.http.paths import pattern
from odradek.certify.services.specs import ServiceOutput, StageSpec, parse_output

POST = "POST /v1/payments"
REPLAYED = [(b"Idempotency-Replayed", b"true")]


def response(
    body: object = "ok",
    key: str = "",
    *,
    on: str = POST,
    sent: object = None,
    status: int = 200,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> Response:
    method, _, target = on.partition(" ")
    raw = (
        sent
        if isinstance(sent, bytes)
        else json.dumps({"order": "o1", "amount": 5} if sent is None else sent).encode()
    )
    named = [(b"Idempotency-Key", key.encode())] if key else []
    call: Any = None  # the records do not depend on it
    request = Request(method, target, named, raw, [])
    found = bytearray(json.dumps(body).encode())
    return Response(request, call, status, headers or [], found, is_complete=True)


def values(what: str, *responses: Response) -> list[Any]:
    return [json.loads(str(each.value)) for each in records(responses, ServiceOutput("http", what))]


def test_each_successful_request_without_a_key_is_applied() -> None:
    found = records(
        [response(), response(), response(status=422), response(status=500)], ServiceOutput("http", POST)
    )
    assert [(each.topic, each.partition, each.offset, each.key, each.value) for each in found] == [
        ("http:POST /v1/payments", -1, 0, "o1", '{"amount": 5, "order": "o1"}'),
        ("http:POST /v1/payments", -1, 1, "o1", '{"amount": 5, "order": "o1"}'),
    ]


@pytest.mark.parametrize(
    ("second", "applied"),
    [
        (response({"id": "p1"}, "k"), 1),
        (response({"id": "p1", "at": 2}, "k", status=200), 1),
        (response({"id": "p2"}, "k"), 2),
        (response({"id": "p2"}, "k", headers=REPLAYED), 1),
        (response({"id": "p1"}, "other"), 2),
        (response({"id": "p1"}), 2),
    ],
)
def test_the_same_response_to_the_same_key_is_one_application(second: Response, applied: int) -> None:
    assert len(values(POST, response({"id": "p1"}, "k", status=201), second)) == applied


@pytest.mark.parametrize(
    ("second", "applied"),
    [
        ({"id": "p1", "at": 2}, 1),
        ({"id": "p2"}, 2),
        ({"id": "o1"}, 2),
        ("ok", 2),
    ],
)
def test_an_id_that_the_service_has_made_shows_a_repeated_request_without_a_key(
    second: object, applied: int
) -> None:
    first = {"id": "o1"} if second == {"id": "o1"} else {"id": "p1"}
    assert len(values(POST, response(first), response(second))) == applied


def test_the_same_key_for_another_target_is_another_request() -> None:
    others = [response("ok", "k", on=f"POST /mails/{number}") for number in (1, 2)]
    assert len(values("POST /mails/{}", *others)) == 2


def test_a_put_that_leaves_its_target_as_it_is_applies_nothing() -> None:
    puts = [
        response(on=f"PUT /orders/{target}", sent=sent)
        for target, sent in [(1, 5), (2, 5), (1, 5), (1, 6), (1, 5)]
    ]
    assert [each["path"][-1] for each in values("PUT /orders/{}", *puts)] == ["1", "2", "1", "1"]
    deleted = [puts[0], response(on="DELETE /orders/1", sent=b"", status=204), puts[0]]
    assert len(values("PUT /orders/{}", *deleted)) == 2
    assert len(values("DELETE /orders/{}", *deleted)) == 1


def test_a_request_that_failed_at_first_is_applied_by_its_retry() -> None:
    assert len(values(POST, response({}, "k", status=503), response({"id": "p1"}, "k"))) == 1


def test_only_requests_of_the_method_and_path_are_of_the_output() -> None:
    others = [response(on="PUT /v1/payments"), response(on="POST /v1/payments/1"), response(on="POST /v1")]
    assert values(POST, *others) == []


def test_ids_in_the_path_are_the_key_and_part_of_the_value() -> None:
    (found,) = records(
        [response(on="PUT /orders/17/lines/2", sent={"b": 1, "a": 2})],
        ServiceOutput("http", "PUT /orders/{}/lines/{}"),
    )
    assert found.key == "17/2"
    assert found.value == '{"body": {"a": 2, "b": 1}, "path": "/orders/17/lines/2"}'


def test_a_query_and_a_body_that_is_not_json_are_part_of_the_value() -> None:
    assert values(POST, response(on=f"{POST}?order=1", sent=b""), response(sent=b"a=1")) == [
        {"path": "/v1/payments?order=1", "body": ""},
        {"path": "/v1/payments", "body": "a=1"},
    ]


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ({"x": 1, "id": 7}, "7"),
        ({"order": "o1", "x": 1}, "o1"),
        ({"id": "6f9619ff-8b86-d011-b42d-00cf4fc964ff"}, None),
        ([1], None),
        ({}, None),
        ({"id": None}, None),
    ],
)
def test_the_id_or_the_first_field_is_the_key_unless_it_is_generated(sent: object, key: str | None) -> None:
    assert [each.key for each in records([response(sent=sent)], ServiceOutput("http", POST))] == [key]


def test_the_user_names_the_field_that_is_the_key() -> None:
    output = parse_output("http:POST /v1/{version}#order", [StageSpec("http", "http://h")])
    assert output == ServiceOutput("http", "POST /v1/{}", "order")
    assert output.label == "http:POST /v1/{}"
    sent = {"amount": 5, "order": "6f9619ff-8b86-d011-b42d-00cf4fc964ff"}
    assert [each.key for each in records([response(sent=sent)], output)] == [sent["order"]]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "/"),
        ("/v1/payments", "/v1/payments"),
        ("/v1.2/1.0/x", "/v1.2/1.0/x"),
        ("/orders/17", "/orders/{}"),
        ("/orders/k17/order-3", "/orders/{}/{}"),
        ("/a/6F9619FF-8B86-D011-B42D-00CF4FC964FF", "/a/{}"),
        ("/a/deadbeef01", "/a/{}"),
        ("/a/01ARZ3NDEKTSV4RRFFQ69G5FAV", "/a/{}"),
        ("/a/pay_1MowQ8aB", "/a/{}"),
        ("/a/order%20of%20today", "/a/order%20of%20today"),
        ("/a/2026-12-01", "/a/{}"),
        ("/customer-notifications-v2/decade", "/customer-notifications-v2/decade"),
        ("/a/17?b=18", "/a/{}"),
    ],
)
def test_segments_that_are_ids_are_left_out_of_the_pattern(path: str, expected: str) -> None:
    assert pattern(path) == expected


# -- earlier runs -----------------------------------------------------------------------------------------------------

EARLIER = [
    response({"id": "p1"}, "k1"),
    response({"id": "p2"}, "k2"),
    response({"error": 1}, "k3", status=422),
]


def repeated(*now: Response, has_reset: bool = False, earlier: list[Response] = EARLIER) -> Response | None:
    return replays.of_earlier_run(now, replays.remembered(earlier, 100), has_reset=has_reset)


def test_an_id_of_an_earlier_run_shows_that_the_service_repeats_its_response() -> None:
    found = repeated(response({"id": "p2"}, "k2"))
    assert found is not None
    assert "--stage-reset http=COMMAND" in replays.sentence(found, "http", has_reset=False)


@pytest.mark.parametrize(
    "now",
    [
        response({"id": "p3"}, "k2"),
        response({"id": "p1"}, "k3"),
        response({"id": "p1"}),
        response({"id": "p2"}, "k2", sent={"id": "p2"}),
        response({"id": "p2"}, "k2", status=409),
    ],
)
def test_other_responses_are_of_this_run(now: Response) -> None:
    assert repeated(now) is None


def test_responses_that_are_all_the_same_say_nothing() -> None:
    same = [response("ok", "k1"), response("ok", "k2")]
    assert repeated(response("ok", "k2"), earlier=same) is None


def test_a_service_that_was_reset_may_make_the_same_ids_again() -> None:
    assert repeated(response({"id": "p2"}, "k2"), has_reset=True) is None


@pytest.mark.parametrize("has_reset", [False, True])
def test_the_service_says_that_it_repeats_a_response(has_reset: bool) -> None:
    first = response({"id": "p9"}, "k9")
    replayed = response({"id": "p9"}, "k9", headers=REPLAYED)
    assert repeated(replayed, has_reset=has_reset) is replayed
    assert repeated(first, replayed, has_reset=has_reset) is None
    assert replays.sentence(replayed, "http", has_reset=True).endswith(
        "has not removed the service's idempotency keys"
    )


def test_the_number_of_remembered_keys_is_bounded() -> None:
    assert replays.remembered(EARLIER, 1) == {"k1": b'{"id": "p1"}'}
