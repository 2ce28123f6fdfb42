"""Names from clients in human-readable output: no control or bidirectional character is written raw to a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

import odradek as package
from broker.logging import printable as brokers
from odradek import printable as ours
from odradek.cli import main
from odradek.pytest_plugin import _listed
from tests.support.raw import Wire, decode_response, encode_request
from tools.commands.txn import txn

# Clear screen, set title; carriage return; NUL; C1 escape; DEL; right-to-left marks; Unicode line separator.
HOSTILE = "a\x1b[2J\x1b]0;owned\x07b\rc\0d\x9b31me\x7ff\u202eg\u200fh\u2028i"
SHOWN = r"a\x1b[2J\x1b]0;owned\x07b\rc\x00d\x9b31me\x7ff\u202eg\u200fh\u2028i"


@pytest.fixture(scope="module")
def broker() -> Iterator[package.Broker]:
    """A broker whose trace has requests of clients with hostile names."""
    with package.Broker(topics=["orders:1"]) as broker:
        broker.trace.start()
        host, port = broker.bootstrap_servers.split(":")
        wire = Wire(host, int(port))
        requests: list[tuple[str, int, dict[str, Any]]] = [
            ("find_coordinator", 3, {"key": HOSTILE, "key_type": 1}),
            ("init_producer_id", 4, {"transactional_id": HOSTILE, "transaction_timeout": 60_000}),
            ("find_coordinator", 3, {"key": HOSTILE, "key_type": 0}),
            ("offset_fetch", 5, {"group_id": HOSTILE, "topics": None}),
            ("heartbeat", 3, {"group_id": HOSTILE, "member_id": HOSTILE, "generation_id": 1}),
            ("join_group", 5, join(HOSTILE)),
            ("api_versions", 3, {"client_software_name": HOSTILE, "client_software_version": HOSTILE}),
            ("metadata", 9, {"topics": [{"name": HOSTILE}], "allow_auto_topic_creation": True}),
            ("create_topics", 5, {"topics": [new_topic(HOSTILE)], "timeout": 1_000}),
        ]
        for number, (api, version, body) in enumerate(requests):
            for _ in range(1_000):
                wire.send_frame(encode_request(api, version, body, number, HOSTILE))
                _, answer = decode_response(api, version, wire.receive_frame())
                if answer.get("error_code") not in (14, 15, 16):  # the coordinator is loading
                    break
        wire.close()
        yield broker


def join(name: str) -> dict[str, object]:
    return {
        "group_id": name,
        "session_timeout": 6_000,
        "rebalance_timeout": 6_000,
        "member_id": name,
        "group_instance_id": name,
        "protocol_type": name,
        "protocols": [{"name": name, "metadata": b""}],
    }


def new_topic(name: str) -> dict[str, object]:
    configs = [{"name": name, "value": name}]
    return {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": configs,
    }


COMMANDS = {
    "txn list": ["txn", "list"],
    "txn list --json": ["txn", "list", "--json"],
    "txn timeline": ["txn", "timeline", HOSTILE],
    "txn timeline --json": ["txn", "timeline", HOSTILE, "--json"],
    "txn timeline of none": ["txn", "timeline", HOSTILE + "x"],
    "trace": ["trace"],
    "trace --json": ["trace", "--json"],
    "trace of one client": ["trace", "--client-id", HOSTILE],
    "fault add": ["fault", "add", f"EndTxn transactional_id={json.dumps(HOSTILE)} -> lose-answer"],
    "fault add --json": [
        "fault",
        "add",
        "--json",
        f"EndTxn transactional_id={json.dumps(HOSTILE)} -> lose-answer",
    ],
    "fault add, refused": ["fault", "add", f"{HOSTILE} -> lose-answer"],
    "fault list": ["fault", "list"],
    "fault list --json": ["fault", "list", "--json"],
    "fault show": ["fault", "show", "1"],
    "node list": ["node", "list"],
    "clock advance, refused": ["clock", "advance", HOSTILE],
}


def typed(words: list[str], broker: package.Broker) -> Result:
    """Run a command in this process.

    `odradek txn` would replace this process by another interpreter, so the Click group `txn` is invoked directly.
    """
    command, rest = (txn, words[1:]) if words[0] == "txn" else (main, words)
    return CliRunner().invoke(command, rest, env={"ODRADEK_CONTROL": broker.control_url})


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_no_command_shows_a_name_raw(words: list[str], broker: package.Broker) -> None:
    done = typed(words, broker)
    assert done.output
    raw = re.findall(r"[^\n\t -~]", "".join(each for each in done.output if not each.isprintable()))
    assert raw == []
    if words[0] in ("txn", "trace") and "--json" not in words:
        assert SHOWN[:-2] in done.output or done.exit_code


def test_the_json_of_a_command_holds_the_exact_name(broker: package.Broker) -> None:
    done = typed(["txn", "list", "--json"], broker)
    assert [each["transactional_id"] for each in json.loads(done.output)] == [HOSTILE]


def test_neither_the_log_nor_the_report_of_a_test_shows_a_name_raw(broker: package.Broker) -> None:
    text = "".join(broker.process.log) + _listed(broker)
    assert "topic not created" in text
    assert text.replace("\n", "").isprintable()


def test_an_error_of_the_control_port_is_printable_in_python_too(broker: package.Broker) -> None:
    with pytest.raises(package.ControlRefused) as refused:
        broker.faults.add(f"{HOSTILE} -> lose-answer")
    assert str(refused.value).replace("\n", "").isprintable()


@pytest.mark.parametrize("escape", [brokers.printable, ours.printable])
def test_both_sides_escape_alike(escape: object) -> None:
    assert escape(HOSTILE) == SHOWN  # type: ignore[operator]
    assert escape("prüfung テスト \\ \ud800") == "prüfung テスト \\ \\ud800"  # type: ignore[operator]


@pytest.mark.parametrize("escape", [brokers.printable_lines, ours.printable_lines])
def test_text_with_lines_keeps_its_own(escape: object) -> None:
    assert escape("one\n\ttwo\r\x1b\n") == "one\n\ttwo\\r\\x1b\n"  # type: ignore[operator]


def test_json_for_terminals_reads_back() -> None:
    text = ours.printable_json([HOSTILE, "ü\U000e0001"])
    assert text.isprintable()
    assert "ü" in text
    assert json.loads(text) == [HOSTILE, "ü\U000e0001"]
