"""docs/troubleshooting.md, *Something stands still*: each trouble is made, and `GET /v1/explain` says what the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

import odradek
from protocol.named_tuple import NamedTuple
from tests.broker.explain.troubles import TROUBLES, Stage

PAGE = Path(__file__).resolve().parents[3] / "docs" / "troubleshooting.md"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": 0,
}
QUESTIONS = {"TOPIC": "topic", "--group": "group", "--id": "transactional_id"}


class Row(NamedTuple):
    """A row of the table."""

    trouble: str
    question: str
    first_line: str
    cause: str


def rows() -> Iterator[Row]:
    _, _, section = PAGE.read_text("utf-8").partition("\n## Something stands still\n")
    for line in section.partition("\n## ")[0].splitlines():
        if line.startswith("| ") and not line.startswith(("| trouble", "| ---")):
            trouble, *quoted = line.strip("| ").split(" | ")
            yield Row(trouble, *(each.strip("`") for each in quoted))


ROWS = list(rows())


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(nodes=3, settings=SETTINGS) as broker:
        yield broker
        broker.kill()  # nothing of it is needed any more


@pytest.fixture
def stage(broker: odradek.Broker) -> Iterator[Stage]:
    broker.reset()
    broker.trace.start()
    stage = Stage(broker)
    yield stage
    stage.close()


def explained(stage: Stage, question: str) -> list[dict[str, Any]]:
    """``odradek explain --id ID``, by the control port."""
    query: dict[str, object] = {}
    for word, name in QUESTIONS.items():
        if word in question:
            query = {name: {"topic": stage.topic, "group": stage.group}.get(name, stage.id)}
    if "topic" in query:
        query["partition"] = stage.partition
    with urlopen(f"{stage.broker.control_url}/v1/explain?{urlencode(query)}") as answer:
        found: list[dict[str, Any]] = json.load(answer)["explanations"]
        return found


def pattern(line: str) -> re.Pattern[str]:
    return re.compile(".+".join(map(re.escape, line.split("…"))))


def test_the_page_has_each_trouble_that_is_made_here() -> None:
    assert {row.trouble for row in ROWS} == set(TROUBLES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.trouble}: {row.question}")
def test_the_first_line_says_the_cause(stage: Stage, row: Row) -> None:
    TROUBLES[row.trouble](stage)
    [found, *_] = explained(stage, row.question)
    assert found["cause"] == row.cause, found
    assert pattern(row.first_line).fullmatch(found["lines"][0]), found["lines"]
