"""One fault, injected in four ways: the response to the second EndTxn is lost after the commit.

The client does not learn that its transaction was committed, sends EndTxn again, and succeeds; no record is duplicated.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import odradek
from tests.support.clients import value_of
from tests.support.deadlines import HANG_S

RULE = "EndTxn transactional_id={id} nth=2 -> lose-answer"
Hits = Callable[[], int]


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(topics={"orders": 1}) as broker:
        yield broker


def story(bootstrap: str, transactional_id: str, hits: Hits) -> None:
    """Commit two transactions, the second with a lost response; a consumer finds each record once."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(HANG_S)
    for number in range(2):
        assert hits() == 0
        producer.begin_transaction()
        producer.produce("orders", f"{transactional_id}-{number}")
        producer.commit_transaction(HANG_S)
    assert hits() == 1
    assert read(bootstrap, transactional_id) == [f"{transactional_id}-0", f"{transactional_id}-1"]


def read(bootstrap: str, transactional_id: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-of-{transactional_id}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.subscribe(["orders"])
    found = []
    while (message := consumer.poll(60)) is not None and not message.error():
        found.append(value_of(message).decode())
    consumer.close()
    return [value for value in found if value.startswith(transactional_id)]


def test_in_python(broker: odradek.Broker) -> None:
    with broker.faults.add("EndTxn", transactional_id="python", nth=2, do="lose-answer") as rule:
        story(broker.bootstrap_servers, "python", lambda: rule.hits)


def test_by_http(broker: odradek.Broker) -> None:
    def call(path: str, body: object = None) -> dict[str, int]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            broker.control_url + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return dict(json.load(answer))

    rule = call("/v1/faults", {"rule": RULE.format(id="http")})
    story(broker.bootstrap_servers, "http", lambda: call(f"/v1/faults/{rule['id']}")["hits"])


def test_on_the_command_line(broker: odradek.Broker) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-c", "from odradek.cli import main; main()", *words]
        done = subprocess.run(
            [*command, "--control", broker.control_url],
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=True,
        )
        return done.stdout

    rule_id = run("fault", "add", RULE.format(id="command")).strip()
    story(
        broker.bootstrap_servers,
        "command",
        lambda: json.loads(run("fault", "show", rule_id, "--json"))["hits"],
    )


FIXTURE_STORY = """
from tests.odradek.test_four_ways import story

def test_with_a_fixture(odradek_broker, odradek_faults):
    rule = odradek_faults.add("EndTxn", transactional_id="fixture", nth=2, do="lose-answer")
    story(odradek_broker.bootstrap_servers, "fixture", lambda: rule.hits)
"""


def test_with_a_fixture(run_pytest: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    (tmp_path / "test_story.py").write_text(FIXTURE_STORY)
    done = run_pytest(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
