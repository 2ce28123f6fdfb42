"""Tests of Apicurio Registry, which stores schemas in a topic.

Registered schemas are read again after the registry and the broker were killed.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tests.clients.jvm.http_json import ask_json
from tests.support.broker import StartBroker
from tests.support.clients import eventually, topics
from tests.support.deadlines import HANG_S
from tests.support.java import java
from tests.support.jvm import OPTIONS, jvm_archive
from tests.support.raw import free_port

pytestmark = [pytest.mark.foreign, pytest.mark.client("Apicurio Registry")]

JOURNAL = "kafkasql-journal"
VERSIONS = "/apis/ccompat/v7/subjects/orders-value/versions"


def schema(*fields: dict[str, Any]) -> dict[str, str]:
    return {"schema": json.dumps({"type": "record", "name": "Order", "fields": list(fields)})}


NUMBER: dict[str, Any] = {"name": "number", "type": "long"}
PAID: dict[str, Any] = {"name": "paid", "type": "boolean", "default": False}
NOTE: dict[str, Any] = {"name": "note", "type": "string", "default": ""}


class Registry:
    """The registry's process. It also supports the API of Confluent's Schema Registry."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        self._port = free_port()
        self._log = log
        folder = jvm_archive("apicurio")
        (runner,) = folder.glob("*-runner.jar")
        environment = {
            "APICURIO_STORAGE_KIND": "kafkasql",
            "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(self._port),
        }
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [java(), "-Xmx384m", *OPTIONS, "-jar", str(runner)],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request until there is a response."""

        def answered() -> tuple[int, Any] | None:
            assert self._process.poll() is None, self._log.read_text()[-4000:]
            answer = ask_json(self._port, method, path, body)
            return answer if answer[0] else None

        return eventually(answered, f"{method} {path}") or (0, None)

    def __enter__(self) -> Registry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the process with SIGKILL."""
        self._process.kill()
        self._process.wait(HANG_S)


@pytest.mark.feature("state stores and internal topics")
def test_schemas_are_read_back_after_everything_was_killed(start_broker: StartBroker, tmp_path: Path):
    broker = start_broker()
    with Registry(broker.bootstrap, tmp_path / "first.log") as registry:
        first = registry.ask("POST", VERSIONS, schema(NUMBER))
        assert first[0] == 200
        broker.kill()
        broker.restart()
        second = registry.ask("POST", VERSIONS, schema(NUMBER, PAID))
        assert second[0] == 200
    broker.kill()
    broker.restart()
    assert JOURNAL in topics(broker.bootstrap)
    with Registry(broker.bootstrap, tmp_path / "second.log") as registry:
        assert registry.ask("GET", VERSIONS) == (200, [1, 2])
        for number, (_, registered), fields in ((1, first, (NUMBER,)), (2, second, (NUMBER, PAID))):
            status, found = registry.ask("GET", f"{VERSIONS}/{number}")
            assert (status, found["id"]) == (200, registered["id"])
            assert json.loads(found["schema"])["fields"] == list(fields)
        status, third = registry.ask("POST", VERSIONS, schema(NUMBER, PAID, NOTE))
        assert (status, third["id"] in {first[1]["id"], second[1]["id"]}) == (200, False)
