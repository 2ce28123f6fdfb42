"""The proxy of an HTTP service: what it passes on, and each fault at its requests."""

from __future__ import annotations

import json
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path

import h11
import pytest

from broker.security.tls.authority import Authority
from odradek.certify.jobs.job import wait_until
from odradek.certify.outcome import NotJudged
from odradek.certify.services.calls import Call
from odradek.certify.services.http import connection, proxy, service
from odradek.certify.services.http.proxy import HttpService
from odradek.certify.services.service import Loop
from odradek.certify.services.specs import ServiceOutput, StageSpec
from odradek.errors import OdradekError
from tests.odradek.certify.services.http.origin import OK, Client, staged
from tests.support.deadlines import HANG_S

POST = (
    b'POST /v1/payments HTTP/1.1\r\nHost: stage\r\nContent-Length: 8\r\nIdempotency-Key: k1\r\n\r\n{"a": 1}'
)
GET = b"GET /v1/payments HTTP/1.1\r\nHost: stage\r\n\r\n"
ON = "http:POST /v1/payments"
OVER = b"\r\n\r\nok"


def struck(stage: HttpService, action: str) -> Client:
    """A client whose POST is hit by the action."""
    stage.traffic.add(f"{ON} nth=1 -> {action}")
    client = Client(stage)
    client.send(POST)
    return client


def over(stage: HttpService, number: int = 1) -> Call:
    """The request with this number, when it is over."""
    found: list[Call] = []

    def is_over() -> bool:
        found[:] = stage.traffic.calls()[number - 1 : number]
        return bool(found) and found[0].is_over

    wait_until(is_over, HANG_S)
    assert is_over(), "the request is not over"
    return found[0]


# -- what is passed on ---------------------------------------------------------------------------------------------


def test_a_request_reaches_the_service_as_it_is_and_is_one_moment() -> None:
    with staged(lambda head, body: b"HTTP/1.1 201 Fine\r\nX-Trace: 7\r\nContent-Length: 2\r\n\r\nok") as (
        stage,
        origin,
    ):
        client = Client(stage)
        client.send(POST)
        answer = client.receive(OVER)
        assert answer == b"HTTP/1.1 201 Fine\r\nX-Trace: 7\r\nContent-Length: 2\r\n\r\nok"
        ((head, body, _),) = origin.requests
        assert (head.method, head.target, body) == (b"POST", b"/v1/payments", b'{"a": 1}')
        assert dict(head.headers)[b"host"] == f"127.0.0.1:{origin.port}".encode()
        (call,) = stage.traffic.calls()
        assert (call.on, call.phase, call.outcome, call.errors, call.is_write) == (
            ON,
            "",
            "answered",
            (),
            True,
        )
        assert call.line == 'POST /v1/payments {"a": 1}'
        assert call.request["idempotency_key"] == "k1"
        assert call.answer == {"status": 201, "retry_after": None, "body": "ok"}


def test_requests_of_one_connection_are_handled_in_order_even_if_they_come_at_once() -> None:
    with staged(lambda head, body: b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + head.target[-1:]) as (
        stage,
        origin,
    ):
        client = Client(stage)
        client.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % each for each in range(3)))
        client.receive(b"\r\n\r\n2")
        assert [head.target for head, _, _ in origin.requests] == [b"/0", b"/1", b"/2"]
        assert [each.on for each in stage.traffic.calls()] == ["http:GET /{}"] * 3
        assert origin.connections == 2  # one of the check at the start, and one for the connection of the job


def test_chunked_bodies_and_trailers_pass_in_both_directions() -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nX-Sum: 3\r\n\r\n"
    )
    with staged(lambda head, body: answer) as (stage, origin):
        client = Client(stage)
        client.send(
            b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n2\r\nyz\r\n0\r\nX-End: 1\r\n\r\n"
        )
        received = client.receive(b"X-Sum: 3\r\n\r\n")
        assert received.endswith(b"2\r\nab\r\n1\r\nc\r\n0\r\nX-Sum: 3\r\n\r\n")
        ((_, body, trailers),) = origin.requests
        assert (body, trailers) == (b"xyz", [(b"X-End", b"1")])
        assert over(stage).answer == {"status": 200, "retry_after": None, "body": "abc"}


