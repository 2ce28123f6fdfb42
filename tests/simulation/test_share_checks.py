"""Tests of the checks of share groups: each violation is found."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.share.partition import Acquired, Change
from broker.share.state import RecordState, StateBatch, StoredState
from tests.simulation.ledger import Broken
from tests.simulation.share_ledger import Delivery, Place, ShareLedger
from tests.simulation.share_watch import Model

PLACE = Place("orders", UUID(int=1), 0)
ACCEPTED, AVAILABLE = RecordState.ACKNOWLEDGED, RecordState.AVAILABLE


@pytest.fixture
def ledger() -> ShareLedger:
    return ShareLedger("group", delivery_count_limit=2, lock_ms=1_000, dead_letter_topic="dlq")


@pytest.fixture
def model() -> Model:
    return Model("share partition")


def delivery(ledger: ShareLedger, count: int = 1) -> Delivery:
    return Delivery(count, ledger.next_request(), 0, is_control=False)


def change(state: RecordState, *offsets: int) -> Change:
    return Change([StateBatch(offset, offset, state, 1) for offset in offsets])


def test_a_record_is_not_delivered_again_after_it_was_accepted(ledger: ShareLedger):
    sent_before = delivery(ledger)
    ledger.accepted(PLACE, [3])
    ledger.delivered(PLACE, 3, sent_before)  # its request was sent before the response
    with pytest.raises(Broken, match="3 is delivered again"):
        ledger.delivered(PLACE, 3, delivery(ledger))


def test_the_delivery_count_has_a_limit(ledger: ShareLedger):
    ledger.delivered(PLACE, 3, delivery(ledger, 2))
    with pytest.raises(Broken, match="count 3, the limit is 2"):
        ledger.delivered(PLACE, 3, delivery(ledger, 3))


def test_no_record_is_skipped(ledger: ShareLedger):
    known = ledger.at(PLACE)
    known.maybe_accepted.add(0)
    known.maybe_rejected.add(1)
    known.acquired[2] = 2
    ledger.check(PLACE, StoredState(start_offset=3), range(5), ())
    with pytest.raises(Broken, match="3 is skipped"):
        ledger.check(PLACE, StoredState(start_offset=4), range(5), ())


def test_an_accepted_record_stays_acknowledged(ledger: ShareLedger):
    ledger.at(PLACE).maybe_accepted.add(1)
    ledger.accepted(PLACE, [1])
    ledger.check(PLACE, StoredState(start_offset=0, batches=[StateBatch(1, 1, ACCEPTED, 1)]), [1], ())
    with pytest.raises(Broken, match="1 was accepted, and its state is"):
        ledger.check(PLACE, StoredState(start_offset=0, batches=[StateBatch(1, 1, AVAILABLE, 1)]), [1], ())
    with pytest.raises(Broken, match="2 is acknowledged, but nobody"):
        ledger.check(PLACE, StoredState(start_offset=0, batches=[StateBatch(2, 2, ACCEPTED, 1)]), [2], ())


def test_no_record_of_an_aborted_transaction_is_delivered(ledger: ShareLedger):
    ledger.delivered(PLACE, 7, delivery(ledger))
    with pytest.raises(Broken, match="aborted transactions"):
        ledger.check(PLACE, StoredState(), [], [7])


def test_a_rejected_record_is_in_the_dead_letter_queue_and_no_other_is(ledger: ShareLedger):
    known = ledger.at(PLACE)
    known.rejected.update((1, 2))
    known.maybe_rejected.update((1, 2))
    known.not_in_queue.add(2)
    known.acquired[3] = 2
    ledger.check_dead_letters(PLACE, {1, 3})
    with pytest.raises(Broken, match=r"not in the dead-letter queue: \[1\]"):
        ledger.check_dead_letters(PLACE, set())
    with pytest.raises(Broken, match="4 is in the dead-letter queue"):
        ledger.check_dead_letters(PLACE, {1, 4})


def test_a_group_may_pass_records_that_were_deleted(ledger: ShareLedger):
    known = ledger.at(PLACE)
    known.log_start = 2
    known.rejected.update((1, 2))
    known.maybe_rejected.update((1, 2))
    known.maybe_accepted.add(1)
    ledger.accepted(PLACE, [1])
    ledger.delivered(PLACE, 1, delivery(ledger))
    ledger.check(PLACE, StoredState(start_offset=0), range(2), ())
    ledger.check(PLACE, StoredState(start_offset=2), range(3), ())
    ledger.check_dead_letters(PLACE, {2})
    with pytest.raises(Broken, match="3 is skipped"):
        ledger.check(PLACE, StoredState(start_offset=4), range(4), ())
    with pytest.raises(Broken, match=r"not in the dead-letter queue: \[2\]"):
        ledger.check_dead_letters(PLACE, set())


def test_a_record_has_one_lock(model: Model):
    model.acquire("one", [Acquired(0, 1, 1)], 0, 100, 5)
    model.acquire("two", [Acquired(1, 1, 2)], 100, 200, 5)
    with pytest.raises(Broken, match="1 is acquired by one, and locked by"):
        model.acquire("one", [Acquired(1, 1, 3)], 199, 300, 5)


def test_a_record_is_not_acquired_while_it_is_written_nor_afterwards(model: Model):
    model.acquire("one", [Acquired(0, 1, 1)], 0, 100, 5)
    accepts, releases = change(ACCEPTED, 0), change(AVAILABLE, 1)
    for each in (accepts, releases):
        model.begin("one", each)
    with pytest.raises(Broken, match="1 is acquired, but"):
        model.acquire("two", [Acquired(1, 1, 2)], 1, 100, 5)
    for each in (accepts, releases):
        model.commit(each, 0)
    model.acquire("two", [Acquired(1, 1, 2)], 2, 100, 5)
    with pytest.raises(Broken, match="0 is acquired, but"):
        model.acquire("two", [Acquired(0, 0, 2)], 3, 100, 5)


def test_a_failed_write_leaves_the_lock(model: Model):
    model.acquire("one", [Acquired(0, 0, 1)], 0, 100, 5)
    fails = change(ACCEPTED, 0)
    model.begin("one", fails)
    model.roll_back(fails, 50)
    with pytest.raises(Broken, match="locked by"):
        model.acquire("two", [Acquired(0, 0, 2)], 60, 160, 5)


def test_locks_end_neither_early_nor_late(model: Model):
    model.acquire("one", [Acquired(0, 1, 1)], 0, 100, 5)
    model.expire(change(AVAILABLE, 0), 100)
    with pytest.raises(Broken, match="too early"):
        model.expire(change(AVAILABLE, 1), 99)
    model.acquire("one", [Acquired(0, 0, 2)], 100, 200, 5)
    model.look(0, 201)
    with pytest.raises(Broken, match="have not ended"):
        model.look(0, 202)
    with pytest.raises(Broken, match="start offset goes back"):
        Model.look(model, -1, 0)


def test_the_delivery_count_rises_by_one(model: Model):
    model.acquire("one", [Acquired(0, 0, 2)], 0, 10, 5)
    with pytest.raises(Broken, match="delivery count 4 after 2"):
        model.acquire("one", [Acquired(0, 0, 4)], 10, 20, 5)


def test_a_member_acknowledges_only_its_records(model: Model):
    model.acquire("one", [Acquired(0, 0, 1)], 0, 100, 5)
    with pytest.raises(Broken, match="two has acknowledged 0, which is locked by"):
        model.begin("two", change(ACCEPTED, 0))


def test_the_start_offset_waits_for_what_is_being_written(model: Model):
    model.acquire("one", [Acquired(0, 1, 1)], 0, 100, 5)
    model.begin("one", change(ACCEPTED, 0, 1))
    model.commit(change(ACCEPTED, 0), 1)
    with pytest.raises(Broken, match=r"has passed \[1\]"):
        model.commit(change(ACCEPTED, 0), 2)
