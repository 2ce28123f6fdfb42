"""A running broker shows no secret: each secret is planted, used, and searched for in everything that the broker shows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from tests.broker.secrets.planted import PLANTED, SALT, SALTED_PASSWORD, all_planted, shown
from tests.broker.secrets.story import SETTINGS, Control, Story, metadata_log
from tests.support.deadlines import HANG_S
from tests.support.listeners import listening
from tests.support.raw import free_port

TRACE, PCAP = "/v1/trace", "/v1/trace.pcap"
PLACES = ("answers", "held", "follow", "commands", "views", "spans", "log", TRACE, PCAP)


@dataclass
class Told:
    """The broker's output by place, such as the log or the trace, and the secrets that no output may contain."""

    places: dict[str, bytes] = field(default_factory=dict)
    secrets: list[bytes] = field(default_factory=list)
    metadata: bytes = b""


class Collector(BaseHTTPRequestHandler):
    got = b""

    def do_POST(self) -> None:
        Collector.got += self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def collector_url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces"
    server.shutdown()
    server.server_close()
    thread.join(HANG_S)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, collector_url: str) -> Told:
    home, found = tmp_path_factory.mktemp("broker"), Told()
    places = found.places
    control = Control(free_port())
    settings = {**SETTINGS, "odradek.otel.endpoint": collector_url}
    arguments = ["--control-port", control.url.rpartition(":")[2], "--log-level", "debug"]
    with listening({"CLIENT": "SASL_PLAINTEXT"}, settings, home, *arguments) as ports:
        control.get("/metrics")
        control.post("/v1/trace/start")
        with Story(ports) as story, control.following() as exchanges:
            places["held"] = story.held(control)
            story.tell()
            places["follow"] = b"".join(until(b'"api":"ListGroups"', exchanges))
        control.post("/v1/snapshots")
        views = dict(control.views())
        places[PCAP] = views.pop(PCAP)
        places["views"] = b"".join(views.values())
        places[TRACE] = control.get("/v1/trace?bodies=true&values=true&limit=10000")
        places["commands"] = control.command("trace", "--json") + control.command("trace")
        places["answers"] = b"".join(story.heard)
    places["spans"] = Collector.got
    places["log"] = (home / "broker.log").read_bytes()
    found.secrets = all_planted(*story.secrets)
    found.metadata = metadata_log(home / "data")
    return found


def until(last: bytes, lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line
        if last in line:
            return


@pytest.mark.parametrize("place", PLACES)
def test_no_secret_is_shown(told: Told, place: str) -> None:
    assert told.places[place], "the broker showed nothing in this place"
    assert not shown(told.places[place], told.secrets)


def test_the_trace_has_what_clients_did_with_them(told: Told) -> None:
    """The trace contains the clients' requests with secrets, so a search of the trace that finds no secret is meaningful."""
    asked = Counter(each["api"] for each in json.loads(told.places[TRACE])["exchanges"])
    assert asked["SaslAuthenticate"] >= 8
    assert asked["IncrementalAlterConfigs"] == 9
    for api in ("AlterConfigs", "AlterUserScramCredentials", "CreateDelegationToken", "RenewDelegationToken"):
        assert asked[api] == 1


def test_the_metadata_log_has_what_kafka_s_has(told: Told) -> None:
    """The metadata log contains changed settings in plain text, and the keys but not the passwords of SCRAM users, like
    Kafka's metadata log."""
    found = shown(told.metadata, told.secrets)
    names = {name for name, text in PLANTED.items() if text.encode() in found}
    assert names == {
        "dynamic-key-password",
        "dynamic-jaas-password",
        "dynamic-key-pem",
        "dynamic-plugin-password",
    }
    assert SALT in found
    assert SALTED_PASSWORD not in found
