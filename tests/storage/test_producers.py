"""The producer state of a partition: the rules of appends, markers, the last stable offset and expiration."""

from __future__ import annotations

import pytest

from protocol.batch import EndTxnMarker, RecordBatch, build_batch
from protocol.errors import ErrorCode
from protocol.records import producer_snapshot
from storage.aborted import AbortedTransaction
from storage.producers import AppendOrigin, ProducerStateManager

OK, OUT_OF_ORDER, STALE, INVALID_STATE, COORDINATOR_FENCED = (
    ErrorCode.none,
    ErrorCode.out_of_order_sequence_number,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.invalid_txn_state,
    ErrorCode.transaction_coordinator_fenced,
)
ME, OTHER = 7, 8
NOW = 1_000
SEQUENCE_MAX = 2**31 - 1
ALL_CURRENT = object()
"""Guard argument of `Log.send`: use the producer's current verification guard."""


def batch(sequence: int, *, epoch: int = 0, count: int = 1, pid: int = ME, txn: bool = False) -> RecordBatch:
    records = [(NOW, b"k", b"v")] * count
    return RecordBatch.parse(
        build_batch(records, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=txn)
    )


class Log:
    """A log's producer state and its log end, without the records."""

    def __init__(self, *, verification_enabled: bool = True) -> None:
        self.producers = ProducerStateManager()
        self.end = 0
        self.verification_enabled = verification_enabled

    def send(
        self,
        sequence: int,
        *,
        epoch: int = 0,
        count: int = 1,
        pid: int = ME,
        txn: bool = False,
        guard: object | None = ALL_CURRENT,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        timestamp_ms: int = NOW,
    ) -> int | ErrorCode:
        """Append a batch. Returns its base offset, also for a duplicate, or the error."""
        sent = batch(sequence, epoch=epoch, count=count, pid=pid, txn=txn)
        known = self.producers.duplicate_of(sent)
        if known is not None:
            return known.first_offset
        if guard is ALL_CURRENT:
            verification = self.producers.verifications.get(pid)
            guard = verification.guard if verification is not None else None
        refused = self.producers.check(sent, origin, guard, verification_enabled=self.verification_enabled)
        if refused is not None:
            return refused.error
        base = self.end
        self.end += count
        self.producers.update(sent, base, timestamp_ms)
        return base

    def ask(self, sequence: int = 0, *, epoch: int = 0, pid: int = ME, v2: bool = False, now_ms: int = NOW):
        """Start a verification, as the leader does before it sends the request to the coordinator."""
        return self.producers.start_verification(pid, epoch, sequence, supports_epoch_bump=v2, now_ms=now_ms)

    def begin(self, sequence: int = 0, *, epoch: int = 0, pid: int = ME, count: int = 1, v2: bool = False):
        self.ask(sequence, epoch=epoch, pid=pid, v2=v2)
        return self.send(sequence, epoch=epoch, pid=pid, count=count, txn=True)

    def mark(
        self,
        *,
        epoch: int = 0,
        pid: int = ME,
        committed: bool = True,
        coordinator_epoch: int = 0,
        version: int = 0,
        timestamp_ms: int = NOW,
    ) -> ErrorCode | AbortedTransaction | None:
        marker = EndTxnMarker(committed, coordinator_epoch)
        refused = self.producers.check_marker(pid, epoch, marker, version)
        if refused is not None:
            return refused.error
        offset = self.end
        self.end += 1
        return self.producers.complete(pid, epoch, marker, offset, timestamp_ms)

    def entry(self, pid: int = ME):
        return self.producers.entries[pid]

    @property
    def unstable(self) -> int | None:
        return self.producers.first_unstable_offset(self.end)


@pytest.fixture
def log():
    return Log()


# -- duplicates ---------------------------------------------------------------------------------------------


def test_a_repeat_gets_its_old_offset_and_is_not_appended(log):
    log.send(0, count=3)
    log.send(3, count=2)
    assert log.send(0, count=3) == 0
    assert log.send(3, count=2) == 3
    assert log.end == 5


