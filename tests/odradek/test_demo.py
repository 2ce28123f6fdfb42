"""The demo's worker starts at the right offsets. ``make demo`` and the soak run the demo itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException

from odradek.demo.clients import feed
from odradek.demo.crew import Crew
from odradek.demo.flights import COLUMNS
from odradek.demo.worker import positions
from tests.support.broker import StartBroker
from tests.support.clients import eventually
from tests.support.relay import Relay

FLIGHT = ",".join(["1"] * len(COLUMNS))


@dataclass
class Place:
    offset: int
    error: KafkaError | None = None


class Group:
    """A fake consumer with the committed offsets of its group."""

    def __init__(self, *places: Place) -> None:
        self.places = list(places)

    def committed(self, partitions: list[Any], timeout: float) -> list[Place]:
        assert partitions, "nothing was asked for"
        return self.places


def offsets(*places: Place) -> list[int]:
    return [each.offset for each in positions(cast(Consumer, Group(*places)), cast(Any, list(places)))]


def test_a_worker_begins_behind_what_is_committed_and_else_at_the_beginning():
    assert offsets(Place(2500), Place(OFFSET_INVALID)) == [2500, 0]
    assert offsets() == []


def test_a_worker_does_not_take_an_error_for_nothing_committed():
    unstable = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
    with pytest.raises(KafkaException) as raised:
        offsets(Place(2500), Place(OFFSET_INVALID, unstable))
    assert raised.value.args[0] == unstable


def test_a_worker_never_leaves_a_position_to_librdkafka(start_broker: StartBroker, tmp_path: Path):
    with Relay() as relay:
        hasty = {"group.min.session.timeout.ms": 1000, "group.initial.rebalance.delay.ms": 0}
        broker = start_broker(topics=["flights:2", "results:2"], settings=relay.advertised | hasty)
        relay.forward_to(broker.host, broker.port)
        feed(broker.bootstrap, "flights", [FLIGHT] * 20).check()
        crew = Crew("flights", "results", tmp_path)
        try:
            crew.start(0, relay.bootstrap)
            eventually(lambda: relay.answered("end_txn"))
        finally:
            crew.close()
        assert not relay.seen("list_offsets")


PARENT = """
import os, pathlib
from odradek.demo.crew import Crew
crew = Crew("flights", "results", pathlib.Path({directory!r}))
crew.start(0, "127.0.0.1:1")
print(crew._workers[0].child.pid, flush=True)
os._exit(0)
"""


def test_a_worker_ends_with_the_process_that_started_it(tmp_path: Path):
    parent = [sys.executable, "-c", PARENT.format(directory=str(tmp_path))]
    pid = subprocess.run(parent, capture_output=True, text=True, check=True).stdout.strip()
    eventually(lambda: not psutil.pid_exists(int(pid)), "the worker has ended")
