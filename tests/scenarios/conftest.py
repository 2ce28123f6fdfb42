"""Fixtures of all scenarios: clients of four libraries, and brokers behind a relay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import Broker, StartBroker
from tests.support.clients import CLIENTS, TransactionalProducer, tidy
from tests.support.relay import Relay
from tests.support.three_nodes import ThreeNodes

NewProducer = Callable[..., TransactionalProducer]
StartThree = Callable[..., ThreeNodes]


@pytest.fixture
def relay() -> Iterator[Relay]:
    with Relay() as relay:
        yield relay


@pytest.fixture
def start_relayed(relay: Relay, start_broker: StartBroker) -> Callable[..., Broker]:
    """A function that starts a broker which clients reach only through the relay."""

    def start(*arguments: str, settings: dict[str, Any] | None = None, **options: Any) -> Broker:
        broker = start_broker(*arguments, settings=relay.advertised | (settings or {}), **options)
        relay.forward_to(broker.host, broker.port)
        return broker

    return start


# The tests with librdkafka run with each change. aiokafka and kafka-python, which use older requests, have further tests
# elsewhere.
MARKS = {"aiokafka": [pytest.mark.more], "java": [pytest.mark.java], "kafka-python": [pytest.mark.more]}
# Names of the libraries on the compatibility page.
PAGE_NAMES = {"confluent": "librdkafka (confluent-kafka)", "java": "Java"}


def named(name: str, *values: object, marks: Sequence[pytest.MarkDecorator] = ()) -> Any:
    """A client as a test parameter. Its results are shown for this client on the compatibility page."""
    return pytest.param(name, *values, marks=[*marks, pytest.mark.client(PAGE_NAMES.get(name, name))])


@pytest.fixture(params=[named(name, marks=MARKS.get(name, ())) for name in CLIENTS])
def client(request: pytest.FixtureRequest) -> str:
    """Name of one of the four client libraries. The test runs with each of them."""
    return request.param


@pytest.fixture
def new_producer(client: str, start_broker: StartBroker, relay: Relay) -> Iterator[NewProducer]:
    """A function that creates producers of this client. The producers are closed before their broker is stopped."""
    made: list[TransactionalProducer] = []

    def make(bootstrap: str, transactional_id: str | None = None, **options: Any) -> TransactionalProducer:
        producer = CLIENTS[client](bootstrap, transactional_id=transactional_id, **options)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        producer.close()
    made.clear()
    tidy()


@pytest.fixture
def start_three(tmp_path: Path) -> Iterator[Callable[..., ThreeNodes]]:
    """A function that starts a broker of three nodes (``ThreeNodes``) with its trace on. The broker stops after the test."""
    with contextlib.ExitStack() as stack:

        def start(*topics: str, settings: dict[str, Any] | None = None, **options: Any) -> ThreeNodes:
            three = stack.enter_context(ThreeNodes(tmp_path, topics, settings, **options))
            three.trace.start()
            return three

        yield start