def test_the_last_five_batches_are_remembered_and_not_the_sixth(log):
    for sequence in range(6):
        log.send(sequence)
    assert [log.send(sequence) for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    assert log.send(0) is OUT_OF_ORDER


@pytest.mark.parametrize(("sequence", "count"), [(0, 1), (0, 3), (1, 1), (1, 2), (-1, 3)])
def test_a_batch_that_overlaps_without_being_equal_is_no_repeat(log, sequence, count):
    log.send(0, count=2)
    assert log.send(sequence, count=count) is OUT_OF_ORDER


def test_a_repeat_in_another_epoch_is_no_repeat(log):
    log.send(0, epoch=1)
    assert log.send(0, epoch=0) is STALE
    assert log.send(0, epoch=2) == 1


def test_what_was_refused_changes_nothing(log):
    log.send(0)
    before = log.producers.snapshot()
    for refused in (
        log.send(5),
        log.send(5, epoch=1),
        log.send(0, epoch=-1),
        log.send(1, txn=True, guard=object()),
    ):
        assert isinstance(refused, ErrorCode)
    assert log.producers.snapshot() == before
    assert log.send(1) == 1


# -- epochs and sequences -----------------------------------------------------------------------------------


def test_a_producer_id_that_was_never_handed_out_is_accepted(log):
    assert log.send(0, pid=123_456) == 0


@pytest.mark.parametrize("sequence", [0, 5, 100, SEQUENCE_MAX])
@pytest.mark.parametrize("kind", ["idempotent", "version 1"])
def test_a_producer_without_state_may_begin_anywhere(log, kind, sequence):
    answer = log.send(sequence) if kind == "idempotent" else log.begin(sequence)
    assert answer == 0


@pytest.mark.parametrize(("sequence", "expected"), [(0, 0), (1, OUT_OF_ORDER), (100, OUT_OF_ORDER)])
def test_a_producer_of_version_2_without_state_begins_at_0(log, sequence, expected):
    assert log.begin(sequence, v2=True) == expected


@pytest.mark.parametrize(
    ("sequence", "expected"), [(3, 3), (2, OUT_OF_ORDER), (4, OUT_OF_ORDER), (9, OUT_OF_ORDER)]
)
def test_within_an_epoch_sequences_leave_no_gap(log, sequence, expected):
    log.send(0, count=3)
    assert log.send(sequence) == expected


def test_after_a_gap_the_missing_batch_still_fits(log):
    log.send(0)
    assert log.send(2) is OUT_OF_ORDER
    assert log.send(1) == 1
    assert log.send(2) == 2


def test_after_the_largest_sequence_comes_0(log):
    assert log.send(2_147_483_646, count=3) == 0
    assert log.entry().last_sequence == 0
    assert log.send(2_147_483_646, count=3) == 0, "a duplicate is found across the wrap of the sequence"
    assert log.send(2) is OUT_OF_ORDER
    assert log.send(1) == 3


def test_the_largest_sequence_itself_is_followed_by_0(log):
    log.send(SEQUENCE_MAX)
    assert log.send(1) is OUT_OF_ORDER
    assert log.send(0) == 1


@pytest.mark.parametrize(
    ("epoch", "sequence", "expected"), [(1, 0, 1), (1, 5, OUT_OF_ORDER), (9, 0, 1), (9, 1, OUT_OF_ORDER)]
)
def test_a_new_epoch_begins_at_0(log, epoch, sequence, expected):
    log.send(0)
    assert log.send(sequence, epoch=epoch) == expected


@pytest.mark.parametrize("sequence", [0, 1, 5])
def test_an_old_epoch_is_refused(log, sequence):
    log.send(0, epoch=3)
    assert log.send(sequence, epoch=2) is STALE


def test_the_epoch_is_looked_at_before_the_sequence(log):
    log.send(0, epoch=3)
    assert log.send(77, epoch=2) is STALE


@pytest.mark.parametrize("origin", [AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION])
def test_sequences_are_checked_for_clients_only(log, origin):
    log.send(0)
    assert log.send(77, origin=origin) == 1


@pytest.mark.parametrize(("sequence", "expected"), [(0, 1), (1, OUT_OF_ORDER)])
def test_a_producer_known_only_by_a_marker_begins_at_0(log, sequence, expected):
    log.mark(epoch=4)
    assert log.entry().last_sequence == -1
    assert log.begin(sequence, epoch=4) == expected


def test_a_plain_batch_within_a_transaction_is_refused(log):
    log.begin(0)
    assert log.send(1) is INVALID_STATE
    log.mark()
    assert log.send(1) == 2


def test_the_sequence_is_checked_before_the_kind_of_the_batch(log):
    log.begin(0)
    assert log.send(9) is OUT_OF_ORDER


# -- verification -------------------------------------------------------------------------------------------


def test_without_a_guard_no_transaction_opens(log):
    assert log.send(0, txn=True, guard=None) is INVALID_STATE


def test_with_a_guard_that_is_not_the_current_one_no_transaction_opens(log):
    old = log.ask()
    log.mark()
    log.ask()
    assert log.send(0, txn=True, guard=old) is INVALID_STATE


def test_a_marker_between_the_question_and_the_append_refuses_the_append(log):
    guard = log.ask()
    log.mark(committed=False)
    assert log.send(0, txn=True, guard=guard) is INVALID_STATE


def test_where_verification_is_switched_off_no_guard_is_needed():
    assert Log(verification_enabled=False).send(0, txn=True, guard=None) == 0


def test_an_open_transaction_needs_no_guard(log):
    log.begin(0)
    assert log.ask(1) is None
    assert log.send(1, txn=True, guard=None) == 1


def test_an_open_transaction_of_another_epoch_is_no_excuse(log):
    log.begin(0, epoch=0)
    assert log.ask(0, epoch=1) is not None
    assert log.send(0, epoch=1, txn=True, guard=None) is INVALID_STATE


def test_an_old_epoch_is_told_before_a_missing_guard(log):
    log.send(0, epoch=3)
    assert log.send(0, epoch=2, txn=True, guard=None) is STALE


def test_the_guard_is_the_same_until_it_is_used(log):
    assert log.ask() is log.ask(3)


def test_the_first_batch_of_the_transaction_uses_the_guard_up(log):
    guard = log.ask()
    log.send(0, txn=True, guard=guard)
    assert not log.producers.is_guard_current(ME, guard)
    assert ME not in log.producers.verifications


def test_guards_belong_to_one_producer(log):
    guard = log.ask(pid=OTHER)
    log.ask(pid=ME)
    assert log.send(0, txn=True, guard=guard) is INVALID_STATE


@pytest.mark.parametrize("v2", [False, True])
def test_a_higher_sequence_waits_for_the_lower_one_that_was_refused(log, v2):
    log.ask(0, v2=v2)
    log.ask(1, v2=v2)
    assert log.send(1, txn=True) is OUT_OF_ORDER
    assert log.send(0, txn=True) == 0
    assert log.send(1, txn=True) == 1


def test_a_lower_sequence_lowers_the_bar(log):
    log.ask(7)
    log.ask(5)
    assert log.send(7, txn=True) is OUT_OF_ORDER
    assert log.send(5, txn=True) == 0


def test_a_lower_sequence_of_an_older_epoch_does_not(log):
    log.ask(5, epoch=1)
    log.ask(0, epoch=0)
    assert log.send(5, epoch=1, txn=True) == 0


def test_the_sequence_bar_is_reset_when_the_epoch_rises(log):
    log.ask(0, epoch=0)
    log.ask(3, epoch=1)
    assert log.send(3, epoch=1, txn=True) == 0


def test_version_2_starts_at_0_after_a_marker_has_cleared_what_was_remembered(log):
    log.begin(0, v2=True)
    log.mark(epoch=1, version=2)
    log.ask(1, epoch=1, v2=True)
    assert log.send(1, epoch=1, txn=True) is OUT_OF_ORDER
    log.ask(0, epoch=1, v2=True)
    assert log.send(0, epoch=1, txn=True) == 2


def test_version_1_goes_on_counting_in_the_next_transaction(log):
    log.begin(0)
    log.mark()
    log.ask(1)
    assert log.send(1, txn=True) == 2
    assert log.entry().last_sequence == 1


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("marker_epoch", "guard_epoch", "v2", "survives"),
    [
        pytest.param(4, 4, True, True, id="the guard is of the next transaction"),
        pytest.param(4, 3, True, False, id="the guard is of the transaction that ends"),
        pytest.param(4, 5, True, False, id="the guard is of another one"),
        pytest.param(4, 4, False, False, id="verified for an older Produce"),
    ],
)
def test_the_verification_entry_decides_whether_a_marker_removes_the_guard(
    log, marker_epoch, guard_epoch, v2, version, survives
):
    """The transaction version of the verification, not that of the marker, decides whether a marker removes the guard, as in
    `UnifiedLog.updateProducers`."""
    guard = log.ask(epoch=guard_epoch, v2=v2)
    log.mark(epoch=marker_epoch, version=version)
    assert log.producers.is_guard_current(ME, guard) is survives


