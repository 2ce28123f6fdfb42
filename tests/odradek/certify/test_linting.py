"""``odradek lint``: the lints on a trace, from a file or from a running broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer

from odradek import Broker
from odradek.certify.exchanges import read
from odradek.certify.linting import observed, occurrences
from odradek.certify.lints import DOCS
from odradek.commands.lint import lint
from tests.odradek.certify.traces import end, entry, fetch, init, produce, trace, transaction
from tests.support.clients import PATIENCE
from tests.support.deadlines import HANG_S

WRONG = [init("a"), fetch("in", isolation=0), *transaction("a", 5)]


def linted(*words: str, text: str = "") -> Result:
    return CliRunner().invoke(lint, words, input=text)


def ndjson(*entries: dict[str, Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in entries)


# -- input and output topics ----------------------------------------------------------------------------------------


def test_inputs_are_the_topics_whose_positions_are_committed() -> None:
    found = observed(trace(fetch("in"), fetch("out", isolation=0), transaction("a", 5)))
    assert (found.inputs, found.outputs) == (frozenset({"in"}), frozenset({"out"}))
    assert occurrences(found) == []


def test_without_a_commit_all_that_is_fetched_is_input() -> None:
    found = observed(trace(fetch("in"), fetch("__consumer_offsets"), produce("out")))
    assert (found.inputs, found.outputs) == (frozenset({"in"}), frozenset({"out"}))


def test_the_producer_of_an_input_is_not_part_of_the_job() -> None:
    weak = produce("in", producer=(-1, -1))
    found = observed(trace(weak, fetch("in"), transaction("a", 5)))
    assert occurrences(found) == []
    assert [each.lint.name for each in occurrences(observed(trace(weak), outputs=["in"]))] == [
        "weak-producer"
    ]


def test_topics_that_are_named_are_taken() -> None:
    found = observed(trace(transaction("a", 5)), ["mid"], ["end"])
    assert (found.inputs, found.outputs) == (frozenset({"mid"}), frozenset({"end"}))


def test_a_lint_has_the_client_that_was_seen_at_it() -> None:
    weak = entry("Produce", dict(produce("out")["request"]) | {"acks": 1}, client_id="x", peer="h:7")
    (found,) = occurrences(observed(trace(weak)))
    assert found.client == "x at h:7"


# -- files ----------------------------------------------------------------------------------------------------------


def test_lines_and_answers_of_the_control_port_are_read() -> None:
    one, two = init("a"), end("a")
    assert read([json.dumps(one), "", json.dumps({"missed": 4}), json.dumps({"exchanges": [two]})]) == [
        one,
        two,
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: not a trace exchange"),
        ('{"exchanges": [5]}', "line 2: not a trace exchange"),
        (
            json.dumps({name: value for name, value in init("a").items() if name != "request"}),
            "the field request",
        ),
    ],
)
def test_a_line_that_is_no_exchange_is_named(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read([json.dumps(init("a")), line])


# -- the command ----------------------------------------------------------------------------------------------------


def test_a_lint_is_a_paragraph_with_client_evidence_and_link(tmp_path: Path) -> None:
    file = tmp_path / "trace.ndjson"
    file.write_text(ndjson(*WRONG))
    result = linted(str(file))
    assert result.exit_code == 1
    paragraph, last = result.stdout.split("\n\n")
    assert paragraph.splitlines()[0] == "read-uncommitted: app at 127.0.0.1:5000"
    assert paragraph.splitlines()[-2:] == ["  Fetch", f"  {DOCS}#read-uncommitted"]
    assert last == "1 found in 5 exchanges, inputs in, outputs out\n"


def test_without_lints_the_exit_code_is_0() -> None:
    result = linted("-", text=ndjson(init("a"), fetch("in"), *transaction("a", 5)))
    assert (result.exit_code, result.stdout) == (
        0,
        "nothing found in 5 exchanges, inputs in, outputs out\n",
    )


def test_the_same_as_json() -> None:
    result = linted("-", "--json", text=ndjson(*WRONG))
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["exchanges"], found["inputs"], found["outputs"]) == (5, ["in"], ["out"])
    (only,) = found["lints"]
    assert (only["name"], only["client"]) == ("read-uncommitted", "app at 127.0.0.1:5000")


def test_topics_of_the_command_line_are_taken() -> None:
    assert linted("-", "--input", "other", text=ndjson(*WRONG)).exit_code == 0


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (["-"], "", "the trace is empty"),
        (["-"], "nonsense\n", "-: line 1: not JSON"),
        (["absent.ndjson"], "", "absent.ndjson"),
        (["--control", "http://127.0.0.1:1"], "", "no control port"),
        ([], "", "no control port is set"),
    ],
)
def test_what_cannot_be_read_is_exit_code_2(
    words: list[str], text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ODRADEK_CONTROL", "ODRADEK_CONTROL_PORT"):
        monkeypatch.delenv(name, raising=False)
    result = linted(*words, text=text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_text_of_a_client_is_made_safe_for_a_terminal() -> None:
    request = dict(produce("out")["request"]) | {"acks": 1}
    result = linted("-", text=ndjson(entry("Produce", request, client_id="\x1b[2J")))
    assert "\\x1b[2J at" in result.stdout


# -- a running broker -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics=["in:1", "out:1"]) as broker:
        yield broker


def copy_once(broker: Broker) -> None:
    """A job that reads with read_uncommitted, and commits its offsets outside of the transaction."""
    common = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "copier", **PATIENCE}
    filler = Producer(common)
    filler.produce("in", "v")
    filler.flush(HANG_S)
    consumer = Consumer(
        {
            **common,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
        }
    )
    producer = Producer({**common, "transactional.id": "t"})
    producer.init_transactions(HANG_S)
    consumer.subscribe(["in"])
    message = consumer.poll(HANG_S)
    assert message is not None
    assert message.error() is None
    producer.begin_transaction()
    producer.produce("out", message.value())
    producer.commit_transaction(HANG_S)
    consumer.commit(asynchronous=False)
    consumer.close()


def test_lints_of_a_running_broker_and_of_its_trace_file_are_the_same(broker: Broker, tmp_path: Path) -> None:
    assert linted("--control", broker.control_url).exit_code == 2, "its trace is off"
    with broker.trace:
        copy_once(broker)
    asked = linted("--control", broker.control_url, "--json")
    assert asked.exit_code == 1, asked.output
    found = json.loads(asked.stdout)
    assert {each["name"] for each in found["lints"]} == {"offsets-outside", "read-uncommitted"}
    assert all(each["client"].startswith("copier at 127.0.0.1:") for each in found["lints"])
    file = tmp_path / "trace.ndjson"
    file.write_text(ndjson(*broker.trace.entries(limit=10_000)))
    assert json.loads(linted(str(file), "--json").stdout) == found
