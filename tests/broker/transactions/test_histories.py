"""Random histories of several producers, after which the coordinators' state in memory is equal to their logs.

Each history is made by a seed, which is in the message of a failing test. During a history, offsets keep their order, epochs
never decrease, and no producer id is allocated twice. At its end, consumers see exactly what was committed, and a
coordinator that loads the log again has the same state as before.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from broker.transactions.transaction import Transaction, TransactionState
from protocol.errors import ErrorCode
from tests.support.world import World, committed_values

HISTORIES = int(os.environ.get("ODRADEK_HISTORIES", "1000"))
CHUNKS = 40
STEPS = 30
TOPIC = "t"
PARTITIONS = 3
TIMEOUT_MS = 20_000
EXPIRATION_MS = 100_000
OK = ErrorCode.none
KAFKAS_ORDER = {"odradek.commit.order": "kafka", "odradek.commit.marker.delay.ms": "30"}


@dataclass
class Producer:
    """A client's view of its identity, and what it has sent in its open transaction."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)
    added: set[int] = field(default_factory=set)

    def take(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch


class History:
    """The random requests of one seed to one node."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        settings = {"transactional.id.expiration.ms": str(EXPIRATION_MS)}
        if self.rng.random() < 0.5:
            settings |= KAFKAS_ORDER
        level = self.rng.choice([1, 2, 2])
        self.world = World(path, transaction_version=level, settings=settings, state_partitions=2)
        self.world.create(TOPIC, PARTITIONS)
        self.world.start()
        self.producers = [Producer(f"id-{number}") for number in range(self.rng.randint(1, 4))]
        self.committed: list[bytes] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self.values = count()
        self.speaks_v2 = level == 2

    def run(self) -> None:
        steps: list[tuple[Callable[[Producer], None], int]] = [
            (self.init, 3),
            (self.add, 3),
            (self.produce, 9),
            (self.add_offsets, 2),
            (self.end_v1, 3),
            (self.end_v2, 4),
            (self.stale_request, 3),
            (self.wait, 3),
            (self.wait_long, 1),
        ]
        functions, weights = zip(*steps, strict=True)
        for step in self.rng.choices(functions, weights, k=STEPS):
            step(self.rng.choice(self.producers))
            self.check_offsets()

    # -- steps ----------------------------------------------------------------------------------------------------

    def init(self, producer: Producer) -> None:
        given = (-1, -1)
        if producer.producer_id >= 0 and self.rng.random() < 0.4:
            given = (producer.producer_id, producer.epoch)
        answer = self.world.ask_init(
            producer.transactional_id, timeout_ms=TIMEOUT_MS, producer_id=given[0], epoch=given[1]
        )
        if answer.error_code == OK:
            producer.take(answer.producer_id, answer.producer_epoch)
            producer.sent.clear()
            producer.added.clear()
        elif answer.error_code == ErrorCode.concurrent_transactions:
            self.forget_if_not_open(producer)

    def add(self, producer: Producer) -> None:
        index = self.rng.randrange(PARTITIONS)
        errors = self.world.add(
            producer.transactional_id, producer.producer_id, producer.epoch, (TOPIC, index)
        )
        if errors[TOPIC, index] == OK:
            producer.added.add(index)

    def produce(self, producer: Producer) -> None:
        index = self.rng.randrange(PARTITIONS)
        if producer.producer_id < 0:
            return  # a batch without a producer id is in no transaction (test_coordinator covers it)
        if not self.is_idle(producer):
            # Clients would wait: an old one because AddPartitionsToTxn is refused now, a new one inside Produce.
            return
        version = self.rng.choice([9, 11, 12])
        value = b"%d" % next(self.values)
        answer = self.world.produce(
            TOPIC,
            index,
            value,
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            sequence=producer.sequences.get(index, 0),
            version=version,
        )
        if answer.error_code == OK:
            producer.sequences[index] = producer.sequences.get(index, 0) + 1
            producer.sent.append(value)

    def is_idle(self, producer: Producer) -> bool:
        return self.pending(producer) is None

    def pending(self, producer: Producer) -> TransactionState | None:
        transactions = self.world.node.transactions
        found = transactions._find(producer.transactional_id)
        assert not isinstance(found, ErrorCode)
        entry = found[1]
        return entry.pending if entry is not None else None

    def add_offsets(self, producer: Producer) -> None:
        identity = (producer.transactional_id, producer.producer_id, producer.epoch)
        adds = self.rng.random() < 0.5
        if not adds:
            self.world.add_offsets(*identity)
        offset = next(self.values)
        self.world.commit_offsets(*identity, {(TOPIC, 0): offset}, adds=adds and self.is_idle(producer))

    def end_v1(self, producer: Producer) -> None:
        self.end(producer, 3)

    def end_v2(self, producer: Producer) -> None:
        if self.speaks_v2:
            self.end(producer, 5)

    def end(self, producer: Producer, version: int) -> None:
        committed = self.rng.random() < 0.6
        was_open = self.is_open(producer)
        error, producer_id, epoch = self.world.end(
            producer.transactional_id,
            producer.producer_id,
            producer.epoch,
            committed=committed,
            version=version,
        )
        if error != OK:
            return
        if committed and was_open:
            self.committed += producer.sent
        if producer_id >= 0:
            producer.take(producer_id, epoch)
        producer.sent.clear()
        producer.added.clear()

    def stale_request(self, producer: Producer) -> None:
        """Send a request with an old or future epoch, or with another producer's id, which must change nothing."""
        producer_id = producer.producer_id + self.rng.choice([0, 0, 1])
        epoch = producer.epoch + self.rng.choice([-2, 1, 7])
        identity = (producer.transactional_id, producer_id, epoch)
        before = self.world.memory(producer.transactional_id)
        if before is not None and (before.producer_id, before.epoch) == (producer_id, epoch):
            return  # the random identity is the current one
        if producer_id < 0:
            return  # not an identity
        kind = self.rng.randrange(4)
        if kind == 0:
            self.world.end(*identity, committed=self.rng.random() < 0.5, version=self.rng.choice([1, 5]))
        elif kind == 1:
            self.world.add(*identity, (TOPIC, 0))
        elif kind == 2:
            self.world.add_offsets(*identity)
        else:
            end_offset = self.world.partition(TOPIC, 0).log_end_offset
            self.world.produce(
                TOPIC,
                0,
                b"stale",
                transactional_id=identity[0],
                producer_id=identity[1],
                epoch=identity[2],
                sequence=0,
                version=11,
            )
            # The identity may be that of another producer, and the batch equal to one that it sent: then it is a duplicate.
            assert self.world.partition(TOPIC, 0).log_end_offset == end_offset
        assert self.world.memory(producer.transactional_id) == before

    def wait(self, _: Producer) -> None:
        self.world.clock.advance(self.rng.choice([1, 40, 500, 5_000]))
        self.notice_timeouts()

    def wait_long(self, _: Producer) -> None:
        self.world.clock.advance(self.rng.choice([31_000, 4_000_000]))
        self.notice_timeouts()

    # -- what the client learns late ------------------------------------------------------------------------------

    def is_open(self, producer: Producer) -> bool:
        txn = self.world.memory(producer.transactional_id)
        return (
            txn is not None
            and txn.state is TransactionState.ONGOING
            and (txn.producer_id, txn.epoch) == (producer.producer_id, producer.epoch)
        )

    def forget_if_not_open(self, producer: Producer) -> None:
        """Forget what the producer has sent if its transaction is not open: the coordinator has aborted it."""
        if not self.is_open(producer):
            producer.sent.clear()
            producer.added.clear()

    def notice_timeouts(self) -> None:
        for producer in self.producers:
            self.forget_if_not_open(producer)

    # -- checks ---------------------------------------------------------------------------------------------------

    def check_offsets(self) -> None:
        for partition in self.world.node.replicas.opened():
            stable, high = partition.last_stable_offset, partition.high_watermark
            assert partition.log_start_offset <= stable <= high <= partition.log_end_offset

    def check_visibility(self) -> None:
        seen = [
            value
            for index in range(PARTITIONS)
            for value in committed_values(self.world.partition(TOPIC, index))
        ]
        assert set(seen) <= set(self.committed), "consumers see only committed values"
        assert len(seen) == len(set(seen)), "consumers see no value twice"
        hidden = set(self.committed) - set(seen)
        for index in range(PARTITIONS):
            partition = self.world.partition(TOPIC, index)
            for batch in partition.log.batches():
                if batch.base_offset >= partition.last_stable_offset:
                    hidden -= {record.value for record in batch.records()}
        assert not hidden, "consumers see all committed values before the first open transaction"

    def check_epochs(self) -> None:
        """Check that the epochs of a producer id never decrease, and that a transactional id never returns to an earlier
        producer id."""
        latest: dict[str, tuple[int, int]] = {}
        owners: dict[int, str] = {}
        for name, value in self.world.states():
            if value is None:
                continue
            identity = (value.producer_id, value.producer_epoch)
            assert identity >= latest.get(name, (-1, -1))
            latest[name] = identity
            assert owners.setdefault(value.producer_id, name) == name

    def check_memory(self) -> None:
        before = self.stored_memory()
        self.world.drop_coordinator()
        assert not isinstance(self.world.node.transactions.all_entries(), ErrorCode), (
            "every partition is loaded"
        )
        after = {index: shard for index, shard in self.stored_memory().items() if shard}
        if any(
            txn.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
            for txn in _all(before)
        ):
            # A coordinator completes a decided transaction when it loads it.
            before = {
                index: {name: _finished(txn, after[index][name]) for name, txn in shard.items()}
                for index, shard in before.items()
            }
        assert after == before
        groups = self.world.node.groups.memory()
        for index in groups:
            self.world.node.groups._runtime.unload(index)
            self.world.node.groups._runtime.find(index)
        assert self.world.node.groups.memory() == groups

    def stored_memory(self) -> dict[int, dict[str, Transaction]]:
        """The transactions in memory, without their last epochs, which are not in the log."""
        return {
            index: {name: txn._replace(last_epoch=-1) for name, txn in shard.items()}
            for index, shard in self.world.node.transactions.memory().items()
            if shard
        }


def _all(memory: dict[int, dict[str, Transaction]]) -> list[Transaction]:
    return [txn for shard in memory.values() for txn in shard.values()]


def _finished(before: Transaction, after: Transaction) -> Transaction:
    """A prepared transaction in the state after its completion. A transaction in any other state is returned
    unchanged."""
    if before.state not in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
        return before
    complete = (
        TransactionState.COMPLETE_COMMIT
        if before.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT
    )
    return before._replace(
        state=complete,
        partitions=frozenset(),
        previous_producer_id=before.producer_id,
        last_update_ms=after.last_update_ms,
    )


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_coordinator_is_what_its_log_says(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    for seed in range(chunk, HISTORIES, CHUNKS):
        history = History(tmp_path / str(seed), seed)
        try:
            history.run()
            history.check_visibility()
            history.check_epochs()
            history.check_memory()
            history.check_visibility()
        except AssertionError as error:
            raise AssertionError(f"history of seed {seed}: {error}") from error
        finally:
            history.world.abandon()
