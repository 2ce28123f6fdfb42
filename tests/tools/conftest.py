"""Fixtures that run commands which speak Kafka's protocol in this process. All tests share one broker, so each test uses its
own names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import odradek as package
from tests.support.deadlines import HANG_S
from tools.__main__ import COMMANDS
from tools.client.cluster import Cluster

Run = Callable[..., str]


@pytest.fixture(scope="session")
def cluster_of_two() -> Iterator[package.Broker]:
    with package.Broker(nodes=2) as broker:
        yield broker


@pytest.fixture
def cluster(cluster_of_two: package.Broker) -> Iterator[Cluster]:
    with Cluster(cluster_of_two.bootstrap_servers) as cluster:
        yield cluster


LIMITS = (
    "tools.client.cluster.NODE_S",
    "tools.client.hanging.NODE_S",
    "tools.client.names.LOOK_S",
    "tools.explain.asking.BUDGET_S",
    "tools.explain.by_control.CONTROL_S",
    "tools.explain.hidden.LOOK_S",
)
"""Constants with the timeouts of commands for optional responses, without which a command prints a shorter result."""


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    with patience():
        yield


@contextmanager
def patience() -> Iterator[None]:
    """Give every request the long timeout: on a slow machine a late response does not mean an unreachable cluster."""
    with pytest.MonkeyPatch.context() as patch:
        for limit in LIMITS:
            patch.setattr(limit, HANG_S)
        yield


def invoke(bootstrap: str, *words: str, input: str | None = None, **environ: str) -> Result:
    """Run a command line without the leading `odradek`, with a timeout that is long enough for a slow machine."""
    with patience():
        return _invoke(bootstrap, *words, input=input, **environ)


def _invoke(bootstrap: str, *words: str, input: str | None, **environ: str) -> Result:
    name, *rest = words
    command: click.Command = getattr(import_module(COMMANDS[name]), name.replace("-", "_"))
    environment = {"KAFKA_BOOTSTRAP_SERVERS": bootstrap, "ODRADEK_CONTROL": None, **environ}
    return CliRunner().invoke(command, rest, input=input, env=environment, catch_exceptions=False)


@pytest.fixture
def run(cluster_of_two: package.Broker) -> Run:
    """A function that runs a command, checks that its exit code is 0, and returns its stdout."""

    def run(*words: str, input: str | None = None, **environ: str) -> str:
        done = invoke(cluster_of_two.bootstrap_servers, *words, input=input, **environ)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


@pytest.fixture
def refused(cluster_of_two: package.Broker) -> Callable[..., tuple[int, str]]:
    """A function that runs a command that must fail, and returns its exit code and its stderr."""

    def refused(*words: str, **environ: str) -> tuple[int, str]:
        done = invoke(cluster_of_two.bootstrap_servers, *words, **environ)
        assert done.exit_code != 0, done.output
        return done.exit_code, done.stderr

    return refused


def objects(text: str) -> list[dict[str, Any]]:
    """The decoded values of lines of JSON."""
    return [json.loads(line) for line in text.splitlines()]
