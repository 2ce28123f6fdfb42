"""A crash at every step of a commit or abort: afterwards the transaction has ended everywhere, or nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.injection.crash import on_passage
from broker.transactions.transaction import TransactionState
from protocol.errors import ErrorCode
from storage import files
from tests.support.background import no_threads
from tests.support.disk import Unsynced
from tests.support.world import CONSUMER_OFFSETS, TRANSACTION_STATE, World

TOPIC = "t"
PARTITIONS = 3
GROUP = "g"
PREPARED = (2, 3)
COMMIT_ORDERS = pytest.mark.parametrize("order", ["markers-first", "kafka"])
VERDICTS = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
PROTOCOLS = pytest.mark.parametrize("version", [3, 5], ids=["version 1", "version 2"])


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip fsync: the process crashes but the machine does not, so everything that was written is on the disk."""
    monkeypatch.setattr(files.System, "fsync", Unsynced.fsync)


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run background work in the test's thread, so that a crash may come between any two of its calls."""
    no_threads(monkeypatch)


class Crash(BaseException):
    """The crash of the process. The class is not an Exception, so that no handler of the broker catches it."""


class CrashAt:
    """A hook that crashes the broker at the n-th passage of any of the points. If ``passage`` is None, it only counts the
    passages."""

    def __init__(self, point: str | tuple[str, ...], passage: int | None) -> None:
        self.points = (point,) if isinstance(point, str) else point
        self.passage = passage
        self.passages = 0

    def __call__(self, name: str) -> None:
        if name in self.points:
            self.passages += 1
            if self.passages == self.passage:
                raise Crash(name)


class Story:
    """One transaction over three partitions and the offsets of a group, and the way in which it ends."""

    def __init__(self, path: Path, order: str, version: int) -> None:
        self.world = World(path, settings={"odradek.commit.order": order})
        self.world.create(TOPIC, PARTITIONS)
        self.world.start()
        self.version = version
        self.answer: int | None = None
        world = self.world
        self.producer_id, self.epoch = world.init("tx")
        identity: dict[str, Any] = {
            "transactional_id": "tx",
            "producer_id": self.producer_id,
            "epoch": self.epoch,
        }
        if version < 5:
            world.add("tx", self.producer_id, self.epoch, *((TOPIC, index) for index in range(PARTITIONS)))
            world.add_offsets("tx", self.producer_id, self.epoch, GROUP)
        for index in range(PARTITIONS):
            answer = world.produce(
                TOPIC, index, b"%d" % index, **identity, sequence=0, version=12 if version >= 5 else 11
            )
            assert answer.error_code == ErrorCode.none
        error = world.commit_offsets(
            "tx", self.producer_id, self.epoch, {(TOPIC, 0): 42}, group_id=GROUP, adds=version >= 5
        )
        assert error is ErrorCode.none

    def roll_always(self) -> None:
        """Make each append roll a new segment in its log, until the broker starts again."""
        for partition in self.world.node.replicas.opened():
            partition.log.config = replace(partition.log.config, segment_bytes=1)

    def segments(self) -> dict[str, int]:
        """The number of segments of each topic's logs."""
        counts: dict[str, int] = {}
        for partition in self.world.node.replicas.opened():
            counts[partition.topic] = counts.get(partition.topic, 0) + len(partition.log.segments)
        return counts

    def end(self, watcher: CrashAt, *, committed: bool) -> bool:
        """End the transaction. True if the broker crashed."""
        try:
            with on_passage(watcher):
                self.answer = self.world.end(
                    "tx", self.producer_id, self.epoch, committed=committed, version=self.version
                )[0]
                self.world.clock.advance(1)
        except Crash:
            return True
        return False

    def verdicts(self) -> list[list[bool]]:
        """The markers of each partition, with the offsets partition last. True is a commit."""
        offsets = (CONSUMER_OFFSETS, self.world.node.groups.partition_for(GROUP))
        keys = [*((TOPIC, index) for index in range(PARTITIONS)), offsets]
        return [[committed for _, committed in self.world.markers(*key)] for key in keys]

    def committed_offset(self) -> int | None:
        shards: list[Any] = list(self.world.node.groups.memory().values())
        for shard in shards:
            committed = shard["committed"].get(GROUP, {}).get((TOPIC, 0))
            if committed is not None:
                return committed.offset
        return None

    def pending_offsets(self) -> bool:
        return any(shard["pending"] for shard in self.world.node.groups.memory().values())

    def check_all_or_nothing(self, *, committed: bool) -> None:
        """Check that after the restart all partitions have the same result, which is the decision in the coordinator's
        log."""
        world = self.world
        decided = any(brief is not None and brief[0] in PREPARED for brief in world.briefs("tx"))
        txn = world.memory("tx")
        assert txn is not None
        values = [world.committed_values(TOPIC, index) for index in range(PARTITIONS)]
        if decided:
            assert txn.state is (
                TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
            )
            assert all(set(verdict) == {committed} for verdict in self.verdicts())
            assert values == [[b"%d" % index] if committed else [] for index in range(PARTITIONS)]
            assert self.committed_offset() == (42 if committed else None)
            assert not self.pending_offsets()
            for index in range(PARTITIONS):
                partition = world.partition(TOPIC, index)
                assert partition.last_stable_offset == partition.log_end_offset
        else:
            assert self.answer is None, "there is no response without a decision"
            assert txn.state is TransactionState.ONGOING
            assert self.verdicts() == [[]] * (PARTITIONS + 1)
            assert values == [[]] * PARTITIONS
            assert self.committed_offset() is None
            assert self.pending_offsets()

    def check_life_goes_on(self) -> None:
        """Check that the client gets a higher epoch, and that its next transaction is committed."""
        world = self.world
        answer = world.ask_init("tx")
        if answer.error_code == ErrorCode.concurrent_transactions:
            world.clock.advance(1)
            answer = world.ask_init("tx")
        producer_id, epoch = answer.producer_id, answer.producer_epoch
        assert (producer_id, epoch) > (self.producer_id, self.epoch)
        identity: dict[str, Any] = {"transactional_id": "tx", "producer_id": producer_id, "epoch": epoch}
        before = world.committed_values(TOPIC, 0)
        assert world.produce(TOPIC, 0, b"next", **identity, sequence=0).error_code == ErrorCode.none
        assert world.end("tx", producer_id, epoch, committed=True)[0] == ErrorCode.none
        world.clock.advance(1)
        assert world.committed_values(TOPIC, 0) == [*before, b"next"]
        assert not self.pending_offsets()


