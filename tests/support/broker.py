"""Fixtures that start brokers for tests. Each broker is a process. Tests see only its command line, ports and log.

    def test_something(broker):                      # one node without topics, stopped after the test
        producer = Producer({"bootstrap.servers": broker.bootstrap})

    def test_a_crash(start_broker):
        broker = start_broker(topics=["orders:4"], environment={"ODRADEK_CRASH_POINTS": "txn.marker.before"})
        ...
        assert broker.wait() == -signal.SIGKILL
        broker.restart(environment={})

Tests start broker processes only with these fixtures. A traceback in a broker's log fails its test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.process import BrokerFailed, BrokerProcess

__all__ = ["Broker", "BrokerFailed", "StartBroker", "broker", "start_broker"]

Broker = BrokerProcess
StartBroker = Callable[..., Broker]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """A function that starts a broker with the options of ``Broker``. All brokers that it has started are stopped after
    the test."""
    with contextlib.ExitStack() as stack:
        count = 0

        def start(*arguments: str, **options: Any) -> Broker:
            nonlocal count
            count += 1
            broker = Broker(tmp_path / f"broker-{count}", *arguments, **options)
            stack.callback(broker.close)
            return broker.start()

        yield start


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    """One broker with default settings."""
    return start_broker()
