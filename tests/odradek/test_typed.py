"""Commands that are typed as for another tool, or without quotes: the error names the right command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module

import click
import pytest
from click.testing import CliRunner, Result

import odradek as package
from odradek.cli import _TOOLS
from odradek.cli import main as command_line
from tools.__main__ import COMMANDS


def typed(*words: str, **environ: str | None) -> Result:
    first, *rest = words
    environment = {
        "ODRADEK_CONTROL": "http://127.0.0.1:1",
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        **environ,
    }
    if first in _TOOLS:
        command: click.Command = getattr(import_module(COMMANDS[first]), first)
        return CliRunner().invoke(command, rest, env=environment, prog_name=f"odradek {first}")
    return CliRunner().invoke(command_line, list(words), env=environment, prog_name="odradek")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("fault rm", "'clear'"),
        ("fault ls", "'list'"),
        ("fault remove", "'clear'"),
        ("topic rm", "'delete'"),
        ("topic ls", "'list'"),
        ("topic show", "'list' or 'describe'"),
        ("group rm", "'delete'"),
        ("group get", "'list' or 'describe'"),
        ("txn ls", "'list'"),
        ("txn rm", "'abort'"),
        ("snapshot create", "'take'"),
        ("snapshot load", "'restore'"),
        ("node ls", "'list'"),
        ("clock forward", "'advance'"),
        ("transactions", "'txn'"),
        ("rules", "'fault'"),
        ("brokers", "'node'"),
        ("consumer", "'consume'"),
        ("topics", "'topic'"),
    ],
)
def test_another_tools_word_is_answered_with_ours(words: str, meant: str) -> None:
    done = typed(*words.split())
    assert done.exit_code == 2
    assert f"Did you mean {meant}?" in done.output


def test_a_word_that_is_near_to_nothing_names_nothing() -> None:
    assert "Did you mean" not in typed("xyzzy").output


@pytest.mark.parametrize("words", [["-7d"], ["--", "-7d"], ["-7d", "--only", "groups"]])
def test_a_clock_does_not_go_back(words: list[str]) -> None:
    done = typed("clock", "advance", *words)
    assert done.exit_code == 2
    assert "-7d: the clock can only be advanced; `odradek node skew ID -7d`" in done.output


@pytest.mark.parametrize("words", ["clock advance 7 d", "clock advance 7 d --only ids"])
def test_a_duration_of_two_words_is_one(words: str) -> None:
    done = typed(*words.split())
    assert (done.exit_code, "7 d: a duration is one word: 7d" in done.output) == (2, True)


@pytest.mark.parametrize("word", ["start", "stop"])
def test_the_orders_of_the_trace_are_options(word: str) -> None:
    done = typed("trace", word)
    assert (done.exit_code, f"Did you mean --{word}?" in done.output) == (2, True)


def test_a_port_of_kafka_is_no_control_port(broker: package.Broker) -> None:
    done = typed("fault", "list", ODRADEK_CONTROL=f"http://{broker.bootstrap_servers}")
    assert done.exit_code == 3
    assert "without a response, as the port for Kafka clients does" in done.output


def test_produce_takes_a_partition_as_consume_does(broker: package.Broker) -> None:
    where = {"ODRADEK_CONTROL": None, "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    assert typed("produce", "placed/0", "x", **where).exit_code == 0
    for words in ("placed/0 x -p 1", "placed/x x", "/0 x"):
        done = typed("produce", *words.split(), **where)
        assert (done.exit_code, "expected TOPIC or TOPIC/PARTITION" in done.output) == (2, True)


def test_a_rule_without_quotes_is_explained() -> None:
    done = typed("fault", "add", "EndTxn", "nth=2", "-")
    assert done.exit_code == 2
    assert "Put the rule in quotes: odradek fault add 'EndTxn nth=2 -> lose-answer'" in done.output


def test_the_format_of_kcat_is_explained() -> None:
    done = typed("consume", "orders", "-f", "%v\\n")
    assert done.exit_code == 2
    assert r"--format '%v\n'" in done.output


@pytest.fixture(scope="module")
def broker() -> Iterator[package.Broker]:
    with package.Broker(topics=["orders", "placed"]) as broker:
        yield broker


def test_format_json_is_json(broker: package.Broker) -> None:
    where = {"ODRADEK_CONTROL": broker.control_url, "KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    for words in ("fault list", "topic list", "snapshot list"):
        done = typed(*words.split(), "--format", "json", **where)
        assert json.loads(done.stdout) == json.loads(typed(*words.split(), "--json", **where).stdout)
        plain = typed(*words.split(), "--format", "text", **where)
        assert (plain.exit_code, plain.stdout) == (0, typed(*words.split(), **where).stdout)
    assert typed("produce", "orders", "one", **where).exit_code == 0
    assert json.loads(typed("consume", "orders", "--format", "json", **where).stdout)["value"] == "one"