POINTS = [
    ("txn.prepare.before", 1),
    ("txn.prepare.after", 1),
    ("txn.marker.before", 1),
    ("txn.marker.before", 2),
    ("txn.marker.before", 3),
    ("txn.marker.before", 4),
    ("txn.marker.after", 1),
    ("txn.marker.after", 2),
    ("txn.marker.after", 3),
    ("txn.marker.after", 4),
    ("txn.complete.before", 1),
    ("txn.complete.after", 1),
    # PrepareCommit or PrepareAbort, four markers, the index of aborted transactions of each partition, the Complete state
    *(("file.write", number) for number in range(1, 11)),
]


@pytest.mark.parametrize(("point", "passage"), POINTS, ids=lambda value: str(value))
@COMMIT_ORDERS
@PROTOCOLS
@VERDICTS
def test_a_crash_at_any_step_leaves_all_or_nothing(tmp_path, point, passage, order, version, committed):
    story = Story(tmp_path, order, version)
    died = story.end(CrashAt(point, passage), committed=committed)
    writes = 6 if committed else 10
    assert died is (point != "file.write" or passage <= writes)
    story.world.crash()
    story.world.start()
    story.check_all_or_nothing(committed=committed)
    story.check_life_goes_on()
    story.world.abandon()


ANY_CALL = ("file.write", "file.change")
ROLLS = pytest.mark.parametrize("rolls", [False, True], ids=["no roll", "every append rolls"])


STRIDES = pytest.mark.parametrize(
    "stride", [7, pytest.param(1, marks=pytest.mark.slow)], ids=["some calls", "every call"]
)


def stories_that_die_at_a_call(
    path: Path, order: str, version: int, *, stride: int, rolls: bool, committed: bool
) -> Iterator[Story]:
    """Yield, for each system call at the end of a transaction, a `Story` whose broker has crashed before that call.

    The last story has no crash. Only each ``stride``-th call is used. The first of these calls depends on the other
    arguments.
    """
    died, passage = True, (version + 2 * len(order) + 3 * committed) % stride - stride + 1
    while died:
        passage = max(passage + stride, 1)
        story = Story(path / str(passage), order, version)
        before = story.segments()
        if rolls:
            story.roll_always()
        died = story.end(CrashAt(ANY_CALL, passage), committed=committed)
        if not died:
            after = story.segments()
            assert passage > (40 if rolls else 5)
            assert after[TRANSACTION_STATE] - before[TRANSACTION_STATE] == (2 if rolls else 0)
            assert after[CONSUMER_OFFSETS] - before[CONSUMER_OFFSETS] == (1 if rolls else 0)
            assert after[TOPIC] - before[TOPIC] == (PARTITIONS if rolls else 0)
        yield story