def test_a_marker_leaves_the_guards_of_others_alone(log):
    guard = log.ask(pid=OTHER)
    log.mark(pid=ME)
    assert log.producers.is_guard_current(OTHER, guard)


# -- markers ------------------------------------------------------------------------------------------------


# open transaction?, marker epoch (the entry's epoch is 5), result with version 1, result with version 2
MARKER_EPOCHS = [
    (True, 4, STALE, STALE),
    (True, 5, OK, STALE),
    (True, 6, OK, OK),
    (False, 4, STALE, STALE),
    (False, 5, OK, OK),
    (False, 6, OK, OK),
]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(("is_open", "epoch", "before", "since"), MARKER_EPOCHS)
def test_markers_are_fenced_by_the_epoch(log, is_open, epoch, before, since, committed, version):
    if is_open:
        log.begin(0, epoch=5)
    else:
        log.send(0, epoch=5)
    expected = since if version == 2 else before
    answer = log.mark(epoch=epoch, committed=committed, version=version)
    assert (answer if isinstance(answer, ErrorCode) else OK) is expected


def test_the_last_epoch_of_all_may_be_equal(log):
    log.begin(0, epoch=32767)
    assert log.mark(epoch=32767, version=2) is None


@pytest.mark.parametrize(("epoch", "expected"), [(2, COORDINATOR_FENCED), (3, None), (4, None)])
def test_markers_are_fenced_by_the_coordinators_epoch(log, epoch, expected):
    log.mark(coordinator_epoch=3)
    assert log.mark(coordinator_epoch=epoch) is expected


