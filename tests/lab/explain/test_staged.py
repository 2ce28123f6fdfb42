"""docs/troubleshooting.md, *Something is stuck*: `GET /v1/explain` returns the page's line for each staged problem."""

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
from tests.lab.explain.troubles import TROUBLES, Stage
from tests.tools.conftest import invoke

PAGE = Path(__file__).resolve().parents[3] / "docs" / "troubleshooting.md"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": 0,
}
TOPIC, GROUP, ID = (f"odradek explain {what}" for what in ("TOPIC", "--group GROUP", "--id ID"))
# The first line without a control port, for problems whose usual first line needs a control port.
BY_PROTOCOL = {
    (
        "a rule holds its marker",
        TOPIC,
    ): "… the COMMIT marker of … is not written yet, though the transaction is decided.",
    ("a rule holds its marker", ID): "The COMMIT marker of … in … is on the way, for ….",
    ("a rule holds its EndTxn", ID): "… has an open transaction, for …; it times out in ….",
    (
        "the coordinator is loading",
        ID,
    ): "The coordinator of … is loading …: it returns COORDINATOR_LOAD_IN_PROGRESS.",
    (
        "a rule returns an error for FindCoordinator",
        ID,
    ): "The coordinator of … returns COORDINATOR_NOT_AVAILABLE.",
    ("a group rebalances", GROUP): "Group … rebalances (PreparingRebalance).",
    (
        "a transaction begins in the future",
        ID,
    ): "… has an open transaction, which begins … in the future of this machine's clock.",
    (
        "the leader of its partition is down",
        ID,
    ): "The COMMIT marker … has no leader.",
    (
        "too few replicas are in sync",
        TOPIC,
    ): "Writes with acks=all … and node … is not in the cluster's metadata.",
    (
        "a partition has no leader",
        TOPIC,
    ): "… has no leader: its ISR is empty.",
    (
        "offsets of a group wait for a transaction",
        GROUP,
    ): "… is not stable: an open transaction has committed one and …",
    ("a record is locked", GROUP): "Group … has acknowledged nothing in ….",
}
SEEN_BY_PROTOCOL = {
    "a transaction is open",
    "a transaction hangs",
    "a topic is empty",
    "the end of a log was aborted",
    "the lag is markers",
    "a group has no members",
    "a group commits nothing",
    "a share group has no members",
}
QUESTIONS = {"TOPIC": "topic", "--group": "group", "--id": "transactional_id", "--offset": "offset"}


class Row(NamedTuple):
    """A row of the table in docs/troubleshooting.md."""

    trouble: str
    question: str
    first_line: str
    cause: str

    @property
    def line_by_protocol(self) -> str | None:
        """The first line of the explanation without a control port, None if only the control port shows the problem."""
        known = self.first_line if self.trouble in SEEN_BY_PROTOCOL else None
        return BY_PROTOCOL.get((self.trouble, self.question), known)


def rows() -> Iterator[Row]:
    _, _, section = PAGE.read_text("utf-8").partition("\n## Something is stuck\n")
    for line in section.partition("\n## ")[0].splitlines():
        if line.startswith("| ") and not line.startswith(("| trouble", "| ---")):
            trouble, *quoted = line.strip("| ").split(" | ")
            yield Row(trouble, *(each.strip("`") for each in quoted))


ROWS = list(rows())


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(nodes=3, settings=SETTINGS) as broker:
        yield broker
        broker.kill()  # faster than a stop


@pytest.fixture
def stage(broker: odradek.Broker) -> Iterator[Stage]:
    broker.reset()
    broker.trace.start()
    stage = Stage(broker)
    yield stage
    stage.close()


def explained(stage: Stage, question: str) -> list[dict[str, Any]]:
    """The explanations that the control port returns for the question of a row, such as ``odradek explain --id ID``."""
    query: dict[str, object] = {}
    values = {"topic": stage.topic, "group": stage.group, "transactional_id": stage.id, "offset": 0}
    for word, name in QUESTIONS.items():
        if word in question:
            query[name] = values[name]
    if "topic" in query:
        query["partition"] = stage.partition
    with urlopen(f"{stage.broker.control_url}/v1/explain?{urlencode(query)}") as answer:
        found: list[dict[str, Any]] = json.load(answer)["explanations"]
        return found


def typed(stage: Stage, question: str, **environ: str) -> str:
    """The first line of output of the ``odradek explain`` command ``question``."""
    _, *words = (
        question.replace("TOPIC", f"{stage.topic}/{stage.partition}")
        .replace("GROUP", stage.group)
        .replace("ID", stage.id)
        .replace("OFFSET", "0")
        .split()
    )
    done = invoke(stage.broker.bootstrap_servers, *words, **environ)
    assert done.exit_code == 0, done.output
    return done.stdout.partition("\n")[0]


def pattern(line: str) -> re.Pattern[str]:
    return re.compile(".+".join(map(re.escape, line.split("…"))))


def test_the_page_has_each_trouble_that_is_made_here() -> None:
    assert {row.trouble for row in ROWS} == set(TROUBLES)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_first_line_says_the_cause(stage: Stage, trouble: str) -> None:
    TROUBLES[trouble](stage)
    for row in [each for each in ROWS if each.trouble == trouble]:
        [found, *_] = explained(stage, row.question)
        assert found["cause"] == row.cause, found
        assert pattern(row.first_line).fullmatch(found["lines"][0]), found["lines"]
        command = typed(stage, row.question, ODRADEK_CONTROL=stage.broker.control_url)
        assert pattern(row.first_line).fullmatch(command), command
        if row.line_by_protocol is not None:
            command = typed(stage, row.question)
            assert pattern(row.line_by_protocol).fullmatch(command), command


def test_whose_ids_are_not_known_is_told(stage: Stage) -> None:
    TROUBLES["the coordinator is loading"](stage)
    [found] = explained(stage, TOPIC)
    loads = r"The transactional ids of __transaction_state-\d+ are not known: node \d has not loaded it\."
    assert any(re.fullmatch(loads, line) for line in found["lines"]), found


def test_what_the_protocol_tells_is_of_rows() -> None:
    assert set(BY_PROTOCOL) <= {(row.trouble, row.question) for row in ROWS}
    assert {row.trouble for row in ROWS} >= SEEN_BY_PROTOCOL