@STRIDES
@ROLLS
@COMMIT_ORDERS
@PROTOCOLS
@VERDICTS
def test_a_kill_between_any_two_system_calls_leaves_all_or_nothing(
    tmp_path, stride, rolls, order, version, committed
):
    for story in stories_that_die_at_a_call(
        tmp_path, order, version, stride=stride if rolls else 1, rolls=rolls, committed=committed
    ):
        story.world.crash()
        story.world.start()
        story.check_all_or_nothing(committed=committed)
        story.check_life_goes_on()
        story.world.abandon()


@pytest.mark.parametrize(
    ("point", "passages"),
    [
        ("txn.prepare.before", 1),
        ("txn.prepare.after", 1),
        ("txn.marker.before", 4),
        ("txn.marker.after", 4),
        ("txn.complete.before", 1),
        ("txn.complete.after", 1),
        ("file.write", 6),
    ],
)
@COMMIT_ORDERS
@PROTOCOLS
def test_a_commit_passes_each_point_so_often(tmp_path, point, passages, order, version):
    story = Story(tmp_path, order, version)
    watcher = CrashAt(point, None)
    assert not story.end(watcher, committed=True)
    assert watcher.passages == passages
    story.world.abandon()


@STRIDES
@COMMIT_ORDERS
@VERDICTS
def test_a_second_crash_while_the_first_is_made_good_changes_nothing(tmp_path, stride, order, committed):
    died, passage = True, (len(order) + committed) % stride - stride + 1
    while died:
        passage = max(passage + stride, 1)
        story = Story(tmp_path / str(passage), order, 5)
        story.roll_always()
        assert story.end(CrashAt("txn.marker.after", 2), committed=committed)
        died = False
        try:
            with on_passage(CrashAt(ANY_CALL, passage)):
                story.world.crash()
                story.world.start()
        except Crash:
            died = True
            story.world.crash()
            story.world.start()
        story.check_all_or_nothing(committed=committed)
        story.check_life_goes_on()
        story.world.abandon()
    assert passage > 20


@pytest.mark.parametrize("tail", [b"\0" * 17, b"\xff" * 200, b"torn"])
def test_a_torn_write_of_the_decision_is_no_decision(tmp_path, tail):
    story = Story(tmp_path, "markers-first", 5)
    assert story.end(CrashAt("txn.prepare.before", 1), committed=True)
    story.world.abandon()
    shard = story.world.node.transactions.partition_for("tx")
    log = tmp_path / f"__transaction_state-{shard}" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + tail)
    story.world.cluster.restart()
    story.world._open()
    story.world.node.replicas.recover()
    story.world.start()
    story.check_all_or_nothing(committed=True)
    story.check_life_goes_on()
    story.world.abandon()


@pytest.mark.parametrize("writes", range(1, 9))
@PROTOCOLS
def test_a_crash_before_the_end_leaves_the_transaction_to_its_timeout(tmp_path, writes, version):
    """A crash after InitProducerId and before the end of the transaction leaves invisible records, which the timeout
    aborts."""
    world = World(tmp_path)
    world.create(TOPIC, PARTITIONS)
    world.start()
    producer_id = epoch = 0
    try:
        with on_passage(CrashAt("file.write", writes)):
            producer_id, epoch = world.init("tx")
            for index in range(PARTITIONS):
                if version < 5:
                    world.add("tx", producer_id, epoch, (TOPIC, index))
                world.produce(
                    TOPIC,
                    index,
                    b"lost",
                    transactional_id="tx",
                    producer_id=producer_id,
                    epoch=epoch,
                    sequence=0,
                    version=12 if version >= 5 else 11,
                )
    except Crash:
        assert writes <= 7
    world.crash()
    world.start()
    world.clock.advance(80_000)
    txn = world.memory("tx")
    assert txn is None or txn.state in (TransactionState.EMPTY, TransactionState.COMPLETE_ABORT)
    for index in range(PARTITIONS):
        partition = world.partition(TOPIC, index)
        assert world.committed_values(TOPIC, index) == []
        assert partition.last_stable_offset == partition.log_end_offset
    world.abandon()
