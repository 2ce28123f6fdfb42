"""The payments service of the examples behind a stage, in two runs."""

from __future__ import annotations

import http.client
import json
import runpy
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.certify.outcome import NotJudged
from odradek.certify.services.http import service
from odradek.certify.services.http.proxy import HttpService
from odradek.certify.services.service import Loop
from odradek.certify.services.specs import ServiceOutput, StageSpec
from tests.odradek.certify.zoo import BEYOND

PAYMENTS = ServiceOutput("http", "POST /v1/payments")


@pytest.fixture
def payments() -> Iterator[HttpService]:
    """The proxy of a payments service."""
    server = runpy.run_path(str(BEYOND / "payments.py"))["serve"]()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    loop = Loop()
    stage = service(StageSpec("http", f"http://127.0.0.1:{server.server_address[1]}"), loop.loop)
    stage.start(loop, [])
    try:
        yield stage
    finally:
        stage.close()
        loop.close()
        server.shutdown()
        thread.join()
        server.server_close()


def asked(stage: HttpService, method: str, key: str = "", path: str = "/v1/payments", **body: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", int(stage.values()["http.port"]))
    try:
        sent = json.dumps(body) if body else None
        connection.request(method, path, sent, {"Idempotency-Key": key} if key else {})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    finally:
        connection.close()


def begin(stage: HttpService) -> None:
    stage.restore()
    stage.traffic.begin()


def test_a_payment_under_a_key_is_made_and_applied_once(payments: HttpService) -> None:
    first = asked(payments, "POST", "k1", order="o1", amount=5)
    assert first == (201, {"id": "pay_00000001", "status": "made", "order": "o1", "amount": 5})
    assert asked(payments, "POST", "k1", order="o1", amount=5) == first
    assert asked(payments, "POST", "k1", order="o1", amount=6)[0] == 422
    assert asked(payments, "POST", order="o2", amount=7)[0] == 201
    assert asked(payments, "GET")[1] == [
        first[1],
        {"id": "pay_00000002", "status": "made", "order": "o2", "amount": 7},
    ]
    assert asked(payments, "GET", path="/v1/payments/pay_00000001") == (200, first[1])
    assert asked(payments, "GET", path="/v1/payments/pay_9")[0] == 404
    assert [(each.key, each.value) for each in payments.records(PAYMENTS)] == [
        ("o1", '{"amount": 5, "order": "o1"}'),
        ("o2", '{"amount": 7, "order": "o2"}'),
    ]


def test_a_run_that_is_answered_from_the_memory_of_an_earlier_one_is_not_judged(
    payments: HttpService,
) -> None:
    for _ in range(2):
        begin(payments)
        asked(payments, "POST", "k1", order="o1", amount=5)
    with pytest.raises(NotJudged, match="Idempotency-Key k1 was answered from the memory of an earlier run"):
        payments.records(PAYMENTS)


def test_a_service_that_is_emptied_between_the_runs_is_judged(payments: HttpService) -> None:
    for _ in range(2):
        begin(payments)
        asked(payments, "DELETE")
        payments.traffic.begin()
        asked(payments, "POST", "k1", order="o1", amount=5)
    assert len(payments.records(PAYMENTS)) == 1
