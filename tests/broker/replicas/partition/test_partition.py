"""A partition over real files: the checks of an append and their errors, markers, last stable offset, waiting requests."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from struct import pack_into

import pytest

from broker.metadata.values import PartitionState
from broker.replicas.partition import AppendResult, Partition
from protocol import compression as codecs
from protocol.batch import EndTxnMarker, RecordBatch, build_batch
from protocol.errors import ErrorCode
from storage.config import LogConfig
from storage.log import Log
from storage.recovery import OpenOptions, open_log
from tests.support.clock import NOW_MS, FakeClock

OK = ErrorCode.none
ME, OTHER = 7, 8
HOUR_MS = 3_600_000
START = 2
"""The log start of the partitions in these tests, which is neither -1 nor 0."""


class Bench:
    """One partition with its clock and its files."""

    def __init__(self, path, requires_first_sequence_0=False, **config) -> None:
        self.path = path
        self.requires_first_sequence_0 = requires_first_sequence_0
        self.clock = FakeClock()
        self.config = LogConfig(**config)
        self.verification_enabled = True
        self.flushes = 0
        self.partition = self._partition(Log(path, uuid.UUID(int=1), self.config))

    def _partition(self, log: Log, flush=None) -> Partition:
        return Partition(
            "t",
            PartitionState(0, (1,), (1,), 1, 3, 0),
            log,
            self.clock,
            verification_enabled=lambda: self.verification_enabled,
            requires_first_sequence_0=self.requires_first_sequence_0,
            flush=flush,
            node_id=1,
        )

    def hold(self, _: Partition) -> None:
        """Flush function that only counts its calls. With `flush.messages` the high watermark waits for the flush,
        so it does not advance."""
        self.flushes += 1

    def reopen(self, *, clean: bool = False) -> None:
        self.partition.log.close(clean=clean)
        options = OpenOptions(uuid.UUID(int=1), self.config, self.clock.now, clean)
        self.partition = self._partition(open_log(self.path, options).log)

    def append(self, batch: bytes, *, acks: int = -1, guard=None) -> AppendResult:
        return self.partition.append(RecordBatch.parse(batch), required_acks=acks, guard=guard)

    def fill(self, count: int = START) -> None:
        """Append records and delete them, so that the log starts behind offset 0."""
        for _ in range(count):
            assert self.append(plain()).error is OK
        self.partition.delete_records(count)

    def send(
        self, sequence: int, *, epoch: int = 0, count: int = 1, pid: int = ME, v2: bool = True
    ) -> AppendResult:
        """Append a transactional batch whose partition has been verified."""
        producers = self.partition.log.producers
        guard = producers.start_verification(
            pid, epoch, sequence, supports_epoch_bump=v2, now_ms=self.clock.now
        )
        return self.append(transactional(sequence, epoch=epoch, count=count, pid=pid), guard=guard)

    def mark(
        self,
        *,
        epoch: int = 0,
        pid: int = ME,
        committed: bool = True,
        coordinator_epoch: int = 0,
        version: int = 0,
    ) -> AppendResult:
        return self.partition.append_marker(pid, epoch, EndTxnMarker(committed, coordinator_epoch), version)

    def layout(self) -> list[tuple[int, int, int, int, int]]:
        """(base offset, size, attributes, producer epoch, base sequence) of each batch."""
        return [
            (batch.base_offset, batch.size, batch.attributes, batch.producer_epoch, batch.base_sequence)
            for batch in self.partition.log.batches()
        ]

    def aborted(self, offset: int = 0):
        return self.partition.read(offset, 1 << 20, read_committed=True, whole_first_batch=True).aborted

    @property
    def lso(self) -> int:
        return self.partition.last_stable_offset


def plain(*, count: int = 1, timestamp_ms: int = NOW_MS, key: bytes | None = b"k", **more) -> bytes:
    return build_batch([(timestamp_ms, key, b"v")] * count, **more)


def idempotent(sequence: int, *, epoch: int = 0, pid: int = ME, **more) -> bytes:
    return plain(producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **more)


def transactional(sequence: int, **more) -> bytes:
    return idempotent(sequence, transactional=True, **more)


def patched(batch: bytes, form: str, offset: int, value: int, *, valid_crc: bool = True) -> bytes:
    """The batch with ``value`` written at ``offset`` in the ``struct`` format ``form``. The CRC is computed again,
    unless ``valid_crc`` is false."""
    from google_crc32c import value as crc32c

    data = bytearray(batch)
    pack_into(form, data, offset, value)
    if valid_crc:
        pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path / "t-0")
    yield bench
    bench.partition.log.close(clean=False)


@pytest.fixture
def make(tmp_path):
    """A function that makes a bench whose partition has the given topic settings."""
    made: list[Bench] = []

    def make(**config) -> Bench:
        made.append(Bench(tmp_path / f"t-{len(made)}", **config))
        return made[-1]

    yield make
    for bench in made:
        bench.partition.log.close(clean=False)


# -- the checks of an append --------------------------------------------------------------------------------


def refused(bench: Bench, batch: bytes, *, acks: int = -1) -> tuple[ErrorCode, int]:
    """Append a batch that must be rejected. Returns (error, log start offset)."""
    if bench.partition.log_end_offset == 0:
        bench.fill()
    end = bench.partition.log_end_offset
    result = bench.append(batch, acks=acks)
    assert (result.base_offset, result.last_offset, result.log_append_time_ms) == (-1, -1, -1)
    assert bench.partition.log_end_offset == end
    return result.error, result.log_start_offset


LATER = (">q", 0, 5)
CONTROL = 0x20
UNEVEN = [
    pytest.param((">i", 23, -1), id="spans 0 offsets"),
    pytest.param((">i", 23, 7), id="spans 8 offsets with 1 record"),
    pytest.param((">i", 57, 0), id="0 records"),
    pytest.param((">i", 57, -3), id="-3 records"),
]


@pytest.mark.parametrize("acks", [0, 1])
def test_too_few_replicas_matter_to_acks_all_only(make, acks):
    bench = make(min_insync_replicas=2)
    bench.partition.replicas, bench.partition.isr = (1, 2, 3), (1,)
    assert bench.append(plain(), acks=acks).error is OK


def test_too_few_replicas_refuse_acks_all(make):
    bench = make(min_insync_replicas=2)
    bench.fill()
    bench.partition.replicas, bench.partition.isr = (1, 2, 3), (1,)
    assert refused(bench, plain()) == (ErrorCode.not_enough_replicas, START)


def test_one_replica_is_enough_for_a_topic_of_one_replica(make):
    assert make(min_insync_replicas=2).append(plain()).error is OK


def test_a_base_offset_must_be_0(bench):
    assert refused(bench, patched(plain(), *LATER)) == (ErrorCode.invalid_record, START)


def test_a_batch_has_a_largest_size(make):
    batch = plain(count=3)
    assert make(max_message_bytes=len(batch)).append(batch).error is OK
    assert refused(make(max_message_bytes=len(plain(count=2))), batch) == (ErrorCode.message_too_large, -1)


def test_a_wrong_crc_is_corrupt(bench):
    batch = patched(plain(), ">b", 65, 9, valid_crc=False)
    assert refused(bench, batch) == (ErrorCode.corrupt_message, -1)


@pytest.mark.parametrize("field", UNEVEN)
def test_offsets_and_records_must_agree(bench, field):
    assert refused(bench, patched(plain(), *field)) == (ErrorCode.invalid_record, START)


def test_clients_write_no_control_batches(bench):
    assert refused(bench, patched(plain(), ">h", 21, CONTROL)) == (ErrorCode.invalid_record, START)


def test_a_producer_needs_a_sequence(bench):
    batch = plain(producer_id=ME, producer_epoch=0)
    assert refused(bench, batch) == (ErrorCode.invalid_record, START)


def test_a_compacted_topic_wants_keys_and_names_all_offenders(make):
    bench = make(cleanup_policy=("compact",))
    bench.fill()
    records = [(NOW_MS, None, b"v"), (NOW_MS, b"k", b"v"), (NOW_MS, None, b"v")]
    result = bench.append(build_batch(records))
    assert (result.error, result.log_start_offset) == (ErrorCode.invalid_record, START)
    assert [index for index, _ in result.record_errors] == [0, 2]
    assert result.message


@pytest.mark.parametrize(
    ("offset_ms", "expected"),
    [
        (HOUR_MS, OK),
        (HOUR_MS + 1, ErrorCode.invalid_timestamp),
        (-HOUR_MS, OK),
        (-HOUR_MS - 1, ErrorCode.invalid_timestamp),
    ],
)
def test_a_timestamp_may_not_be_too_far_from_now(make, offset_ms, expected):
    bench = make(message_timestamp_before_max_ms=HOUR_MS)
    bench.fill()
    result = bench.append(plain(count=2, timestamp_ms=NOW_MS + offset_ms))
    assert result.error is expected
    if expected is not OK:
        assert [index for index, _ in result.record_errors] == [0, 1]
        assert result.log_start_offset == START


def test_no_timestamp_is_always_accepted(make):
    assert make(message_timestamp_before_max_ms=HOUR_MS).append(plain(timestamp_ms=-1)).error is OK


def test_a_bad_timestamp_among_missing_keys_decides_on_the_code(make):
    bench = make(cleanup_policy=("compact",))
    records = [(NOW_MS, None, b"v"), (NOW_MS + 2 * HOUR_MS, b"k", b"v")]
    result = bench.append(build_batch(records))
    assert result.error is ErrorCode.invalid_timestamp
    assert [index for index, _ in result.record_errors] == [0, 1]


def test_producers_may_not_claim_log_append_time(make):
    batch = plain(log_append_time_ms=NOW_MS)
    bench = make(message_timestamp_type="LogAppendTime")
    assert refused(bench, batch) == (ErrorCode.invalid_timestamp, START)


def test_on_a_create_time_topic_the_flag_of_log_append_time_is_cleared(bench):
    result = bench.append(plain(log_append_time_ms=NOW_MS - 5))
    assert (result.error, result.log_append_time_ms) == (OK, -1)
    [batch] = bench.partition.log.batches()
    assert not batch.is_log_append_time
    # During validation, Kafka sets the timestamp of each record in such a batch to the batch's maximum.
    assert batch.max_timestamp == NOW_MS - 5
    assert batch.has_valid_crc()


def test_what_the_topics_codec_makes_too_large_is_too_large(make):
    batch = plain(count=50, compression=codecs.GZIP)
    bench = make(max_message_bytes=len(batch) + 10, compression_type="uncompressed")
    assert refused(bench, batch) == (ErrorCode.message_too_large, -1)


def test_a_batch_must_fit_into_a_segment(make):
    batch = plain(count=50)
    bench = make(segment_bytes=len(batch) - 1)
    assert refused(bench, batch) == (ErrorCode.record_list_too_large, -1)


# Each batch fails two checks, and the error must be that of the first one.
TWO_FAULTS = [
    pytest.param(
        patched(patched(plain(), *LATER), ">b", 65, 9, valid_crc=False),
        ErrorCode.invalid_record,
        id="base offset before CRC",
    ),
    pytest.param(
        patched(plain(count=90), ">b", 65, 9, valid_crc=False),
        ErrorCode.message_too_large,
        id="size before CRC",
    ),
    pytest.param(
        patched(plain(), ">i", 57, 0, valid_crc=False), ErrorCode.corrupt_message, id="CRC before counts"
    ),
    pytest.param(
        patched(plain(key=None), ">h", 21, CONTROL), ErrorCode.invalid_record, id="control before keys"
    ),
    pytest.param(
        idempotent(55, timestamp_ms=NOW_MS + 2 * HOUR_MS),
        ErrorCode.invalid_timestamp,
        id="timestamp before sequence",
    ),
]


@pytest.mark.parametrize(("batch", "error"), TWO_FAULTS)
def test_the_error_is_that_of_the_first_failed_check(make, batch, error):
    bench = make(max_message_bytes=500)
    bench.append(idempotent(0))
    assert bench.append(batch).error is error


def test_a_repeat_that_fails_an_earlier_check_gets_its_error_and_not_its_offset(bench):
    batch = idempotent(0)
    assert bench.append(batch).error is OK
    assert bench.append(patched(batch, ">b", 65, 9, valid_crc=False)).error is ErrorCode.corrupt_message
    bench.clock.now -= 2 * HOUR_MS
    assert bench.append(batch).error is ErrorCode.invalid_timestamp


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (idempotent(5), ErrorCode.out_of_order_sequence_number),
        (idempotent(0, epoch=0, count=2), ErrorCode.out_of_order_sequence_number),
        (idempotent(0, pid=OTHER, epoch=0), ErrorCode.invalid_producer_epoch),
        (transactional(1), ErrorCode.invalid_txn_state),
    ],
)
def test_producers_are_checked_last_and_told_the_log_start(bench, batch, error):
    bench.append(idempotent(0))
    bench.append(idempotent(0, pid=OTHER, epoch=1))
    bench.partition.delete_records(START)
    assert refused(bench, batch) == (error, START)


# -- the result of an append --------------------------------------------------------------------------------


def test_an_append_returns_its_offsets(bench):
    bench.fill()
    result = bench.append(plain(count=3))
    assert result == AppendResult(OK, 2, 4, -1, START)
    assert bench.append(plain()).base_offset == 5


def test_log_append_time_is_returned_and_stored(make):
    bench = make(message_timestamp_type="LogAppendTime")
    result = bench.append(plain(count=2, timestamp_ms=5))
    assert result == AppendResult(OK, 0, 1, NOW_MS, 0)
    [batch] = bench.partition.log.batches()
    assert batch.has_valid_crc()
    assert [record.timestamp for record in batch.records()] == [NOW_MS, NOW_MS]


def test_a_repeat_is_answered_with_the_remembered_timestamp(bench):
    bench.append(idempotent(0, count=2, timestamp_ms=NOW_MS - 9))
    bench.append(plain())
    bench.partition.delete_records(1)
    again = bench.append(idempotent(0, count=2, timestamp_ms=NOW_MS - 9))
    assert again == AppendResult(OK, 0, 1, NOW_MS - 9, 1, duplicate=True)
    assert bench.partition.log_end_offset == 3


def test_a_stored_batch_has_offset_and_leader_epoch_and_its_own_crc(bench):
    bench.append(plain())
    bench.append(plain(count=2))
    _, batch = bench.partition.log.batches()
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (1, 2, 3)
    assert batch.has_valid_crc()


# -- traces of a live Kafka ---------------------------------------------------------------------------------


def test_trace_a_two_transactions_of_version_2(bench):
    bench.append(plain())
    assert bench.send(0, epoch=1).base_offset == 1
    assert bench.send(1, epoch=1, count=2).base_offset == 2
    assert bench.lso == 1
    assert bench.mark(epoch=2, version=2).base_offset == 4
    assert bench.lso == 5
    entry = bench.partition.log.producers.entries[ME]
    assert (entry.epoch, entry.last_sequence, entry.coordinator_epoch, entry.current_txn_first_offset) == (
        2,
        -1,
        0,
        -1,
    )
    assert bench.send(0, epoch=2).base_offset == 5
    assert bench.send(1, epoch=2).base_offset == 6
    assert bench.mark(epoch=3, version=2, committed=False).base_offset == 7
    assert bench.lso == 8
    assert bench.aborted() == [(ME, 5)]
    assert [
        (offset, attributes, epoch, sequence) for offset, _, attributes, epoch, sequence in bench.layout()
    ] == [
        (0, 0, -1, -1),
        (1, 0x10, 1, 0),
        (2, 0x10, 1, 1),
        (4, 0x30, 2, -1),
        (5, 0x10, 2, 0),
        (6, 0x10, 2, 1),
        (7, 0x30, 3, -1),
    ]
    assert {size for _, size, attributes, _, _ in bench.layout() if attributes == 0x30} == {78}


def test_trace_b_version_1_continues_its_sequence(bench):
    assert bench.send(0, v2=False).error is OK
    assert bench.mark(epoch=0).error is OK
    assert bench.send(1, v2=False).base_offset == 2
    assert bench.mark(epoch=0, committed=False).error is OK
    assert bench.send(3, v2=False).error is ErrorCode.out_of_order_sequence_number


def test_trace_c_a_fenced_producer_of_version_1(bench):
    bench.send(0, v2=False)
    assert bench.mark(epoch=1, committed=False, version=2).error is OK
    assert bench.send(1, v2=False).error is ErrorCode.invalid_producer_epoch


def test_trace_d_overlapping_aborts(bench):
    bench.send(0, pid=33)
    bench.send(0, pid=34)
    bench.append(plain())
    assert bench.lso == 0
    bench.mark(pid=34, committed=False)
    assert bench.lso == 0
    bench.mark(pid=33, committed=False)
    assert bench.lso == 5
    assert bench.aborted() == [(34, 1), (33, 0)], "in the order of the markers"
    entries = bench.partition.log.active.transaction_index.entries()
    assert [tuple(entry) for entry in entries] == [(34, 1, 3, 0), (33, 0, 4, 5)]


def test_a_marker_is_78_bytes(bench):
    bench.mark(epoch=4, committed=False, coordinator_epoch=12)
    [batch] = bench.partition.log.batches()
    assert (batch.size, batch.attributes, batch.record_count, batch.last_offset_delta) == (78, 0x30, 1, 0)
    assert (batch.base_sequence, batch.producer_id, batch.producer_epoch) == (-1, ME, 4)
    assert (batch.max_timestamp, batch.partition_leader_epoch) == (NOW_MS, 3)
    assert bytes(batch.body).hex(" ", 1) == "20 00 00 00 08 00 00 00 00 0c 00 00 00 00 00 0c 00"


# -- markers ------------------------------------------------------------------------------------------------


def test_a_marker_needs_enough_replicas_before_all_else(make):
    bench = make(min_insync_replicas=2)
    bench.send(0, epoch=5)
    bench.partition.replicas, bench.partition.isr = (1, 2), (1,)
    assert bench.mark(epoch=4).error is ErrorCode.not_enough_replicas


@pytest.mark.parametrize(
    ("marker", "error"),
    [
        ({"epoch": 4}, ErrorCode.invalid_producer_epoch),
        ({"epoch": 4, "version": 2}, ErrorCode.invalid_producer_epoch),
        ({"epoch": 5, "version": 2}, ErrorCode.invalid_producer_epoch),
        ({"epoch": 5, "coordinator_epoch": 1}, ErrorCode.transaction_coordinator_fenced),
        ({"epoch": 5, "coordinator_epoch": 2}, OK),
        ({"epoch": 5, "version": 1, "coordinator_epoch": 2}, OK),
        ({"epoch": 6, "version": 2, "coordinator_epoch": 2}, OK),
    ],
)
def test_a_fenced_marker_is_not_written(bench, marker, error):
    bench.mark(epoch=4, coordinator_epoch=2)
    bench.send(0, epoch=5)
    end = bench.partition.log_end_offset
    assert bench.mark(**marker).error is error
    assert bench.partition.log_end_offset == end + (error is OK)


def test_a_second_marker_of_the_same_transaction_is_written(bench):
    bench.send(0)
    assert bench.mark(epoch=1, version=2).error is OK
    assert bench.mark(epoch=1, version=2).error is OK
    assert bench.partition.log_end_offset == 3
    assert bench.lso == 3


def test_a_marker_where_nothing_was_written_is_no_error(bench):
    assert bench.mark(epoch=4, committed=False, version=2).base_offset == 0
    assert bench.aborted() == []
    assert bench.lso == 1


# -- the last stable offset ---------------------------------------------------------------------------------


def test_plain_records_behind_an_open_transaction_cannot_be_seen(bench):
    bench.send(0)
    bench.append(plain())
    result = bench.partition.read(0, 1 << 20, read_committed=True, whole_first_batch=True)
    assert (result.records, result.aborted) == (b"", [])
    assert (result.high_watermark, result.last_stable_offset) == (2, 0)
    assert bench.partition.read(1, 1 << 20, read_committed=True, whole_first_batch=True).error is OK


def test_after_deletion_past_its_start_the_stable_offset_is_the_log_start(bench):
    for _ in range(2):
        bench.append(plain())
    bench.send(0)
    for _ in range(4):
        bench.append(plain())
    assert bench.lso == 2
    assert bench.partition.delete_records(6) == (OK, 6)
    assert bench.lso == 6
    bench.mark()
    assert bench.lso == 8


def test_deletion_forgets_no_producer(bench):
    bench.append(idempotent(0))
    bench.partition.delete_records(-1)
    assert bench.append(idempotent(0)).duplicate
    assert bench.append(idempotent(1)).error is OK


def test_a_marker_moves_the_stable_offset_once_it_is_committed(tmp_path):
    bench = Bench(tmp_path / "t-0", flush_messages=1)
    bench.partition = bench._partition(Log(tmp_path / "t-0", uuid.UUID(int=1), bench.config), bench.hold)
    partition = bench.partition
    bench.append(plain(), acks=1)
    bench.send(0)
    assert (partition.high_watermark, bench.lso) == (0, 0)
    partition.log.flushed_up_to(2)
    partition.advance_high_watermark()
    assert (partition.high_watermark, bench.lso) == (2, 1)
    bench.mark()
    assert (partition.high_watermark, bench.lso) == (2, 1)
    partition.log.flushed_up_to(3)
    partition.advance_high_watermark()
    assert (partition.high_watermark, bench.lso) == (3, 3)
    partition.log.close(clean=False)


def test_nothing_is_committed_by_a_leader_that_dies_at_its_flush(tmp_path):
    """A leader that a fault rule at ``log.fsync`` kills commits no record, even if the fsync has written the record to
    disk."""

    def die(partition):
        partition.stop_leading(ErrorCode.not_leader_or_follower)
        partition.log.flushed_up_to(1)

    bench = Bench(tmp_path / "t-0", flush_messages=1)
    bench.partition = bench._partition(Log(tmp_path / "t-0", uuid.UUID(int=1), bench.config), die)
    bench.append(plain(), acks=1)
    assert (bench.partition.log_end_offset, bench.partition.high_watermark) == (1, 0)
    bench.partition.log.close(clean=False)


# -- waiting ------------------------------------------------------------------------------------------------


def test_listeners_to_commits_are_called_in_the_order_of_offsets(tmp_path):
    bench = Bench(tmp_path / "t-0", flush_messages=1)
    bench.partition = bench._partition(Log(tmp_path / "t-0", uuid.UUID(int=1), bench.config), bench.hold)
    partition = bench.partition
    for _ in range(3):
        bench.append(plain())
    assert bench.flushes == 3
    heard: list[tuple[int, ErrorCode]] = []

    def hear(offset: int, error: ErrorCode) -> None:
        heard.append((offset, error))

    for end_offset in (3, 1, 2):
        partition.on_committed(end_offset, partial(hear, end_offset))
    partition.on_committed(0, lambda error: heard.append((0, error)))
    assert heard == [(0, OK)], "a committed offset calls the listener at once"
    partition.log.flushed_up_to(3)
    partition.high_watermark = 0
    partition.advance_high_watermark()
    assert heard[1:] == [(1, OK), (2, OK), (3, OK)]
    partition.log.close(clean=False)


@pytest.mark.parametrize("error", [ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition])
def test_listeners_to_commits_get_an_error_when_the_leadership_ends(bench, error):
    heard: list[ErrorCode] = []
    bench.partition.on_committed(5, heard.append)
    bench.partition.stop_leading(error)
    assert heard == [error]


def test_watchers_are_called_for_appends_deletions_and_the_end_of_the_leadership(bench):
    heard = []

    def watcher() -> None:
        heard.append(bench.partition.high_watermark)

    bench.partition.delayed.watch(watcher)
    bench.append(plain())
    bench.mark()
    assert heard == [1, 2]
    bench.partition.delete_records(1)
    bench.partition.stop_leading(ErrorCode.not_leader_or_follower)
    assert len(heard) == 4
    bench.partition.delayed.unwatch(watcher)
    bench.append(plain())
    assert len(heard) == 4


@pytest.mark.parametrize(
    ("before_offset", "expected", "log_start"),
    [
        (-1, (OK, 4), 4),
        (4, (OK, 4), 4),
        (3, (OK, 3), 3),
        (2, (OK, 2), 2),
        (1, (OK, 2), 2),
        (0, (OK, 2), 2),
        (5, (ErrorCode.offset_out_of_range, -1), 2),
        (-2, (ErrorCode.offset_out_of_range, -1), 2),
    ],
)
def test_records_are_deleted_up_to_an_offset(bench, before_offset, expected, log_start):
    for _ in range(4):
        bench.append(plain())
    bench.partition.delete_records(2)
    assert bench.partition.delete_records(before_offset) == expected
    assert bench.partition.log_start_offset == log_start


# -- restarts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_restart_the_last_batch_is_still_a_repeat(bench, clean):
    for sequence in range(3):
        bench.append(idempotent(sequence))
    bench.reopen(clean=clean)
    assert bench.append(idempotent(2)).duplicate
    earlier = bench.append(idempotent(1))
    if clean:
        # A snapshot has only the last batch of each producer.
        assert earlier.error is ErrorCode.out_of_order_sequence_number
    else:
        assert earlier.duplicate  # recovery reads the log, which has the last five batches
    assert bench.append(idempotent(3)).base_offset == 3


@pytest.mark.parametrize("clean", [True, False])
def test_open_and_aborted_transactions_are_known_after_a_restart(bench, clean):
    bench.send(0, pid=33)
    bench.send(0, pid=34)
    bench.mark(pid=34, committed=False)
    before = bench.aborted()
    bench.reopen(clean=clean)
    assert bench.lso == 0
    assert bench.send(1, pid=33).error is OK, "the transaction is still open, so it needs no verification"
    bench.mark(pid=33, committed=False)
    assert before == []
    assert bench.aborted() == [(34, 1), (33, 0)]


@pytest.mark.parametrize("clean", [True, False])
def test_epochs_of_markers_are_known_after_a_restart(bench, clean):
    bench.send(0)
    bench.mark(epoch=1, version=2, coordinator_epoch=5)
    bench.reopen(clean=clean)
    assert bench.send(0, epoch=0).error is ErrorCode.invalid_producer_epoch
    assert bench.mark(epoch=1, coordinator_epoch=4).error is ErrorCode.transaction_coordinator_fenced
    assert bench.send(1, epoch=1).error is ErrorCode.out_of_order_sequence_number


def test_an_offline_partition_fails_every_request(bench):
    bench.append(plain())
    bench.partition.offline = "the disk is gone"
    assert bench.append(plain()).error is ErrorCode.kafka_storage_error
    assert bench.mark().error is ErrorCode.kafka_storage_error
    read = bench.partition.read(0, 100, read_committed=False, whole_first_batch=True)
    assert read.error is ErrorCode.kafka_storage_error


# -- KAFKA-15591, which is a preview ------------------------------------------------------------------------


@pytest.fixture
def later(tmp_path) -> Bench:
    """A partition on a broker with ``--preview KAFKA-15591``."""
    return Bench(tmp_path, requires_first_sequence_0=True)


def test_a_new_partition_accepts_only_first_sequence_0(later):
    assert later.append(idempotent(1)).error is ErrorCode.out_of_order_sequence_number
    assert later.send(1, v2=False).error is ErrorCode.out_of_order_sequence_number
    assert later.append(idempotent(0)).base_offset == 0
    assert later.append(idempotent(1)).base_offset == 1


def test_a_partition_that_was_written_accepts_any_first_sequence(later):
    later.append(idempotent(0))
    assert later.append(idempotent(5, pid=OTHER)).error is OK
    later.partition.delete_records(2)
    assert later.append(idempotent(5, pid=OTHER + 1)).base_offset == 2


def test_without_the_preview_a_new_partition_accepts_any_first_sequence(bench):
    """The first batch is then lost: its producer, which repeats it, is told that it is out of order."""
    assert bench.append(idempotent(1)).base_offset == 0
    assert bench.append(idempotent(0)).error is ErrorCode.out_of_order_sequence_number


# -- a coordinator's own appends ----------------------------------------------------------------------------


def test_a_coordinators_batches_are_not_checked_for_sequences(bench):
    partition = bench.partition
    for epoch in (0, 0, 1):
        producers = partition.log.producers
        guard = producers.start_verification(ME, epoch, -1, supports_epoch_bump=True, now_ms=NOW_MS)
        result = partition.append_internal(transactional(0, epoch=epoch), guard=guard)
        assert result.error is OK
    assert partition.log_end_offset == 3


def test_a_coordinators_transactional_batch_needs_its_guard(bench):
    assert bench.partition.append_internal(transactional(0)).error is ErrorCode.invalid_txn_state
    bench.partition.log.producers.start_verification(ME, 0, -1, supports_epoch_bump=True, now_ms=NOW_MS)
    assert bench.partition.append_internal(transactional(0), verified=True).error is OK


@pytest.mark.parametrize(("enabled", "expected"), [(True, ErrorCode.invalid_txn_state), (False, OK)])
def test_verification_can_be_switched_off(bench, enabled, expected):
    bench.verification_enabled = enabled
    assert bench.append(transactional(0)).error is expected


@pytest.mark.parametrize("how", ["produce", "marker", "replicated"])
def test_a_kill_at_the_fsync_of_a_segment_that_is_rolled_ends_the_append(bench, how):
    """A fault rule that kills the node at the fsync of a rolled segment closes the log: the append writes and raises nothing
    more."""
    log = bench.partition.log
    log.config = replace(log.config, segment_bytes=100)
    assert bench.send(0).error is OK
    log.on_roll = lambda sealed: log.close(clean=False)
    size, end_offset = log.size, log.log_end_offset
    if how == "produce":
        outcome = [bench.append(plain()).error for _ in range(2)]
    elif how == "marker":
        outcome = [bench.mark().error]
    else:
        copied = b"".join(plain(count=20, base_offset=end_offset + 20 * number) for number in range(2))
        outcome = [bench.partition.append_replicated(copied)]
    assert set(outcome) == {ErrorCode.not_leader_or_follower}
    assert (log.size, log.log_end_offset) == (size, end_offset)


def test_a_transaction_is_forgotten_once_its_marker_is_committed_also_where_no_reader_asks(bench):
    """A partition forgets an ended transaction once its marker is committed, even if no consumer fetches from the partition,
    as with __consumer_offsets."""
    producers = bench.partition.log.producers
    for sequence in range(3):
        bench.send(sequence)
        assert bench.mark().error is OK
        # Offset 0: nothing is committed yet, so every transaction that is still remembered would be unstable.
        assert producers.first_unstable_offset(0) is None
