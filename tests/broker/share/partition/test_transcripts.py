"""Share partitions do what Apache Kafka 4.4.0 did in recorded conversations."""

from __future__ import annotations

from tests.broker.share.partition.share import ACCEPT, GAP, REJECT, RELEASE, Share, batches, stored

INVALID_RECORD_STATE = 121
INVALID_REQUEST = 42


def test_mixed_acknowledgements() -> None:
    share = Share(batches(2, 10))
    assert share.fetch() == [(0, 19, 1)]
    assert share.ack((10, 14, ACCEPT), (15, 15, RELEASE), (16, 19, [1, 3, 2, 0])) is None
    assert share.fetch() == [(15, 15, 2), (18, 18, 2)]
    assert share.ack((0, 9, ACCEPT)) is None
    assert share.fetch() == []
    assert share.partition.start_offset == 15
    # Late and wrong acknowledgements.
    assert share.ack((10, 14, ACCEPT)) is None
    assert share.ack((18, 30, ACCEPT)) == (
        INVALID_REQUEST,
        "Batch record not found. The last offset in request is past acquired records.",
    )
    assert share.ack((100, 110, ACCEPT)) == (
        INVALID_REQUEST,
        "Batch record not found. The first offset in request is past acquired records.",
    )
    assert share.ack((15, 15, RELEASE), (15, 15, RELEASE)) == (
        INVALID_RECORD_STATE,
        "The offset cannot be acknowledged. The offset is not acquired.",
    )
    assert share.ack((15, 15, [5])) == (INVALID_REQUEST, "Invalid acknowledge type: [5]")
    assert share.ack((15, 15, [-1])) == (INVALID_REQUEST, "Invalid acknowledge type: [-1]")
    # The end of the session: 15 is accepted with it, 18 is released.
    assert share.ack((15, 15, ACCEPT)) is None
    share.release()
    assert share.fetch() == [(18, 18, 3)]


def test_a_partition_without_records_in_flight_knows_no_batch() -> None:
    assert Share([]).ack((0, 0, ACCEPT)) == (
        INVALID_RECORD_STATE,
        "Batch record not found. The request batch offsets are not found in the cache.",
    )


def test_records_of_another_member() -> None:
    share = Share(batches(2, 100))
    assert share.fetch("m1") == [(0, 199, 1)]
    assert share.ack((10, 20, RELEASE)) is None
    assert share.fetch("m2") == [(10, 20, 2)]
    not_owner = (INVALID_RECORD_STATE, "Member is not the owner of offset")
    assert share.ack((0, 199, ACCEPT)) == not_owner
    assert share.ack((0, 9, ACCEPT), (10, 20, ACCEPT)) == not_owner
    assert share.ack((0, 9, ACCEPT), (21, 199, ACCEPT)) is None
    share.release("m2")
    assert share.fetch("m1") == [(10, 20, 3)]


def test_batches_and_record_limit() -> None:
    share = Share(batches(10, 100))
    assert share.fetch(records_max=150, batch_size=150) == [(0, 199, 1)]
    assert share.fetch(records_max=30, record_limit=True) == [(200, 229, 1)]
    assert share.fetch(records_max=0) == []
    assert share.fetch(records_max=100, batch_size=0) == [(230, 299, 1), (300, 299, 1), (300, 399, 1)]
    assert share.fetch(read=1) == [(400, 499, 1)]
    assert share.fetch(records_max=200, batch_size=50) == [(500, 599, 1), (600, 699, 1)]
    assert share.fetch(records_max=1) == [(700, 799, 1)]


def test_ranges_of_one_response_end_with_batches_in_flight() -> None:
    share = Share(batches(6, 10))
    for _ in range(6):
        share.fetch(read=1)
    assert share.ack((30, 39, RELEASE), (40, 49, RELEASE)) is None
    assert share.fetch() == [(30, 39, 2), (40, 49, 2)]


def test_poison_records_are_delivered_in_smaller_parts() -> None:
    share = Share(batches(1, 40))
    delivered = []
    for _ in range(45):
        (acquired,) = share.fetch()
        delivered.append(acquired)
        share.ack((acquired[0], acquired[1], RELEASE))
    single = [(offset, offset, 5) for offset in range(40)]
    assert delivered == [
        (0, 39, 1),
        (0, 39, 2),
        (0, 39, 3),
        (0, 19, 4),
        *single[:20],
        (20, 39, 4),
        *single[20:],
    ]
    # All are archived: each was delivered five times.
    assert share.partition.start_offset == 40


