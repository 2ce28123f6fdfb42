"""docs/troubleshooting.md: each message that it quotes is in our code, or is printed by a client in these tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

import odradek
from odradek.cli import main
from tests.support.deadlines import HANG_S, Deadline
from tests.support.raw import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
# tests/lab/explain/test_staged.py tests the output of `odradek explain`.
BEFORE, _, EXPLAINED = PAGE.partition("\n## Something is stuck\n")
ROWS = [
    line
    for line in (BEFORE + EXPLAINED[EXPLAINED.index("\n## ") :]).splitlines()
    if line.startswith("| ") and not line.startswith(("| message", "| ---"))
]
MESSAGES = [message for row in ROWS for message in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
# Error codes and exceptions, which other pages quote and test.
CODES = re.compile(r"_?[A-Z]+(_[A-Z]+)*|\w+Exception")
WITH_ACLS = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
# Messages of Spark's connector (`tests/spark/connector/`).
OF_SPARK = {"Some data may have been lost"}


def pattern(message: str) -> re.Pattern[str]:
    return re.compile(".*?".join(re.escape(part) for part in message.split("…")), re.S)


def templates(module: ast.Module) -> Iterator[str]:
    """Yield every string of a module, with a NUL character in place of each inserted value."""
    for node in ast.walk(module):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.fixture(scope="module")
def ours() -> str:
    sources = [
        path
        for package in ("broker", "lab", "proxy", "server", "storage", "tools", "odradek")
        for path in (ROOT / package).rglob("*.py")
    ]
    return "\n\n".join(text for path in sources for text in templates(ast.parse(path.read_text("utf-8"))))


@pytest.fixture(scope="module")
def theirs() -> str:
    """The messages of librdkafka and of the control port in the failures that this fixture provokes."""
    with odradek.Broker(topics=["orders:1"]) as broker:
        said = [*provoked(broker), *mistyped(broker)]
    with odradek.Broker(
        topics=["orders:1"], tls=True, users={"alice": "secret"}, settings=WITH_ACLS
    ) as broker:
        said += refused_by(broker)
    return "\n".join(map(str, said))


def mistyped(broker: odradek.Broker) -> Iterator[str]:
    rules = [
        "EndTx -> drop",
        "EndTxn -> explode",
        "EndTxn transactionalid=x -> drop",
        "EndTxn node=7 -> drop",
    ]
    for rule in rules:
        done = CliRunner().invoke(main, ["fault", "add", rule, "--control", broker.control_url])
        assert done.exit_code == 1
        yield done.output


def provoked(broker: odradek.Broker) -> Iterator[object]:
    here: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    yield from unconnected({"bootstrap.servers": f"127.0.0.1:{free_port()}", "log_level": 0})
    yield from unconnected(
        {**here, "security.protocol": "SSL"}, says="connecting to a PLAINTEXT broker listener"
    )
    sasl = {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    yield from unconnected({**here, **sasl, "security.protocol": "SASL_PLAINTEXT"})
    admin = AdminClient(here)
    for topic in (NewTopic("orders", 1, 1), NewTopic("three", 1, 3)):
        yield admin.create_topics([topic])[topic.topic].exception(HANG_S)
    acl = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:a",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    yield admin.create_acls([acl])[acl].exception(HANG_S)
    with pytest.raises(KafkaException) as refused:
        Producer(here).produce("orders", b"x" * 2_000_000)
    yield refused.value
    reader = {**here, "group.id": "g", "auto.offset.reset": "error"}
    for topics, place in (([], [TopicPartition("orders", 0, 99)]), (["nosuch"], [])):
        consumer = Consumer(reader)
        if topics:
            consumer.subscribe(topics)
        else:
            consumer.assign(place)
        message = consumer.poll(HANG_S)
        yield message and message.error()
        consumer.close()
    transactional = Producer({**here, "transactional.id": "x", "transaction.timeout.ms": 900_001})
    for call in (transactional.begin_transaction, transactional.init_transactions):
        with pytest.raises(KafkaException) as refused:
            call()
        yield refused.value


def refused_by(broker: odradek.Broker) -> Iterator[object]:
    here = {**broker.client_config("alice"), "log_level": 0}
    yield from unconnected({**here, "ssl.ca.location": ""}, says="could not be verified")
    yield from unconnected({**here, "sasl.password": "no"}, says="Authentication failed")
    producer = Producer(here)
    said: list[object] = []
    producer.produce("orders", b"", on_delivery=lambda error, _: said.append(error))
    producer.flush(HANG_S)
    yield from said
    consumer = Consumer({**here, "group.id": "g"})
    consumer.subscribe(["orders"])
    message = consumer.poll(HANG_S)
    yield message and message.error()
    consumer.close()


def unconnected(config: dict[str, object], says: str = "") -> Iterator[object]:
    """Yield the errors of a client that cannot connect to a broker with the configuration ``config``.

    ``says`` is a text that a client prints or not, depending on timing. Further clients are started until one prints it.
    """
    said: list[object] = []
    deadline = Deadline()
    while not any(says in str(each) for each in said):
        client = Producer({**config, "error_cb": said.append})
        attempt = len(said)
        while len(said) == attempt:
            client.poll(SOON_S)
            deadline.check("the client says why")
    # Before its first attempt has failed, the client would report a timeout instead.
    with pytest.raises(KafkaException) as refused:
        client.list_topics(timeout=SOON_S)
    yield refused.value
    yield from said


SOON_S = 0.2
"""Timeout of a client that cannot connect; it would retry indefinitely."""


@pytest.mark.parametrize(
    "message", sorted({each for each in MESSAGES if not CODES.fullmatch(each)} - OF_SPARK)
)
def test_a_message_is_one_that_is_given(message: str, ours: str, theirs: str) -> None:
    assert pattern(message).search(theirs) or in_the_code(message, ours)


def in_the_code(message: str, ours: str) -> bool:
    """Whether one string of Odradek's code contains the parts of ``message`` between its ``…``, in the same order.

    ``ours``: all strings of the code, separated by blank lines.
    """
    parts = [part.strip() for part in message.split("…") if part.strip()]
    return any(
        re.search(".*?".join(re.escape(part) for part in parts), text, re.S) for text in ours.split("\n\n")
    )


def test_each_row_has_a_message_a_reason_and_what_to_do() -> None:
    assert len(ROWS) > 30
    for row in ROWS:
        assert len(row.split(" | ")) == 3, row


def test_a_message_that_is_not_given_is_seen(ours: str) -> None:
    assert not in_the_code("the broker is … on holiday", ours)
