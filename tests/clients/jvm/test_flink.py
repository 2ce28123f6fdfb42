"""Flink's KafkaSink with DeliveryGuarantee.EXACTLY_ONCE: two-phase commits with checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tests.clients.jvm.kills import GROUP_DEATHS, SETTINGS, TRANSACTION_DEATHS, Kill, Loop, run, send
from tests.support.broker import StartBroker
from tests.support.clients import values
from tests.support.foreign import Running
from tests.support.jvm import jvm_program

pytestmark = [pytest.mark.foreign, pytest.mark.client("Flink KafkaSink")]


class FlinkLoop(Loop):
    """A Flink job that is restored from its newest checkpoint.

    The sink computes the transactional ids of its open transactions from a prefix and counters (INCREMENTING).
    """

    name = "flink"
    topics = ("in:2", "out:2")
    output = "out"
    naming: ClassVar[str] = "INCREMENTING"
    deaths = (*TRANSACTION_DEATHS, *GROUP_DEATHS)

    def member(self, number: int) -> Running:
        program = jvm_program("flink", "Copy", heap_mib=512)
        return program.start(self.broker.bootstrap, self.directory / "checkpoints", self.naming)

    def feed(self, first: int, count: int) -> None:
        send(self.broker.bootstrap, "in", [str(number) for number in range(first, first + count)])

    def is_done(self, count: int) -> bool:
        return len(values(self.broker.bootstrap, self.output)) >= count

    def check(self, count: int) -> None:
        found = sorted(values(self.broker.bootstrap, self.output), key=str)
        assert found == sorted(f"<{number}>" for number in range(count))


class FlinkPoolingLoop(FlinkLoop):
    """A Flink job whose sink finds its open transactions by ListTransactions (POOLING)."""

    name = "flink-pooling"
    naming = "POOLING"


@pytest.mark.feature(
    "exactly-once loop", "exactly-once loop, members killed", "exactly-once loop, broker killed"
)
def test_a_job_copies_once_whatever_is_killed(start_broker: StartBroker, tmp_path: Path):
    broker = start_broker(topics=FlinkLoop.topics, settings=SETTINGS)
    said = run(FlinkLoop(broker, tmp_path), [Kill("broker", "txn.marker.after:5"), Kill("member", after=50)])
    assert [each["restored"] for each in said] == [False, True]
