"""Input that is not in topics: requests to the job's own port, and files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from odradek.certify.services import feeding
from odradek.certify.services.feeding import Feeding, requests
from odradek.certify.services.specs import Feed, StageSpec, parse_input
from odradek.errors import OdradekError
from tests.support.deadlines import HANG_S, Deadline

POST = "POST http://127.0.0.1:{port}/orders?from=test"


class Job(ThreadingHTTPServer):
    """A job that serves requests. Its responses are ``statuses`` in turn, then 200; 0 closes the connection without one."""

    def __init__(self, port: int, statuses: list[int]) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.statuses = statuses
        self.received: list[tuple[str, str, str, str | None]] = []
        """Request line, Idempotency-Key, body, and the header X-Own."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Job

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        kind = self.headers["Content-Type"].partition(";")[0]
        self.server.received.append(
            (f"{self.path} {kind}", self.headers["Idempotency-Key"], body, self.headers["X-Own"])
        )
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if not status:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Retry-After", "0")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def job(port: int, *statuses: int) -> Iterator[Job]:
    with Job(port, list(statuses)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(HANG_S)


def feed(tmp_path: Path, *lines: str) -> Feed:
    path = tmp_path / "orders.ndjson"
    path.write_text("\n".join(lines))
    return parse_input(f"http:{POST}=orders.ndjson", tmp_path, ())


def over(feeding: Feeding) -> None:
    deadline = Deadline()
    while not feeding.is_over:
        deadline.check("all requests are accepted")


def test_each_line_is_a_request_in_order(tmp_path: Path) -> None:
    own = '{"body": "text", "headers": {"x-own": 1, "idempotency-key": "mine"}}'
    feeding = Feeding(
        [feed(tmp_path, '{"id": 1}', "", own, '{"body": [2], "headers": {}}', '{"body": 3}')], tmp_path
    )
    port = int(feeding.values()["port"])
    feeding.begin()
    with job(port) as server:  # the requests wait for the port
        over(feeding)
        feeding.end()
    assert server.received == [
        ("/orders?from=test application/json", "1", '{"id": 1}', None),
        ("/orders?from=test text/plain", "mine", "text", "1"),
        ("/orders?from=test application/json", "4", "[2]", None),
        ("/orders?from=test application/json", "5", '{"body": 3}', None),
    ]


def test_a_request_is_repeated_with_its_key_until_the_job_accepts_or_rejects_it(tmp_path: Path) -> None:
    feeding = Feeding([feed(tmp_path, "1", "2", "3")], tmp_path)
    with job(int(feeding.values()["port"]), 503, 0, 429, 201, 400) as server:
        feeding.begin()
        over(feeding)
        feeding.end()
    assert [(key, body) for _, key, body, _ in server.received] == [*[("1", "1")] * 4, ("2", "2"), ("3", "3")]
    assert feeding.rejected == [
        f"the job rejected POST /orders?from=test with 400 Bad Request ({tmp_path / 'orders.ndjson'}:2)"
    ]


def test_a_run_that_ends_before_its_requests_ends_the_sending(tmp_path: Path) -> None:
    feeding = Feeding([feed(tmp_path, "1")], tmp_path)
    feeding.begin()
    feeding.end()
    assert not feeding.is_over
    assert not feeding._sender.is_alive()


def test_a_job_that_does_not_respond_gets_the_request_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "RESPONSE_S", 0.05)
    hangs = threading.Event()
    fed = Feeding([feed(tmp_path, "1")], tmp_path)
    with job(int(fed.values()["port"])) as server:
        connections: list[Any] = []

        def hang(request: Any, client: Any) -> None:
            connections.append(client)
            hangs.wait(HANG_S)
            Handler(request, client, server)

        monkeypatch.setattr(server, "finish_request", hang)
        fed.begin()
        deadline = Deadline()
        while len(connections) < 2:
            deadline.check("a second connection")
        hangs.set()
        over(fed)
        fed.end()
    assert {key for _, key, _, _ in server.received} == {"1"}


def test_without_requests_and_files_nothing_is_fed(tmp_path: Path) -> None:
    feeding = Feeding([], tmp_path)
    feeding.begin()
    assert feeding.is_over
    assert feeding.values() == {}
    feeding.end()


def test_the_job_gets_a_copy_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "mine" / "day=1").mkdir(parents=True)
    (tmp_path / "mine" / "day=1" / "a.csv").write_text("id\n1\n")
    (tmp_path / "run").mkdir()
    feeds = [
        parse_input(f"files:{what}", tmp_path, ())
        for what in ("in/drop=mine", "in/drop=mine/day=1/a.csv", "in=mine")
    ]
    Feeding(feeds, tmp_path / "run").begin()
    assert sorted(str(each.relative_to(tmp_path / "run")) for each in (tmp_path / "run").rglob("*.csv")) == [
        "in/day=1/a.csv",
        "in/drop/a.csv",
        "in/drop/day=1/a.csv",
    ]
    with (tmp_path / "run" / "in" / "day=1" / "a.csv").open("a") as file:
        file.write("2\n")
    assert (tmp_path / "mine" / "day=1" / "a.csv").read_text() == "id\n1\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [("{", "not JSON"), ('{"body": 1, "headers": {"x": "a\\r\\nb"}}', r"invalid header: 'a\\r\\nb'")],
)
def test_an_invalid_line_is_named(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(OdradekError, match=f"^--input http:POST .*orders.ndjson:2: {said}"):
        list(requests(feed(tmp_path, "1", line), 1))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("http:POST http://127.0.0.1:8080/x=f", r"expected http:POST http://127.0.0.1:\{port\}/PATH=FILE"),
        ("http:http://127.0.0.1:{port}/x=f", "expected http:POST"),
        ("files:/tmp/in=f", "expected a directory below the run's directory"),
        ("files:in/../..=f", "expected a directory below the run's directory"),
        ("tcp:x=f", "where NAME is a --stage or files: postgres, files"),
        ("postgres:t=none", "there is no file"),
    ],
)
def test_an_invalid_input_is_refused(said: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    stages = [StageSpec("postgres", "dsn"), StageSpec("tcp", "127.0.0.1:1")]
    with pytest.raises(ValueError, match=message):
        parse_input(said, tmp_path, stages)
