"""Our tools with the names of Kafka's have the same output as Apache Kafka's own tools, with the same broker.

tests/differential/console_tools compares the output of Kafka's tools with our broker and with Apache Kafka.
"""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from tests.differential.console_tools.story import TOOLS
from tests.support.broker import Broker
from tests.support.javaprog import java_clients
from tools.kafka_tools.group import kafka_tool

pytestmark = pytest.mark.foreign


def theirs(name: str, *arguments: object, input: str = "") -> str:
    """Run one of Kafka's tools, which must succeed, and return its output."""
    ran = java_clients().tool(TOOLS[name], *arguments, input=input)
    assert ran.status == 0, f"{name} {arguments}\n{ran.out}\n{ran.err}"
    return ran.out


def ours(name: str, *arguments: object) -> str:
    done = CliRunner().invoke(kafka_tool, [name, *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def cells(text: str) -> list[list[str]]:
    """Sorted rows of a table, as Kafka's tools list groups in any order."""
    return sorted(line.split() for line in text.splitlines() if line.strip())


def test_the_id_of_the_cluster_is_told_in_the_same_words(broker: Broker):
    where = ("--bootstrap-server", broker.bootstrap)
    assert ours("kafka-cluster", "cluster-id", *where) == theirs("kafka-cluster", "cluster-id", *where)


def test_our_tools_by_the_same_names_print_the_same(broker: Broker):
    where = ("--bootstrap-server", broker.bootstrap)
    same = ("--topic", "same")
    theirs("kafka-topics", *where, "--create", *same, "--partitions", 2, "--config", "retention.ms=7")
    keyed = ("--property", "parse.key=true")
    theirs("kafka-console-producer", *where, *same, *keyed, input="k\tv\nl\tw\n")
    shown = [
        f"--formatter-property=print.{name}=true"
        for name in ("key", "timestamp", "partition", "offset", "headers")
    ]
    from_beginning = ("--from-beginning", "--max-messages", 2)
    theirs("kafka-console-consumer", *where, *same, *from_beginning, "--group", "g")
    lines: tuple[tuple[Any, ...], ...] = (
        ("kafka-topics", "--list"),
        ("kafka-topics", "--describe", *same),
        ("kafka-get-offsets", *same),
        ("kafka-get-offsets", *same, "--time", "earliest"),
        ("kafka-get-offsets", "--topic-partitions", "same:1-"),
        ("kafka-get-offsets", *same, "--time", "9999999999999"),
        ("kafka-console-consumer", *same, *from_beginning, *shown),
        ("kafka-consumer-groups", "--list"),
        ("kafka-consumer-groups", "--describe", "--group", "g"),
        ("kafka-consumer-groups", "--reset-offsets", "--group", "g", *same, "--to-earliest", "--dry-run"),
    )
    for name, *words in lines:
        assert cells(ours(name, *where, *words)) == cells(theirs(name, *where, *words)), (name, words)