def test_locks_run_out() -> None:
    share = Share(batches(1, 6), record_lock_duration_ms=1000, delivery_count_limit=3)
    assert share.fetch() == [(0, 5, 1)]
    assert share.partition.next_expiry_ms() == 1000
    share.pass_ms(999)
    assert share.fetch() == []
    share.pass_ms(1)
    assert share.written == [(0, 0, [(0, 5, 0, 1)])]
    assert share.fetch() == [(0, 5, 2)]
    share.pass_ms(1000)
    assert [share.fetch(), share.fetch(), share.fetch()] == [[(0, 0, 3)], [(1, 1, 3)], [(2, 2, 3)]]
    share.pass_ms(1000)
    assert share.written[-1] == (0, 3, [(0, 0, 4, 3), (1, 1, 4, 3), (2, 2, 4, 3)])
    assert share.partition.start_offset == 3


def test_no_room_for_more_locks() -> None:
    share = Share(batches(2, 100), partition_max_record_locks=100)
    assert share.fetch() == [(0, 99, 1)]
    assert share.fetch() == []
    assert share.ack((10, 19, ACCEPT)) is None
    assert share.fetch() == []
    assert share.ack((30, 39, RELEASE)) is None
    assert share.fetch() == [(30, 39, 2)]
    assert share.ack((0, 9, ACCEPT)) is None
    assert share.fetch() == [(100, 199, 1)]


def test_transactions() -> None:
    log = [(0, 2), (3, 5), (6, 6), (7, 9), (10, 10), (11, 12)]
    assert Share(log).fetch() == [(0, 12, 1)]
    share = Share(log)
    assert share.fetch(aborted=[(7, 9)]) == [(0, 6, 1), (10, 12, 1)]
    assert share.ack((0, 6, ACCEPT)) is None
    assert share.ack((7, 9, ACCEPT)) is None
    # A transaction that is aborted later: its marker and what follows is delivered.
    share.log += [(13, 16), (17, 17), (18, 19)]
    assert share.fetch(aborted=[(13, 16)]) == [(17, 19, 1)]


def test_what_is_written() -> None:
    share = Share(batches(1, 10))
    share.fetch()
    for acknowledged in [
        ((0, 1, ACCEPT),),
        ((5, 5, RELEASE), (6, 6, REJECT)),
        ((2, 3, ACCEPT),),
        ((4, 4, ACCEPT),),
        ((7, 9, ACCEPT),),
    ]:
        assert share.ack(*acknowledged) is None
    share.fetch()
    share.ack((5, 5, ACCEPT))
    assert [(start, count) for start, count, _ in share.written] == [
        (0, 2),
        (2, 1),
        (2, 3),
        (4, 2),
        (5, 4),
        (5, 5),
    ]
    assert share.written[1][2] == [(5, 5, 0, 1), (6, 6, 4, 1)]
    assert share.partition.start_offset == 10


def test_dead_letters_of_rejected_records() -> None:
    share = Share(batches(1, 5), dead_letter_topic="dlq.gd1")
    share.fetch()
    assert share.ack((1, 2, REJECT), (0, 0, GAP)) is None
    assert share.written == [(0, 1, [(1, 1, 3, 1), (2, 2, 3, 1), (0, 0, 4, 1)])]
    letters = share.changes[-1].dead_letters
    assert letters == [(1, 1, 1, "Offset rejected by client."), (2, 2, 1, "Offset rejected by client.")]
    assert share.partition.start_offset == 1
    for letter in letters:
        share.write(share.partition.archive([letter]))
    assert share.written[1:] == [(1, 1, [(1, 1, 4, 1)]), (2, 1, [(2, 2, 4, 1)])]
    assert share.partition.start_offset == 3


def test_a_new_leader_starts_with_what_was_written() -> None:
    share = Share(batches(2, 3), stored=stored(0, (0, 1, 0, 1)))
    assert share.fetch() == [(0, 1, 2), (2, 5, 1)]