@pytest.mark.parametrize("epoch", [4, 5])
def test_batches_keep_the_coordinators_epoch_of_the_last_marker(log, epoch):
    """A transaction that begins after a marker has the coordinator epoch of the marker, in the marker's producer epoch
    (version 2) and in a later one. An operator needs this coordinator epoch to abort the transaction."""
    log.begin(0, epoch=3)
    log.mark(epoch=4, coordinator_epoch=9, version=2)
    log.begin(0, epoch=epoch)
    assert (log.entry().epoch, log.entry().coordinator_epoch) == (epoch, 9)


def test_the_producers_epoch_counts_before_the_coordinators(log):
    log.mark(epoch=5, coordinator_epoch=3)
    assert log.mark(epoch=4, coordinator_epoch=2) is STALE


@pytest.mark.parametrize("version", [0, 2])
def test_a_marker_for_a_producer_without_state_is_taken_down(log, version):
    assert log.mark(epoch=4, coordinator_epoch=9, committed=False, version=version) is None
    entry = log.entry()
    assert (entry.epoch, entry.coordinator_epoch, entry.last_sequence) == (4, 9, -1)
    assert entry.current_txn_first_offset == -1
    assert log.unstable is None


def test_a_marker_of_the_same_epoch_keeps_what_is_remembered(log):
    log.begin(0)
    log.mark(coordinator_epoch=2, timestamp_ms=NOW + 5)
    entry = log.entry()
    assert (entry.epoch, entry.last_sequence, entry.coordinator_epoch) == (0, 0, 2)
    assert (entry.current_txn_first_offset, entry.last_timestamp_ms) == (-1, NOW + 5)


