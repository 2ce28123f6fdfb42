"""Tab completion of names from a broker that responds, and of none from a broker that does not."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import click
import pytest
from click.shell_completion import BashComplete

import odradek as package
from broker.injection.points import POINTS
from broker.requests.served import SERVED
from lab.faults.rules import API_KEYS
from odradek.cli import _TOOLS, main
from odradek.commands import completing
from odradek.commands.completing import attach
from protocol.versions import message_name
from tools.__main__ import COMMANDS
from tools.client.cluster import Cluster
from tools.client.producing import Producer
from tools.commands.completing import from_cluster


@pytest.fixture(scope="module")
def broker() -> Iterator[package.Broker]:
    with package.Broker(topics=["orders:2", "payments"]) as broker:
        broker.faults.add("Fetch topic=none -> hold")
        with Cluster(broker.bootstrap_servers) as cluster:
            producer = Producer(cluster, "etl-1")
            producer.init()
        yield broker


def follows(typed: str) -> list[str]:
    """Completions of a command line whose last word is incomplete."""
    *words, last = typed.split(" ")
    if words[0] in _TOOLS:
        # Commands with an interpreter of their own.
        command: click.Command = getattr(import_module(COMMANDS[words[0]]), words[0])
        attach(command, words[0], from_cluster)
        root: click.Command = click.Group("odradek", commands={words[0]: command})
    else:
        root = main
    return [each.value for each in BashComplete(root, {}, "odradek", "X").get_completions(words, last)]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("consume o", ["orders"]),
        ("consume ", ["orders", "payments"]),
        ("consume orders/", ["orders/0", "orders/1"]),
        ("topic describe pay", ["payments"]),
        ("topic create o", []),
        ("topic config o", ["orders"]),
        ("group reset readers pay", ["payments"]),
        ("produce o", ["orders"]),
        ("produce orders v", []),
        ("txn describe ", ["etl-1"]),
        ("txn timeline e", ["etl-1"]),
        ("txn list -s PrepareC", ["PrepareCommit"]),
        ("explain --id e", ["etl-1"]),
        ("fault show ", ["1"]),
        ("fault release 1 --topic o", ["orders"]),
        ("fault add EndT", ["EndTxn"]),
        ("fault add txn.m", ["txn.marker"]),
        ("fault add EndTxn trans", ["transactional_id="]),
        ("node kill ", ["1"]),
        ("node move-leader orders/", ["orders/0", "orders/1"]),
        ("node move-coordinator --transactional-id e", ["etl-1"]),
        ("clock advance 7d --only cred", ["credentials"]),
        ("trace --api InitP", ["InitProducerId"]),
        ("snapshot restore ", []),
    ],
)
def test_what_may_follow(
    broker: package.Broker, monkeypatch: pytest.MonkeyPatch, typed: str, expected: list[str]
) -> None:
    monkeypatch.setattr(completing, "LOOK_S", 60.0)
    monkeypatch.setattr("tools.commands.completing.LOOK_S", 60.0)
    monkeypatch.setenv("ODRADEK_CONTROL", broker.control_url)
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    assert follows(typed) == expected


@pytest.mark.parametrize("typed", ["consume ", "group lag ", "txn timeline ", "fault show ", "node kill "])
def test_nothing_follows_where_no_broker_responds(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    monkeypatch.setenv("ODRADEK_CONTROL", "http://127.0.0.1:1")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert follows(typed) == []


def test_the_apis_and_points_are_those_of_the_broker() -> None:
    assert set(completing.APIS) == {message_name(name) for name, *_ in SERVED.values()}
    assert set(completing.APIS) <= set(API_KEYS)
    assert set(completing.POINTS) == set(POINTS)
