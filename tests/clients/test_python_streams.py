"""Tests of quixstreams and faust-streaming, whose processes and broker are killed.

quixstreams (on confluent-kafka) counts records exactly once, in a store with a changelog topic.

faust-streaming (on aiokafka) copies in transactions, exactly once as long as its group does not rebalance. faust
0.15.3 duplicates results after a rebalance, with Apache Kafka 4.3.1 too. A result that its agent sends during a
commit is committed in a transaction without its offset; and a member that keeps a partition seeks to the committed
offset, but does not abort the open transaction. Its consumer also hangs if it was started while the broker was
down: aiokafka requests the metadata once, and faust then logs "Ignoring missing topic".
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest
from confluent_kafka import Producer

from odradek.demo.doomed import restart_doomed
from tests.support.broker import Broker, StartBroker
from tests.support.clients import PATIENCE, batches_of, committed_offset, eventually, values
from tests.support.deadlines import HANG_S
from tests.support.foreign import CLIENTS, python_packages

pytestmark = pytest.mark.foreign

PARTITIONS: Final = 4
SETTINGS: Final = {
    "group.min.session.timeout.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}
DEATHS: Final = (
    "txn.prepare.after:3",
    "txn.offset.commit.after:4",
    "txn.complete.before:3",
    "group.append.after:3",
)
EVERY: Final = 20
"""`_look` sends records only in every ``EVERY``-th call."""
PROGRAMS: Final = {
    "quixstreams": ("quix_counter.py", "quixstreams==3.28.1"),
    "faust-streaming": ("faust_copier.py", "faust-streaming==0.15.3"),
}
"""(Program, package with its version) by client."""


class Application:
    """Processes of one application, by name, each with a state folder of its own; and the records that they process."""

    def __init__(self, client: str, start_broker: StartBroker, folder: Path) -> None:
        program, package = PROGRAMS[client]
        self._counts = client == "quixstreams"
        self._outputs = 1 if self._counts else PARTITIONS
        self._command = [sys.executable, str(CLIENTS / "python" / program)]
        self._environment = {**os.environ, "PYTHONPATH": str(python_packages(package))}
        self._folder = folder
        self.broker: Broker = start_broker(
            topics=[f"in:{PARTITIONS}", f"out:{self._outputs}"], settings=SETTINGS
        )
        # Records that are sent while the broker is down wait in the producer.
        self._producer = Producer(
            {
                **PATIENCE,
                "bootstrap.servers": self.broker.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
            }
        )
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._fed = self._looks = 0

    def start(self, name: str) -> None:
        # The output goes to a file: pytest shows the path if the test fails.
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*self._command, self.broker.bootstrap, "counters", str(self._folder / name)],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str, *, for_good: bool = False) -> None:
        self._processes[name].kill()
        self._processes[name].wait(HANG_S)
        if for_good:
            del self._processes[name]

    def mend(self) -> None:
        """Restart processes that have ended."""
        for name, process in list(self._processes.items()):
            if process.poll() is not None:
                self.start(name)

    def feed(self, rounds: int) -> None:
        """Send this many records to each partition, each with the partition's key."""
        for _ in range(rounds):
            for partition in range(PARTITIONS):
                key = f"k{partition}"
                self._producer.produce("in", f"{key}-{self._fed}", key=key, partition=partition)
            self._producer.poll(0)
            self._fed += 1

    def kill_broker(self, point: str) -> None:
        """Restart the broker with this crash point, wait until it dies there, and restart it without the crash point."""
        self.broker.terminate()
        self.feed(5)
        restart_doomed(self.broker, point)
        eventually(lambda: self._look() or not self.broker.is_running, f"the broker dies at {point}")
        assert self.broker.wait() == -signal.SIGKILL
        self.broker.restart(environment={})

    def _look(self) -> None:
        self.mend()
        self._looks += 1
        if self._looks % EVERY == 0:
            self.feed(1)

    def committed(self) -> list[int]:
        return [
            committed_offset(self.broker.bootstrap, "counters", "in", partition)
            for partition in range(PARTITIONS)
        ]

    def await_counts(self, at_least: int) -> None:
        def reached() -> bool:
            self.mend()
            return min(self.committed()) >= at_least

        eventually(reached, f"{at_least} of each key are counted")

    def finish(self) -> None:
        """Wait until every record is counted, and check that counts from before a kill were not lost."""
        self.feed(1)
        self.judge()
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
            process.wait(HANG_S)

    def judge(self, *, exactly_once: bool = True) -> None:
        """Check the results, all of which must be in transactions."""
        assert self._producer.flush(HANG_S) == 0
        self.await_counts(self._fed)
        found = values(self.broker.bootstrap, "out")
        for partition in range(PARTITIONS):
            key = f"k{partition}"
            mine = [each for each in found if each is not None and each[:2] == key]
            if self._counts:
                assert mine == [f"{key} {number}" for number in range(1, self._fed + 1)]
            else:
                wanted = {f"{key}-{number}" for number in range(self._fed)}
                assert set(mine) == wanted
                assert len(mine) == len(wanted) or not exactly_once
        for output in range(self._outputs):
            batches = batches_of(self.broker.data_dir, "out", output)
            assert all(batch.is_transactional for batch in batches)

    def close(self) -> None:
        self._producer.purge()
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait(HANG_S)


@pytest.fixture
def application(
    request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path
) -> Iterator[Application]:
    made = Application(request.param, start_broker, tmp_path)
    yield made
    made.close()


def kill_a_member_and_the_broker(application: Application) -> None:
    """Kill a process and the broker, after five rounds of records."""
    application.feed(5)
    application.kill("a", for_good=True)
    # Another process without the first one's state folder: its state is restored from the changelog.
    application.start("b")
    application.await_counts(10)
    application.kill_broker("txn.prepare.after:2")


@pytest.mark.client("quixstreams")
@pytest.mark.feature(
    "exactly-once loop", "exactly-once loop, members killed", "exactly-once loop, broker killed"
)
@pytest.mark.parametrize("application", ["quixstreams"], indirect=True)
def test_results_are_exact_though_a_member_and_the_broker_are_killed(application: Application):
    application.start("a")
    application.feed(5)
    application.await_counts(5)
    kill_a_member_and_the_broker(application)
    application.finish()


@pytest.mark.client("faust-streaming")
@pytest.mark.feature("exactly-once loop", "transactions", "classic group")
@pytest.mark.parametrize("application", ["faust-streaming"], indirect=True)
def test_faust_copies_in_transactions_and_loses_nothing_when_killed(application: Application):
    application.start("a")
    application.feed(5)
    application.judge()
    kill_a_member_and_the_broker(application)
    application.feed(1)
    application.judge(exactly_once=False)
    # The application's processes are killed: if SIGTERM comes between two transactions, faust commits offsets outside any
    # transaction, its client refuses that ("Not in the middle of a transaction"), and the process never ends.


def storm(application: Application, seed: int) -> None:
    """Run two processes and kill one of them or the broker, as the seed decides. Not for faust, which duplicates results."""
    random = Random(seed)
    for name in ("a", "b"):
        application.start(name)
    for _ in range(6):
        application.feed(random.randrange(1, 10))
        if random.random() < 0.5:
            application.kill(random.choice("ab"))
        else:
            application.kill_broker(random.choice(DEATHS))
        application.await_counts(1)
    application.finish()