def test_a_marker_of_a_new_epoch_clears_it(log):
    log.begin(0)
    log.mark(epoch=1, version=2)
    entry = log.entry()
    assert (entry.epoch, entry.last_sequence, len(entry.batches)) == (1, -1, 0)


def test_the_epoch_before_the_marker_of_version_2_is_refused(log):
    log.begin(0)
    log.mark(epoch=1, version=2)
    log.ask(0, epoch=0)
    assert log.send(0, epoch=0, txn=True) is STALE


def test_a_repeat_of_a_transaction_that_version_1_has_ended_is_still_known(log):
    """A batch of an ended transaction of version 1 is recognized as a duplicate if it is sent again. In a broker
    verification would reject the batch earlier."""
    log.begin(0)
    log.mark()
    assert log.send(0, txn=True) == 0


def test_a_second_marker_changes_nothing_but_the_time(log):
    log.begin(0)
    assert log.mark(committed=False) == AbortedTransaction(ME, 0, 1, 2)
    assert log.mark(committed=False) is None
    assert log.unstable is None


# -- the last stable offset and the index of aborted transactions -------------------------------------------


def test_nothing_is_unstable_without_a_transaction(log):
    log.send(0)
    assert log.unstable is None


def test_a_transaction_is_unstable_from_its_first_batch_to_its_marker(log):
    log.send(0, pid=OTHER)
    log.begin(0)
    log.send(1, txn=True)
    assert log.unstable == 1
    log.mark()
    assert log.unstable is None


def test_the_first_of_several_open_transactions_counts(log):
    log.begin(0, pid=1)
    log.begin(0, pid=2)
    log.begin(0, pid=3)
    assert list(log.producers.open_transactions()) == [(0, 1), (1, 2), (2, 3)]
    log.mark(pid=2)
    assert log.unstable == 0
    log.mark(pid=1)
    assert log.unstable == 2
    log.mark(pid=3)
    assert log.unstable is None


def test_a_transaction_stays_unstable_until_its_marker_is_committed(log):
    log.begin(0)
    log.mark()
    unstable = log.producers.first_unstable_offset
    assert unstable(0) == 0
    assert unstable(1) == 0, "the marker at offset 1 is not below the high watermark of 1"
    assert unstable(2) is None


def test_an_ended_transaction_with_an_early_start_holds_back_later_ones(log):
    log.begin(0, pid=1)  # offset 0
    log.begin(0, pid=2)  # offset 1
    log.mark(pid=2)  # offset 2
    log.mark(pid=1)  # offset 3
    unstable = log.producers.first_unstable_offset
    assert unstable(2) == 0
    assert unstable(3) == 0, "the second marker is in the log but not yet committed"
    assert unstable(4) is None


def test_a_marker_where_nothing_was_written_does_not_touch_the_stable_offset(log):
    log.begin(0, pid=OTHER)
    log.mark(pid=ME, committed=False)
    assert log.unstable == 0


def test_overlapping_aborts_are_indexed_in_the_order_of_their_markers(log):
    log.begin(0, pid=33)
    log.begin(0, pid=34)
    log.send(0, pid=OTHER)
    assert log.mark(pid=34, committed=False) == AbortedTransaction(34, 1, 3, 0)
    assert log.mark(pid=33, committed=False) == AbortedTransaction(33, 0, 4, 5)


def test_a_commit_is_not_indexed(log):
    log.begin(0)
    assert log.mark(committed=True) is None


# -- expiration ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("now_ms", "is_gone"), [(NOW + 99, False), (NOW + 100, True), (NOW + 101, True)])
def test_an_idle_producer_expires(log, now_ms, is_gone):
    assert log.producers.first_expiry_ms(100) is None
    log.send(0)
    assert log.producers.first_expiry_ms(100) == NOW + 100
    assert log.producers.expire(now_ms, 100) == ([ME] if is_gone else [])
    assert (ME in log.producers.entries) is not is_gone