def test_a_response_without_a_length_ends_with_the_connection_of_the_service() -> None:
    with staged(lambda head, body: b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nall of it") as (stage, _):
        client = Client(stage)
        client.send(GET)
        assert b"all of it" in client.receive(b"0\r\n\r\n")
        assert client.ending() == "closed"
        assert over(stage).answer["body"] == "all of it"  # type: ignore[index]


def test_a_client_that_expects_100_continue_sends_its_body() -> None:
    with staged() as (stage, origin):
        client = Client(stage)
        head, _, body = POST.partition(b"\r\n\r\n")
        client.send(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert client.receive(b"\r\n\r\n").startswith(b"HTTP/1.1 100")
        client.send(body)
        client.receive(OVER)
        assert b"expect" not in dict(origin.requests[0][0].headers)


def test_the_response_to_head_has_no_body_and_the_connection_goes_on() -> None:
    with staged(lambda head, body: OK if head.method == b"GET" else OK[:-2]) as (stage, _):
        client = Client(stage)
        client.send(GET.replace(b"GET", b"HEAD"))
        assert b"Content-Length: 2" in client.receive(b"\r\n\r\n")
        client.send(GET)
        client.receive(OVER)
        assert [each.is_write for each in stage.traffic.calls()] == [False, False]


def test_the_proxy_opens_a_new_connection_to_a_service_that_has_closed_it() -> None:
    with staged() as (stage, origin):
        client = Client(stage)
        origin.answer = lambda head, body: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        for _ in range(2):
            client.send(POST)
            client.receive(OVER)
        assert len(origin.requests) == 2


def test_a_redirect_to_the_service_leads_to_the_proxy() -> None:
    with staged() as (stage, origin):
        where = f"Location: http://127.0.0.1:{origin.port}/next?page=2\r\n".encode()
        origin.answer = lambda head, body: (
            b"HTTP/1.1 307 Over there\r\n" + where + b"Content-Length: 2\r\n\r\nok"
        )
        client = Client(stage)
        client.send(POST)
        port = stage.values()["http.port"]
        assert f"Location: http://127.0.0.1:{port}/next?page=2\r\n".encode() in client.receive(OVER)


def test_the_target_may_be_an_absolute_url() -> None:
    with staged() as (stage, origin):
        client = Client(stage)
        client.send(POST.replace(b"/v1", b"http://payments.test/v1", 1))
        client.receive(OVER)
        assert origin.requests[0][0].target == b"/v1/payments"


def test_an_upgrade_to_http_2_is_not_passed_on() -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings, keep-alive\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
    with staged() as (stage, origin):
        client = Client(stage)
        client.send(GET.replace(b"Host", upgrade + b"Host"))
        client.receive(OVER)
        headers = dict(origin.requests[0][0].headers)
        assert headers.keys() == {b"host", b"connection"}
        assert headers[b"connection"] == b"keep-alive"
        client.send(POST)
        client.receive(OVER)


@pytest.mark.parametrize(
    ("data", "status", "sentence"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "HTTP/2 is not supported: use HTTP/1.1"),
        (b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", 501, "CONNECT is not supported"),
        (b"nonsense\r\n\r\n", 400, "illegal request line"),
        (POST.replace(b" 8", b" 80"), 413, "the body is larger than 10 bytes"),
    ],
)
def test_what_the_proxy_does_not_speak_is_refused_with_a_sentence(
    data: bytes, status: int, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BODY_MAX_BYTES", 10)
    with staged() as (stage, origin):
        client = Client(stage)
        client.send(data.ljust(len(data) + (80 if status == 413 else 0)))
        received = client.receive(b"}")
        assert received.startswith(f"HTTP/1.1 {status} ".encode())
        assert sentence in json.loads(received.partition(b"\r\n\r\n")[2])["error"]
        assert not origin.requests
        assert not stage.traffic.calls()
        if status > 500:
            with pytest.raises(
                NotJudged, match=f"--stage http: a request of the job was refused: {sentence}"
            ):
                stage.open_transactions()
            stage.restore()
        assert stage.open_transactions() == []


def test_the_service_may_use_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority.create(datetime(2024, 1, 1, tzinfo=UTC), days=36_500)
    issued = authority.issue("localhost", ["127.0.0.1"], days=36_500)
    trusted, own = tmp_path / "trusted.pem", tmp_path / "own.pem"
    trusted.write_bytes(authority.certificate_pem())
    own.write_bytes(issued.key_pem() + issued.chain_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with staged(tls=context) as (stage, origin):
        client = Client(stage)
        client.send(POST)
        client.receive(OVER)
        assert origin.bodies == [b'{"a": 1}']


def test_a_service_that_cannot_be_reached_is_named() -> None:
    loop = Loop()
    with pytest.raises(OdradekError, match=r"--stage http: 127\.0\.0\.1:1: "):
        service(StageSpec("http", "http://127.0.0.1:1"), loop.loop).start(loop, [])
    loop.close()


def test_a_service_that_ends_the_connection_ends_that_of_the_job() -> None:
    with staged(lambda head, body: b"") as (stage, _):
        client = Client(stage)
        client.send(POST)
        assert client.ending() == "reset"
        assert over(stage).outcome == "unanswered"


@pytest.mark.parametrize("url", ["localhost:80", "ftp://a", "http://", "http://a?b=1", "http://me@a"])
def test_an_address_that_is_no_url_of_a_service_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=f"--stage http={url.partition('?')[0]}"):
        service(StageSpec("http", url), None)  # type: ignore[arg-type]


# -- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["drop", "lose-request"])
def test_a_lost_request_does_not_reach_the_service(action: str) -> None:
    with staged() as (stage, origin):
        assert struck(stage, action).ending() == "reset"
        assert over(stage).outcome == "unanswered"
        assert not origin.requests


def test_a_silently_lost_request_leaves_the_connection_open() -> None:
    with staged() as (stage, origin):
        client = struck(stage, "lose-request silent")
        assert over(stage).outcome == "unanswered"
        client.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.socket.recv(1)
        assert not origin.requests


@pytest.mark.parametrize("action", ["lose-answer", "lose-answer silent"])
def test_a_lost_response_is_that_of_an_applied_request(action: str) -> None:
    with staged() as (stage, origin):
        client = struck(stage, action)
        call = over(stage)
        assert (call.outcome, call.answer) == (
            "answer_lost",
            {"status": 201, "retry_after": None, "body": "ok"},
        )
        assert origin.bodies == [b'{"a": 1}']
        if action == "lose-answer":
            assert client.ending() == "reset"
        else:
            client.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.socket.recv(1)


@pytest.mark.parametrize(("status", "retries"), [(429, True), (500, False), (503, True)])
def test_an_error_comes_instead_of_the_service(status: int, retries: bool) -> None:
    with staged() as (stage, origin):
        client = struck(stage, f"error {status}")
        received = client.receive(b"}")
        assert received.startswith(f"HTTP/1.1 {status} ".encode())
        assert (b"Retry-After: 1\r\n" in received) == retries
        assert json.loads(received.partition(b"\r\n\r\n")[2]).keys() == {"error"}
        assert over(stage).errors == (str(status),)
        assert not origin.requests
        client.send(POST)
        client.receive(OVER)


def test_the_client_gets_the_second_response_to_a_duplicated_request() -> None:
    answers = iter([b"first!", b"second"])
    with staged(lambda head, body: b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n" + next(answers)) as (
        stage,
        origin,
    ):
        struck(stage, "duplicate").receive(b"second")
        assert origin.bodies == [b'{"a": 1}'] * 2
        assert over(stage).answer["body"] == "second"  # type: ignore[index]
        assert len(stage.traffic.calls()) == 1


def test_a_late_response_comes_when_the_client_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "LATE_S", HANG_S)
    with staged() as (stage, origin):
        client = struck(stage, "late-answer")
        client.socket.close()
        assert over(stage).outcome == "answer_lost"
        assert len(origin.requests) == 1


def test_a_late_response_reaches_a_client_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "LATE_S", 0.02)
    with staged() as (stage, origin):
        client = struck(stage, "late-answer")
        client.send(GET)  # a pipelined request is kept
        client.receive(OVER)
        assert over(stage).outcome == "answered"
        client.receive(OVER)
        assert len(origin.requests) == 2


def test_a_service_that_restarts_ends_all_connections_and_refuses_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek.certify.services.proxy.AWAY_S", HANG_S)
    with staged() as (stage, origin):
        idle = Client(stage)
        idle.send(GET)
        idle.receive(OVER)
        assert struck(stage, "restart").ending() == "reset"
        assert idle.ending() == "reset"
        with pytest.raises(ConnectionError):
            Client(stage)
        assert [head.method for head, _, _ in origin.requests] == [b"GET"]


def test_an_emptied_pool_ends_all_connections_before_the_request() -> None:
    with staged() as (stage, _):
        idle = Client(stage)
        idle.send(GET)
        idle.receive(OVER)
        assert struck(stage, "close-all").ending() == "closed"
        assert idle.ending() == "reset"
        assert over(stage, 2).outcome == "unanswered"
        fresh = Client(stage)
        fresh.send(POST)
        fresh.receive(OVER)


def test_a_request_that_is_at_the_service_is_handled_though_its_connection_ends() -> None:
    here, go_on = threading.Event(), threading.Event()

    def slow(head: h11.Request, body: bytes) -> bytes:
        if head.method == b"POST":
            here.set()
            assert go_on.wait(HANG_S)
        return OK

    with staged(slow) as (stage, _):
        first = Client(stage)
        first.send(POST)
        assert here.wait(HANG_S)
        stage.traffic.add("http:GET /v1/payments nth=1 -> close-all")
        second = Client(stage)
        second.send(GET)
        assert first.ending() == "reset"
        go_on.set()
        call = over(stage)
        assert (call.outcome, call.answer["status"]) == ("answer_lost", 201)  # type: ignore[index]


def test_a_held_request_waits_for_its_release() -> None:
    with staged() as (stage, origin):
        rule = stage.traffic.add(f"{ON} nth=1 -> hold")
        client = Client(stage)
        client.send(POST)
        rule.wait()
        assert not origin.requests
        rule.release()
        client.receive(OVER)


# -- between runs -----------------------------------------------------------------------------------------------------


def test_each_run_begins_without_connections_and_requests_of_the_previous_one() -> None:
    output = ServiceOutput("http", "POST /v1/payments")
    with staged() as (stage, _):
        client = Client(stage)
        client.send(POST)
        client.receive(OVER)
        assert [each.value for each in stage.records(output)] == ['{"a": 1}']
        stage.restore()
        stage.traffic.begin()
        assert client.ending() == "reset"
        assert stage.records(output) == []
