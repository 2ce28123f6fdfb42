"""Rules of a share partition, one by one."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from broker.share.partition import Acknowledged, Ending, Fetched, InFlight, Limits, Refused, SharePartition
from broker.share.settings import ShareGroupSettings
from broker.share.state import RecordState, StoredState
from tests.broker.share.partition.share import ACCEPT, GAP, REJECT, RELEASE, RENEW, Share, batches, stored

REJECTED = "Offset rejected by client."
EXCEEDED = "Offset delivery count exceeded the threshold."
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState


def test_records_are_in_transition_until_their_state_is_written() -> None:
    share = Share(batches(1, 10))
    share.fetch()
    released = share.acknowledge("m1", (0, 9, RELEASE))
    assert share.partition.next_fetch_offset() == 10
    assert share.fetch() == []
    assert share.ack((0, 9, ACCEPT)) == (
        121,
        "The batch cannot be acknowledged. The batch is not in the acquired state.",
    )
    share.write(released)
    assert share.partition.next_fetch_offset() == 0
    assert share.fetch() == [(0, 9, 2)]


def test_a_failed_write_gives_the_records_back_to_their_member() -> None:
    share = Share(batches(1, 10))
    share.fetch()
    accepted = share.acknowledge("m1", (0, 4, ACCEPT))
    assert share.partition.delivery_complete_count == 5
    assert share.partition.roll_back(accepted) is False
    assert share.partition.delivery_complete_count == 0
    assert share.states == [(0, 9, ACQUIRED, 1)]
    assert share.ack((0, 9, ACCEPT)) is None
    assert share.partition.start_offset == 10


@pytest.mark.parametrize(
    ("deliveries", "state"), [(1, AVAILABLE), (2, ARCHIVED)], ids=["below the limit", "at the limit"]
)
def test_a_lock_runs_out_while_a_write_is_pending_that_fails(deliveries: int, state: RecordState) -> None:
    share = Share(batches(1, 3), delivery_count_limit=2, record_lock_duration_ms=100)
    for _ in range(deliveries - 1):
        share.fetch()
        share.release()
    share.fetch()
    accepted = share.acknowledge("m1", (0, 2, ACCEPT))
    share.pass_ms(100)
    assert share.states == [(0, 2, ACKNOWLEDGED, deliveries)]
    share.partition.roll_back(accepted)
    assert share.states == [(0, 2, state, deliveries)]
    assert share.partition.delivery_complete_count == (3 if state is ARCHIVED else 0)
    assert share.fetch("m2") == ([(0, 2, 2)] if state is AVAILABLE else [])


def test_all_batches_of_a_request_or_none() -> None:
    share = Share(batches(2, 10))
    share.fetch(read=1)
    share.fetch("m2")
    assert share.ack((0, 4, ACCEPT), (5, 12, ACCEPT)) == (121, "Member is not the owner of batch record")
    assert share.states == [(0, 9, ACQUIRED, 1), (10, 19, ACQUIRED, 1)]
    assert share.partition.delivery_complete_count == 0


def test_an_acknowledgement_spans_batches_in_flight() -> None:
    share = Share(batches(3, 10))
    for _ in range(3):
        share.fetch(read=1)
    assert share.ack((5, 24, ACCEPT)) is None
    assert share.written[-1][2] == [
        *[(offset, offset, ACKNOWLEDGED, 1) for offset in range(5, 10)],
        (10, 19, ACKNOWLEDGED, 1),
        *[(offset, offset, ACKNOWLEDGED, 1) for offset in range(20, 25)],
    ]
    assert share.ack((0, 4, ACCEPT)) is None
    assert share.partition.start_offset == 25


def test_a_renewed_lock_has_the_full_duration() -> None:
    share = Share(batches(1, 4), record_lock_duration_ms=100)
    share.fetch()
    share.pass_ms(60)
    assert share.ack((0, 1, RENEW)) is None
    assert share.written == []
    share.pass_ms(40)
    assert share.states == [(0, 1, ACQUIRED, 1), (2, 3, AVAILABLE, 1)]
    share.pass_ms(59)
    assert share.ack((0, 1, ACCEPT)) is None
    assert share.partition.next_expiry_ms() is None


def test_renewals_stay_if_a_later_batch_is_refused() -> None:
    share = Share(batches(1, 4), record_lock_duration_ms=100)
    share.fetch()
    share.now_ms = 50
    assert share.ack((0, 3, RENEW), (4, 4, ACCEPT)) is not None
    assert share.partition.next_expiry_ms() == 150


def test_renewals_can_be_disabled() -> None:
    share = Share(batches(1, 4), renew_acknowledge=False)
    share.fetch()
    assert share.ack((0, 3, RENEW)) == (121, "Renewing acquisition locks is not enabled for the group.")


def test_reaching_the_delivery_limit_archives() -> None:
    share = Share(batches(1, 2), delivery_count_limit=2, record_lock_duration_ms=100)
    share.fetch()
    share.release()
    share.fetch()
    share.pass_ms(100)
    assert share.written[-1] == (0, 2, [(0, 1, ARCHIVED, 2)])
    assert share.partition.start_offset == 2


def by_acknowledgement(share: Share) -> None:
    share.ack((0, 1, RELEASE))


def by_lock(share: Share) -> None:
    share.pass_ms(share.settings.record_lock_duration_ms)


@pytest.mark.parametrize("end", [by_acknowledgement, by_lock, Share.release])
def test_reaching_the_delivery_limit_with_a_dead_letter_queue(end: Callable[[Share], None]) -> None:
    share = Share(batches(1, 2), delivery_count_limit=2, dead_letter_topic="dlq.g")
    share.fetch()
    end(share)
    share.fetch()
    end(share)
    assert share.written[-1] == (0, 0, [(0, 1, ARCHIVING, 2)])
    assert share.changes[-1].dead_letters == [(0, 1, 2, EXCEEDED)]
    assert share.partition.start_offset == 0
    archived = share.partition.archive(share.changes[-1].dead_letters)
    assert archived is not None
    assert share.states == [(0, 1, ARCHIVED, 2)]
    # The records stay archived if the write fails, as in Kafka.
    assert share.partition.roll_back(archived) is True
    assert share.partition.start_offset == 2


def test_gaps_and_accepted_records_are_no_dead_letters() -> None:
    share = Share(batches(1, 4), dead_letter_topic="dlq.g")
    share.fetch()
    assert share.ack((0, 3, [0, 1, 2, 3])) is None
    assert share.changes[-1].dead_letters == [(3, 3, 1, REJECTED)]
    assert share.states == [(2, 2, AVAILABLE, 1), (3, 3, ARCHIVING, 1)]


def test_a_new_leader_sends_dead_letters_again() -> None:
    share = Share(
        batches(1, 10), stored=stored(0, (0, 1, ARCHIVING, 5), (2, 3, ARCHIVING, 1), (4, 9, ARCHIVED, 1))
    )
    assert share.loaded is not None
    assert share.loaded.dead_letters == [(0, 1, 5, EXCEEDED), (2, 3, 1, REJECTED)]
    assert share.partition.delivery_complete_count == 6
    for letter in share.loaded.dead_letters:
        share.write(share.partition.archive([letter]))
    assert [start for start, _, _ in share.written] == [0, 2]
    assert share.partition.start_offset == 10


def test_records_that_were_archived_meanwhile_stay_archived() -> None:
    share = Share(batches(2, 10))
    share.fetch(read=1)
    share.fetch("m2")
    released = share.partition.release("m1", share.settings)
    assert released is not None
    share.partition.advance_start(10)
    share.partition.roll_back(released)
    assert share.ack((10, 19, ACCEPT), member="m2") is None
    assert share.partition.start_offset == 20


def test_a_lock_runs_out_below_the_start_offset_while_a_write_is_pending_that_fails() -> None:
    share = Share(batches(1, 10), record_lock_duration_ms=100)
    share.fetch()
    accepted = share.acknowledge("m1", (0, 9, ACCEPT))
    share.partition.advance_start(5)
    share.pass_ms(100)
    share.partition.roll_back(accepted)
    assert share.states == [(5, 9, AVAILABLE, 1)]
    assert share.fetch() == [(5, 9, 2)]


def test_an_acknowledgement_begins_below_the_start_offset() -> None:
    share = Share(batches(3, 10))
    for member in ("m1", "m2", "m2"):
        share.fetch(member, read=1)
    share.partition.advance_start(10)
    # The first batch is in flight for another member.
    assert share.ack((5, 12, ACCEPT), member="m2") is None
    assert share.ack((0, 9, ACCEPT)) is None
    share.release("m1")
    assert share.partition.start_offset == 13
    # Now it is not in flight any more.
    assert share.ack((0, 29, ACCEPT), member="m2") is None
    assert share.partition.start_offset == 30


def test_release_at_the_end_of_a_session_touches_only_its_member() -> None:
    share = Share(batches(3, 10))
    share.fetch("m1", read=1)
    share.fetch("m2", read=1)
    share.fetch("m1")
    share.ack((0, 3, ACCEPT))
    share.release("m1")
    assert share.written[-1][2] == [
        *[(offset, offset, AVAILABLE, 1) for offset in range(4, 10)],
        (20, 29, AVAILABLE, 1),
    ]
    assert share.partition.release("m1", share.settings) is None
    assert share.fetch("m3") == [(4, 9, 2), (20, 29, 2)]


# -- the start offset -------------------------------------------------------------------------------------------


def test_the_start_offset_waits_for_the_first_record() -> None:
    share = Share(batches(2, 10))
    share.fetch(read=1)
    share.fetch()
    share.ack((5, 19, ACCEPT))
    assert share.partition.start_offset == 0
    share.ack((0, 4, REJECT))
    assert share.partition.start_offset == share.partition.end_offset == 20
    assert share.partition.delivery_complete_count == 0
    assert share.partition.next_fetch_offset() == 20


def test_the_log_start_passes_records_in_flight() -> None:
    share = Share(batches(3, 10))
    for member in ("m1", "m2", "m1"):
        share.fetch(member, read=1)
    share.release("m2")
    share.partition.advance_start(15)
    assert share.states == [
        (0, 9, ACQUIRED, 1),
        (15, 19, AVAILABLE, 1),
        (20, 29, ACQUIRED, 1),
    ]
    assert share.partition.next_fetch_offset() == 15
    # Records below the start offset are ignored, or archived when they are released.
    assert share.ack((0, 9, ACCEPT)) is None
    assert share.written[1:] == []
    share.release("m1")
    assert share.written[-1] == (15, 0, [(0, 9, ARCHIVED, 1), (20, 29, AVAILABLE, 1)])
    assert share.partition.start_offset == 15


def test_the_log_start_passes_all_records_in_flight() -> None:
    share = Share(batches(1, 10))
    share.fetch()
    share.partition.advance_start(50)
    assert (share.partition.start_offset, share.partition.end_offset) == (50, 50)
    assert share.partition.next_fetch_offset() == 50
    share.release()
    assert share.partition.start_offset == 50
    share.partition.advance_start(40)
    assert share.partition.start_offset == 50


def test_the_log_start_is_within_a_new_batch() -> None:
    """With records in flight before it, the whole batch is acquired. What is below the log start ends with its lock."""
    share = Share(batches(2, 10), record_lock_duration_ms=100)
    share.fetch("m1", read=1)
    share.partition.advance_start(14)
    assert share.fetch("m2") == [(10, 19, 1)]
    share.pass_ms(100)
    assert share.partition.next_fetch_offset() == 14
    assert share.fetch("m2") == [(14, 19, 2)]


def test_the_log_start_splits_a_batch() -> None:
    share = Share(batches(1, 10), record_lock_duration_ms=100)
    share.fetch()
    share.partition.advance_start(4)
    share.pass_ms(100)
    assert share.states == [(4, 9, AVAILABLE, 1)]
    assert share.written == [
        (
            4,
            0,
            [(offset, offset, ARCHIVED if offset < 4 else AVAILABLE, 1) for offset in range(10)],
        )
    ]
    assert share.fetch() == [(4, 9, 2)]


def test_compacted_batches_are_archived() -> None:
    share = Share(batches(4, 10))
    for _ in range(4):
        share.fetch(read=1)
    share.release()
    share.log = [(25, 29), (30, 39)]
    assert share.fetch() == [(25, 29, 2), (30, 39, 2)]
    assert share.partition.delivery_complete_count == 25
    assert share.ack((25, 39, ACCEPT)) is None
    assert share.partition.start_offset == 40


def test_offsets_that_compaction_has_removed_are_skipped_or_acquired_within_one_fetch() -> None:
    log = [(0, 9), (20, 29)]
    assert Share(log).fetch() == [(0, 29, 1)]
    share = Share(log)
    assert share.fetch(read=1) == [(0, 9, 1)]
    assert share.fetch() == [(20, 29, 1)]
    assert share.ack((0, 9, ACCEPT)) is None
    assert share.partition.start_offset == 20


def test_a_partition_whose_room_is_used_moves_on_after_compaction() -> None:
    share = Share(batches(2, 100), partition_max_record_locks=100)
    share.fetch()
    share.release()
    share.log = [(100, 199)]
    assert share.fetch() == []
    assert share.fetch() == [(100, 199, 1)]


# -- loading ----------------------------------------------------------------------------------------------------


def test_records_without_a_stored_state_are_acquired() -> None:
    share = Share(batches(4, 10), stored=stored(5, (12, 13, ACKNOWLEDGED, 1), (20, 24, AVAILABLE, 2)))
    assert (share.partition.start_offset, share.partition.end_offset) == (5, 24)
    assert share.fetch() == [(5, 11, 1), (14, 19, 1), (20, 24, 3), (25, 39, 1)]
    assert share.ack((5, 39, ACCEPT)) is not None
    assert share.ack((5, 11, ACCEPT), (14, 39, ACCEPT)) is None
    assert share.partition.start_offset == 40


def test_the_start_offset_does_not_pass_a_gap() -> None:
    share = Share(batches(4, 10), stored=stored(0, (0, 9, AVAILABLE, 1), (20, 29, ACKNOWLEDGED, 1)))
    assert share.fetch(read=1) == [(0, 9, 2)]
    assert share.ack((0, 9, ACCEPT)) is None
    assert share.partition.start_offset == 10
    assert share.partition.next_fetch_offset() == 10
    assert share.fetch(records_max=1) == [(10, 19, 1)]
    assert share.ack((10, 19, ACCEPT)) is None
    assert share.fetch() == [(30, 39, 1)]
    assert share.ack((30, 39, ACCEPT)) is None
    assert share.partition.start_offset == 40


def test_a_gap_is_acquired_in_parts() -> None:
    share = Share(batches(1, 20), stored=stored(0, (15, 19, AVAILABLE, 1)))
    assert share.fetch(records_max=4, record_limit=True) == [(0, 3, 1)]
    assert share.fetch(records_max=4, record_limit=True) == [(4, 7, 1)]
    assert share.fetch() == [(8, 14, 1), (15, 19, 2)]


def test_the_start_offset_follows_what_was_acquired_before_a_gap() -> None:
    states = [(5, 9, AVAILABLE, 1), (10, 19, ACKNOWLEDGED, 1), (25, 29, AVAILABLE, 1)]
    share = Share([(0, 9), (10, 19), (20, 29)], stored=stored(0, *states))
    assert share.fetch(read=1) == [(0, 4, 1), (5, 9, 2)]
    assert share.ack((0, 9, ACCEPT)) is None
    assert share.partition.start_offset == 10
    assert share.fetch() == [(20, 24, 1), (25, 29, 2)]
    assert share.ack((20, 29, ACCEPT)) is None
    assert share.partition.start_offset == 30


def test_a_partition_whose_room_is_used_moves_on_after_the_last_gap() -> None:
    states = stored(0, (10, 99, ACKNOWLEDGED, 1))
    share = Share(batches(20, 10), stored=states, partition_max_record_locks=80)
    assert share.fetch() == [(0, 9, 1)]
    assert share.ack((0, 9, ACCEPT)) is None
    assert share.partition.start_offset == 10
    assert share.fetch(read=1) == [(100, 109, 1)]


def test_a_gap_without_records_is_skipped() -> None:
    share = Share([(20, 29), (30, 39)], stored=stored(10, (20, 29, ACKNOWLEDGED, 1)))
    assert share.fetch(read=1) == []
    assert share.fetch(read=1) == [(30, 39, 1)]


def test_the_log_start_passes_a_gap() -> None:
    share = Share(batches(4, 10), stored=stored(0, (20, 29, ACKNOWLEDGED, 1)))
    share.partition.advance_start(15)
    assert share.partition.next_fetch_offset() == 15
    assert share.fetch() == [(15, 19, 1), (30, 39, 1)]


def test_a_start_offset_that_is_no_offset() -> None:
    share = Share(batches(1, 10), stored=StoredState(start_offset=-5))
    assert share.partition.next_fetch_offset() == -5
    share.partition.advance_start(0)
    assert share.fetch() == [(0, 9, 1)]


def test_states_that_cannot_be_loaded() -> None:
    for states in [(4, 5, AVAILABLE, 1)], [(7, 6, AVAILABLE, 1)]:
        with pytest.raises(ValueError, match="start offset 5"):
            SharePartition().load(stored(5, *states), ShareGroupSettings())


# -- acquiring --------------------------------------------------------------------------------------------------


def test_nothing_is_acquired_below_the_start_offset() -> None:
    share = Share(batches(2, 10), stored=StoredState(start_offset=13))
    acquired = share.partition.acquire("m1", Fetched(0, [(0, 9)]), Limits(10, 10), share.settings, 0)
    assert acquired == []
    assert share.fetch() == [(13, 19, 1)]


def test_a_record_limit_holds_over_batches_in_flight() -> None:
    share = Share(batches(3, 10))
    for _ in range(3):
        share.fetch(read=1)
    share.release()
    assert share.fetch(records_max=15, record_limit=True) == [(0, 9, 2), (10, 14, 2)]
    assert share.fetch(records_max=15, record_limit=True) == [(15, 19, 2), (20, 29, 2)]


def test_the_budget_is_exceeded_by_one_batch_in_flight() -> None:
    share = Share(batches(3, 10))
    for _ in range(3):
        share.fetch(read=1)
    share.release()
    assert share.fetch(records_max=15) == [(0, 9, 2), (10, 19, 2)]


def test_a_throttled_batch_is_not_mixed_with_earlier_ones() -> None:
    share = Share(batches(2, 4), delivery_count_limit=4)
    share.fetch(read=1)
    share.fetch("m2")
    for _ in range(2):
        share.release("m2")
        share.fetch("m2")
    share.release("m1")
    share.release("m2")
    assert share.fetch() == [(0, 3, 2)]
    assert share.fetch() == [(4, 4, 4)]


def test_a_lower_limit_delivers_once_more() -> None:
    share = Share(batches(1, 6))
    for _ in range(3):
        share.fetch()
        share.release()
    share.settings = ShareGroupSettings(delivery_count_limit=2)
    assert share.fetch() == [(0, 0, 4)]
    share.release()
    assert share.written[-1][2] == [(0, 0, ARCHIVED, 4)]


def test_a_limit_of_two_is_not_throttled() -> None:
    share = Share(batches(1, 6), delivery_count_limit=2)
    share.fetch()
    share.ack((0, 1, ACCEPT))
    share.release()
    assert share.fetch() == [(2, 5, 2)]


def test_aborted_records_between_ranges() -> None:
    share = Share([(0, 4), (5, 6), (7, 7), (8, 9), (10, 12)])
    assert share.fetch(batch_size=1, aborted=[(5, 6), (8, 9)]) == [(0, 4, 1), (7, 7, 1), (10, 12, 1)]
    assert [state[:3] for state in share.states if state[2] == ARCHIVED] == [
        (5, 6, ARCHIVED),
        (8, 9, ARCHIVED),
    ]
    assert share.partition.delivery_complete_count == 4
    assert share.written == []
    aborted = Share([(0, 4)])
    assert aborted.fetch(aborted=[(0, 4)]) == []
    assert aborted.partition.next_expiry_ms() is None


# -- views and costs --------------------------------------------------------------------------------------------


def test_views() -> None:
    share = Share(batches(2, 10), record_lock_duration_ms=100)
    share.fetch(read=1)
    share.ack((2, 3, GAP))
    pending = share.acknowledge("m1", (4, 4, ACCEPT))
    assert list(share.partition.in_flight()) == [
        InFlight(0, 1, ACQUIRED, 1, "m1", 100, False),
        InFlight(2, 3, ARCHIVED, 1, "", None, False, "m1", Ending.GAP),
        InFlight(4, 4, ACKNOWLEDGED, 1, "m1", 100, True, "", Ending.ACCEPTED),
        InFlight(5, 9, ACQUIRED, 1, "m1", 100, False),
    ]
    assert share.partition.describe(5) == InFlight(5, 5, ACQUIRED, 1, "m1", 100, False)
    assert share.partition.describe(10) is None
    share.partition.roll_back(pending)


def test_views_name_the_last_member_and_why_it_has_the_records_no_longer() -> None:
    share = Share(batches(5, 2), stored=stored(0, (8, 9, AVAILABLE, 1)), record_lock_duration_ms=100)
    share.fetch("m1", read=2)
    share.ack((0, 0, RELEASE), (1, 1, REJECT))
    share.release("m1")
    share.fetch("m2", read=3)
    share.pass_ms(100)
    seen = [(each.first_offset, each.last_offset, *each[7:]) for each in share.partition.in_flight()]
    assert seen == [
        (0, 0, "m2", Ending.LOCK_EXPIRED),
        (1, 1, "m1", Ending.REJECTED),
        (2, 3, "m2", Ending.LOCK_EXPIRED),
        (4, 5, "m2", Ending.LOCK_EXPIRED),
        (8, 9, "", None),
    ]
    assert share.partition.lock_timeouts == 5
    share.fetch("m3")
    share.release("m3")
    assert {each[7:] for each in share.partition.in_flight()} == {
        ("m3", Ending.SESSION_ENDED),
        ("m1", Ending.REJECTED),
    }


def calls_of_one_step(records: int, members: int) -> int:
    """Number of calls for a fetch, an acknowledgement, a redelivery, a released session and a lock that runs out."""
    share = Share(batches(records // 100 + 4, 100), partition_max_record_locks=1_000_000)
    for index in range(records // 100):
        share.now_ms += 1
        share.fetch(f"m{index % members}", 100)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    partition, settings, limits = share.partition, share.settings, Limits(100, 100)
    acknowledged = [Acknowledged(200, 209, [1]), Acknowledged(220, 229, [2])]
    sys.setprofile(count)
    partition.can_acquire(1_000_000)
    partition.acquire("m", Fetched(records, [(records, records + 99)]), limits, settings, 1)
    partition.commit(partition.acknowledge("m2", acknowledged, settings, 1))
    partition.acquire("m", Fetched(partition.next_fetch_offset(), [(200, 299)]), limits, settings, 1)
    released = partition.release("m", settings)
    assert released is not None
    partition.commit(released)
    partition.next_expiry_ms()
    expired = partition.expire(settings.record_lock_duration_ms + 1, settings)
    assert expired is not None
    partition.commit(expired)
    sys.setprofile(None)
    return calls


def test_costs_do_not_depend_on_the_number_of_records_and_members() -> None:
    assert calls_of_one_step(100_000, 500) <= calls_of_one_step(1_000, 10) + 10


def test_locks_that_nothing_holds_are_forgotten() -> None:
    share = Share(batches(1, 1_000))
    share.fetch()
    for _ in range(1_000):
        share.ack((0, 9, RENEW))
    assert len(share.partition.locks._heap) < 200


def test_refusals_are_errors_with_kafkas_text() -> None:
    with pytest.raises(Refused, match="Batch record not found"):
        Share([]).acknowledge("m1", (0, 0, ACCEPT))