def test_it_is_the_time_of_the_record_that_counts(log):
    log.send(0, timestamp_ms=NOW - 500)
    assert log.producers.expire(NOW, 100) == [ME]
    assert log.send(0) == 1, "the same batch is appended again, as it is not remembered"


def test_a_marker_renews_the_time(log):
    log.begin(0)
    log.mark(timestamp_ms=NOW + 500)
    assert log.producers.expire(NOW + 550, 100) == []


def test_an_open_transaction_does_not_expire(log):
    log.begin(0)
    assert log.producers.first_expiry_ms(100) is None
    assert log.producers.expire(NOW * 1_000, 100) == []
    log.mark()
    assert log.producers.expire(NOW * 1_000, 100) == [ME]


@pytest.mark.parametrize(("now_ms", "is_gone"), [(NOW + 99, False), (NOW + 100, True)])
def test_a_verification_without_a_response_expires_by_the_clock(log, now_ms, is_gone):
    guard = log.ask(now_ms=NOW)
    assert log.producers.first_expiry_ms(100) == NOW + 100
    log.producers.expire(now_ms, 100)
    assert log.producers.is_guard_current(ME, guard) is not is_gone


# -- snapshots ----------------------------------------------------------------------------------------------


def restored(log: Log, now_ms: int = NOW, expiration_ms: int = 100) -> Log:
    """The log after a restart, with the producers from the bytes of a snapshot file."""
    after = Log()
    entries = producer_snapshot.decode(producer_snapshot.encode(log.producers.snapshot()))
    after.producers = ProducerStateManager.restore(entries, now_ms, expiration_ms)
    after.end = log.end
    return after


def test_after_a_restart_only_the_last_batch_is_a_repeat(log):
    for sequence in range(3):
        log.send(sequence)
    after = restored(log)
    assert after.send(2) == 2
    assert after.send(1) is OUT_OF_ORDER
    assert after.send(3) == 3


def test_a_snapshot_holds_each_field(log):
    log.begin(0, epoch=3, count=2)
    log.mark(epoch=3, coordinator_epoch=4, timestamp_ms=NOW + 1)
    log.begin(2, epoch=3, count=3)
    [stored] = log.producers.snapshot()
    assert stored.producer_id == ME
    assert stored.producer_epoch == 3
    assert (stored.last_sequence, stored.last_offset, stored.offset_delta) == (4, 5, 2)
    assert (stored.timestamp, stored.coordinator_epoch, stored.current_txn_first_offset) == (NOW, 4, 3)


@pytest.mark.parametrize("count", [1, 3])
def test_the_restored_batch_has_its_first_sequence_across_the_wrap(log, count):
    log.send(SEQUENCE_MAX - 1, count=3)
    log.send(1, count=count)
    after = restored(log)
    assert after.send(1, count=count) == 3
    log = Log()
    log.send(SEQUENCE_MAX - 1, count=3)
    assert restored(log).send(SEQUENCE_MAX - 1, count=3) == 0


def test_a_producer_known_only_by_a_marker_comes_back_without_batches(log):
    log.mark(epoch=4, coordinator_epoch=2)
    entry = restored(log).entry()
    assert (entry.epoch, entry.coordinator_epoch, entry.last_sequence, len(entry.batches)) == (4, 2, -1, 0)


def test_open_transactions_come_back_in_the_order_of_their_offsets(log):
    log.send(0, pid=9)
    log.begin(0, pid=1)
    log.begin(1, pid=9)
    after = restored(log)
    assert [entry.producer_id for entry in log.producers.snapshot()] == [9, 1]
    assert list(after.producers.open_transactions()) == [(1, 1), (2, 9)]
    assert after.unstable == 1
    assert after.mark(pid=1, committed=False) == AbortedTransaction(1, 1, 3, 2)


def test_what_has_expired_does_not_come_back_unless_it_is_open(log):
    log.send(0)
    log.begin(0, pid=OTHER)
    after = restored(log, now_ms=NOW + 100)
    assert list(after.producers.entries) == [OTHER]


def test_verifications_are_not_kept_over_a_restart(log):
    guard = log.ask()
    assert not restored(log).producers.is_guard_current(ME, guard)
