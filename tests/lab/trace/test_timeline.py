"""Timelines of synthetic logs: which events belong to which transaction, and in which order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.injection.happenings import Happening
from broker.transactions.transaction import TransactionState
from lab.trace.exchange import Exchange, Outcome, TransactionFacts
from lab.trace.timeline import assemble
from lab.trace.timeline_records import (
    BatchWritten,
    CommittedOffset,
    MarkerWritten,
    Scanned,
    StateRecord,
)
from lab.trace.timeline_view import Timeline
from protocol.records.transaction_log import TransactionLogValue, TransactionPartitions
from tests.lab.trace.test_pcap import exchange

STATES = "__transaction_state"
NOW_MS = 1_700_000_000_000
ORDERS_0, ORDERS_1, OFFSETS = ("orders", 0), ("orders", 1), ("__consumer_offsets", 3)


class Story:
    """The logs of a small cluster, written event by event. Each event is a millisecond after the one before."""

    def __init__(self, producer_id: int = 7, epoch: int = 0) -> None:
        self.now_ms = NOW_MS
        self.producer_id, self.epoch = producer_id, epoch
        self.states: list[StateRecord] = []
        self.written: list[BatchWritten | MarkerWritten] = []
        self.exchanges: list[Exchange] = []
        self.happenings: list[Happening] = []
        self._ends: dict[tuple[str, int], int] = {}
        self._sequences: dict[tuple[str, int], int] = {}

    def wait(self, delay_ms: int = 1) -> Story:
        self.now_ms += delay_ms
        return self

    def state(
        self, state: TransactionState, *partitions: tuple[str, int], producer_id: int | None = None
    ) -> Story:
        value = TransactionLogValue(
            producer_id=self.producer_id if producer_id is None else producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=self.epoch,
            transaction_timeout_ms=60_000,
            transaction_status=state,
            transaction_partitions=[
                TransactionPartitions(topic=topic, partition_ids=[index]) for topic, index in partitions
            ],
        )
        return self._append(value)

    def forgotten(self) -> Story:
        return self._append(None)

    def _append(self, value: TransactionLogValue | None) -> Story:
        self.states.append(StateRecord(1, STATES, 4, len(self.states), self.now_ms, value))
        return self.wait()

    def batch(
        self, place: tuple[str, int], *, time_ms: int | None = None, offsets: tuple[CommittedOffset, ...] = ()
    ) -> Story:
        offset, sequence = self._ends.get(place, 0), self._sequences.get(place, 0)
        self._ends[place], self._sequences[place] = offset + 1, sequence + 1
        at_ms = self.now_ms if time_ms is None else time_ms
        self.written.append(
            BatchWritten(
                2,
                *place,
                offset,
                offset,
                self.producer_id,
                self.epoch,
                sequence,
                sequence,
                1,
                80,
                at_ms,
                0,
                True,
                offsets,
            )
        )
        return self.wait()

    def marker(self, place: tuple[str, int], *, committed: bool, epoch: int | None = None) -> Story:
        offset = self._ends.get(place, 0)
        self._ends[place] = offset + 1
        epoch = self.epoch if epoch is None else epoch
        self.written.append(
            MarkerWritten(2, *place, offset, self.producer_id, epoch, committed, 9, self.now_ms, 0)
        )
        return self.wait()

    def asks(self, api_key: int, outcome: Outcome = Outcome.ANSWERED) -> Story:
        made = exchange(len(self.exchanges) + 1, b"", None, api_key=api_key, outcome=outcome)
        made.arrived_ms, made.answered_ms = self.now_ms, self.now_ms + 2
        made.request_summary, made.answer_summary = "", "ok"
        made.transactions = (TransactionFacts("tx", self.producer_id, self.epoch),)
        self.exchanges.append(made)
        return self

    def commit(self, *places: tuple[str, int]) -> Story:
        self.state(TransactionState.ONGOING, *places)
        for place in places:
            self.batch(place)
        self.state(TransactionState.PREPARE_COMMIT, *places)
        for place in places:
            self.marker(place, committed=True)
        return self.state(TransactionState.COMPLETE_COMMIT)

    def hit(self, at: str, *ids: str) -> Story:
        self.happenings.append(Happening(self.now_ms, "rule", 2, f"hit by {at}", frozenset(ids), at=at))
        return self

    def told(self, sent: dict[int, Any] | None = None) -> Timeline:
        by_partition = sorted(self.written, key=lambda each: (each.topic, each.partition))
        assembled = assemble(
            "tx", self.states, by_partition, self.exchanges, sent, happenings=self.happenings
        )
        return Timeline(assembled)

    def brief(self, sent: dict[int, Any] | None = None) -> list[str]:
        """The events as text, such as `2 Ongoing`, `2 orders-0@3`, `2 COMMIT orders-0@4` or `- EndTxn`.

        Each begins with the number of its transaction, or `-` if it has none.
        """
        found = []
        for event in self.told(sent).to_json()["events"]:
            number = event["transaction"] or "-"
            place = f"{event.get('topic')}-{event.get('partition')}@{event.get('offset')}"
            match event["kind"]:
                case "state":
                    found.append(f"{number} {event['state'] or 'forgotten'}")
                case "batch":
                    found.append(f"{number} {place}")
                case "marker":
                    found.append(f"{number} {event['marker']} {place}")
                case "exchange":
                    found.append(f"{number} {event['api']}")
                case "rule":
                    found.append(f"{number} {event['text']}")
        return found

    def verdicts(self) -> list[str]:
        return [each["verdict"] for each in self.told().to_json()["transactions"]]


def test_transactions_of_one_epoch_are_told_apart_by_their_markers() -> None:
    story = Story().state(TransactionState.EMPTY).commit(ORDERS_0, ORDERS_1).commit(ORDERS_0)
    assert story.brief() == [
        "- Empty",
        "1 Ongoing",
        "1 orders-0@0",
        "1 orders-1@0",
        "1 PrepareCommit",
        "1 COMMIT orders-0@1",
        "1 COMMIT orders-1@1",
        "1 CompleteCommit",
        "2 Ongoing",
        "2 orders-0@2",
        "2 PrepareCommit",
        "2 COMMIT orders-0@3",
        "2 CompleteCommit",
    ]
    assert story.verdicts() == ["committed", "committed"]


def test_all_of_it_in_one_millisecond_keeps_the_order_that_must_be() -> None:
    story = Story()
    story.wait = lambda delay_ms=1: story
    story.commit(ORDERS_0, ORDERS_1).commit(ORDERS_0).commit(ORDERS_1)
    assert [each for each in story.brief() if each.startswith("1")] == [
        "1 Ongoing",
        "1 orders-0@0",
        "1 orders-1@0",
        "1 PrepareCommit",
        "1 COMMIT orders-0@1",
        "1 COMMIT orders-1@1",
        "1 CompleteCommit",
    ]
    assert [each for each in story.brief() if "orders-1" in each] == [
        "1 orders-1@0",
        "1 COMMIT orders-1@1",
        "3 orders-1@2",
        "3 COMMIT orders-1@3",
    ]


@pytest.mark.parametrize("client_ms", [-1, 0, NOW_MS + 10**9, 2**63 - 1, -(2**63)])
def test_a_client_s_clock_moves_no_batch_out_of_its_transaction(client_ms: int) -> None:
    story = (
        Story().state(TransactionState.ONGOING, ORDERS_0).batch(ORDERS_0, time_ms=client_ms).batch(ORDERS_0)
    )
    story.state(TransactionState.PREPARE_ABORT, ORDERS_0).marker(ORDERS_0, committed=False).state(
        TransactionState.COMPLETE_ABORT
    )
    assert story.brief() == [
        "1 Ongoing",
        "1 orders-0@0",
        "1 orders-0@1",
        "1 PrepareAbort",
        "1 ABORT orders-0@2",
        "1 CompleteAbort",
    ]
    assert "1 record, sequence 0, pid 7/0" in story.told().to_text()


TWO_COMMITS = [
    "1 Ongoing",
    "1 orders-0@0",
    "1 PrepareCommit",
    "1 COMMIT orders-0@1",
    "1 CompleteCommit",
    "2 Ongoing",
    "2 orders-0@2",
    "2 PrepareCommit",
    "2 COMMIT orders-0@3",
    "2 CompleteCommit",
]


@pytest.mark.parametrize("skew_ms", [-300_000, -3, 0, 3, 300_000])
def test_a_coordinator_whose_clock_differs_from_the_leader_s_tears_no_transaction_apart(skew_ms: int) -> None:
    story = Story().commit(ORDERS_0).commit(ORDERS_0)
    story.states = [replace(each, time_ms=each.time_ms + skew_ms) for each in story.states]
    assert story.brief() == TWO_COMMITS
    assert story.verdicts() == ["committed", "committed"]


@pytest.mark.parametrize("skews_ms", [(300_000, 0, 0), (0, -300_000, -300_000), (300_000, -300_000, 0)])
def test_states_keep_the_order_of_their_log_where_the_next_coordinator_is_behind(
    skews_ms: tuple[int, int, int],
) -> None:
    story = Story().commit(ORDERS_0)
    story.states = [
        replace(each, time_ms=each.time_ms + skew_ms)
        for each, skew_ms in zip(story.states, skews_ms, strict=True)
    ]
    assert story.brief() == TWO_COMMITS[:5]
    assert [each["time_ms"] for each in story.told().to_json()["events"] if each["kind"] == "state"] == [
        each.time_ms for each in story.states
    ], "each state has the time of its record"


def test_each_state_names_the_partitions_that_have_joined_since() -> None:
    story = (
        Story()
        .state(TransactionState.ONGOING, ORDERS_0)
        .state(TransactionState.ONGOING, ORDERS_0, ORDERS_1, OFFSETS)
    )
    joined = [event["joined"] for event in story.told().to_json()["events"]]
    assert joined == [["orders-0"], ["__consumer_offsets-3", "orders-1"]]
    assert story.verdicts() == ["open"]


@pytest.mark.parametrize(
    ("state", "verdict"),
    [(TransactionState.PREPARE_COMMIT, "committing"), (TransactionState.PREPARE_ABORT, "aborting")],
)
def test_a_decision_without_all_its_markers_is_told_as_under_way(
    state: TransactionState, verdict: str
) -> None:
    story = Story().state(TransactionState.ONGOING, ORDERS_0, ORDERS_1).batch(ORDERS_0).batch(ORDERS_1)
    story.state(state, ORDERS_0, ORDERS_1).marker(
        ORDERS_0, committed=state is TransactionState.PREPARE_COMMIT
    )
    assert story.verdicts() == [verdict]
    assert (
        story.brief()[-1]
        == f"1 {'COMMIT' if state is TransactionState.PREPARE_COMMIT else 'ABORT'} orders-0@1"
    )
    assert "1 orders-1@0" in story.brief()


def test_a_batch_that_comes_after_the_marker_belongs_to_no_transaction() -> None:
    """A late batch of the old protocol, appended after the marker, opens a transaction that no producer ends: a hanging
    transaction."""
    story = Story().commit(ORDERS_0).wait(100).batch(ORDERS_0)
    assert story.brief()[-1] == "- orders-0@2"
    assert "of no transaction that is known" in story.told().to_text().splitlines()[-1]


def test_a_marker_that_comes_after_all_was_complete_belongs_to_none() -> None:
    story = Story().commit(ORDERS_0).marker(ORDERS_0, committed=False)
    assert story.brief()[-1] == "- ABORT orders-0@2"
    assert story.verdicts() == ["committed"]


def test_a_marker_written_twice_counts_once_for_its_transaction() -> None:
    story = (
        Story()
        .state(TransactionState.ONGOING, ORDERS_0)
        .batch(ORDERS_0)
        .state(TransactionState.PREPARE_COMMIT, ORDERS_0)
    )
    story.marker(ORDERS_0, committed=True).marker(ORDERS_0, committed=True).state(
        TransactionState.COMPLETE_COMMIT
    )
    assert story.brief()[3:] == ["1 COMMIT orders-0@1", "1 COMMIT orders-0@2", "1 CompleteCommit"]


def test_what_compaction_has_left_of_the_states_still_holds_the_batches() -> None:
    story = Story().commit(ORDERS_0)
    story.states = story.states[-1:]
    assert story.brief() == ["1 orders-0@0", "1 COMMIT orders-0@1", "1 CompleteCommit"]
    assert story.verdicts() == ["committed"]


def test_a_fenced_producer_s_batches_are_not_the_next_one_s() -> None:
    story = (
        Story()
        .state(TransactionState.ONGOING, ORDERS_0)
        .batch(ORDERS_0)
        .state(TransactionState.PREPARE_ABORT, ORDERS_0)
    )
    story.marker(ORDERS_0, committed=False, epoch=1).state(TransactionState.COMPLETE_ABORT)
    story.epoch = 1
    story.state(TransactionState.EMPTY).state(TransactionState.ONGOING, ORDERS_0)
    story.epoch = 0
    story.batch(ORDERS_0)
    assert story.brief()[-2:] == ["2 Ongoing", "- orders-0@2"]


def test_an_expired_id_begins_again() -> None:
    story = Story().commit(ORDERS_0).forgotten()
    story.producer_id = 8
    story.state(TransactionState.EMPTY).commit(ORDERS_0)
    assert story.brief()[5:] == [
        "- forgotten",
        "- Empty",
        "2 Ongoing",
        "2 orders-0@2",
        "2 PrepareCommit",
        "2 COMMIT orders-0@3",
        "2 CompleteCommit",
    ]


def test_the_last_epoch_of_a_producer_id_ends_under_the_old_id() -> None:
    """A transaction in the last epoch of a producer id ends under that id, although the Complete state already has the next
    producer id (KIP-360)."""
    story = Story(epoch=32766).state(TransactionState.ONGOING, ORDERS_0).batch(ORDERS_0)
    story.state(TransactionState.PREPARE_COMMIT, ORDERS_0).marker(ORDERS_0, committed=True, epoch=32767)
    story.state(TransactionState.COMPLETE_COMMIT, producer_id=8)
    assert story.brief()[-2:] == ["1 COMMIT orders-0@1", "1 CompleteCommit"]


# -- with exchanges -------------------------------------------------------------------------------------------------

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN, FIND_COORDINATOR = 0, 22, 24, 26, 10


def test_a_request_stands_before_what_came_of_it() -> None:
    story = (
        Story()
        .asks(INIT_PRODUCER_ID)
        .state(TransactionState.EMPTY)
        .asks(ADD_PARTITIONS)
        .state(TransactionState.ONGOING, ORDERS_0)
    )
    story.asks(PRODUCE).batch(ORDERS_0).asks(END_TXN).state(TransactionState.PREPARE_COMMIT, ORDERS_0)
    story.marker(ORDERS_0, committed=True).state(TransactionState.COMPLETE_COMMIT)
    assert story.brief() == [
        "- InitProducerId",
        "- Empty",
        "1 AddPartitionsToTxn",
        "1 Ongoing",
        "1 Produce",
        "1 orders-0@0",
        "1 EndTxn",
        "1 PrepareCommit",
        "1 COMMIT orders-0@1",
        "1 CompleteCommit",
    ]


def test_a_retry_that_changed_nothing_stands_where_its_time_is() -> None:
    story = Story().commit(ORDERS_0).wait(10).asks(END_TXN, Outcome.ANSWER_LOST).asks(END_TXN)
    assert story.brief()[-2:] == ["- EndTxn", "- EndTxn"]
    assert "ANSWER LOST" in story.told().to_text()


def test_what_a_request_brought_tells_when_a_batch_came() -> None:
    story = Story().state(TransactionState.ONGOING, ORDERS_0).batch(ORDERS_0, time_ms=NOW_MS - 5000).wait(10)
    story.asks(ADD_PARTITIONS).state(TransactionState.ONGOING, ORDERS_0, ORDERS_1)
    story.asks(PRODUCE).batch(ORDERS_1, time_ms=NOW_MS - 5000)
    sent = {2: {("orders", 1, 7, 0, 0)}}
    assert story.brief(sent)[2:] == ["1 AddPartitionsToTxn", "1 Ongoing", "1 Produce", "1 orders-1@0"]


def test_a_produce_lets_its_own_partitions_join() -> None:
    story = Story().asks(PRODUCE).state(TransactionState.ONGOING, ORDERS_0).batch(ORDERS_0)
    assert story.brief({1: {("orders", 0, 7, 0, 0)}})[:2] == ["1 Produce", "1 Ongoing"]
    assert story.brief({1: {("orders", 1, 7, 0, 0)}})[1] != "1 Ongoing"


# -- text and JSON --------------------------------------------------------------------------------------------------


def test_the_table_for_people() -> None:
    story = (
        Story()
        .state(TransactionState.EMPTY)
        .state(TransactionState.ONGOING, ORDERS_0, OFFSETS)
        .batch(ORDERS_0)
    )
    story.batch(OFFSETS, offsets=(CommittedOffset("readers", "input", 0, 42),))
    story.state(TransactionState.PREPARE_COMMIT, ORDERS_0, OFFSETS).marker(ORDERS_0, committed=True)
    story.marker(OFFSETS, committed=True).state(TransactionState.COMPLETE_COMMIT)
    assert story.told().to_text().splitlines() == [
        "transactional id tx",
        "  transaction 1: committed, 1 record, __consumer_offsets-3, orders-0",
        "",
        "TIME (UTC)    TX  NODE  WHERE                     WHAT",
        "22:13:20.000      1     __transaction_state-4 @0  Empty pid 7/0, times out after 60000 ms",
        "22:13:20.001  1   1     __transaction_state-4 @1  Ongoing pid 7/0 +__consumer_offsets-3 +orders-0",
        "22:13:20.002  1   2     orders-0 @0               1 record, sequence 0, pid 7/0",
        "22:13:20.003  1   2     __consumer_offsets-3 @0   offsets of readers: input-0 -> 42, pid 7/0",
        "22:13:20.004  1   1     __transaction_state-4 @2  PrepareCommit pid 7/0",
        "22:13:20.005  1   2     orders-0 @1               COMMIT marker of pid 7/0, coordinator epoch 9",
        "22:13:20.006  1   2     __consumer_offsets-3 @1   COMMIT marker of pid 7/0, coordinator epoch 9",
        "22:13:20.007  1   1     __transaction_state-4 @3  CompleteCommit pid 7/0",
    ]


def test_a_hit_of_a_rule_stands_behind_what_leads_to_it_in_the_same_millisecond() -> None:
    story = Story().state(TransactionState.ONGOING, ORDERS_0, ORDERS_1).wait(-1).hit("Produce", "tx")
    story.batch(ORDERS_0).wait(-1).batch(ORDERS_1).wait(-1).asks(END_TXN).hit("EndTxn", "tx")
    story.hit("txn.prepare.append", "tx").state(TransactionState.PREPARE_COMMIT, ORDERS_0, ORDERS_1)
    # All events have the same millisecond. That the second marker was held is known from the hit.
    story.wait(-1).hit("txn.marker", "tx").marker(ORDERS_0, committed=True).wait(-1).hit("txn.marker", "tx")
    story.marker(ORDERS_1, committed=True).wait(-1).hit("txn.complete.append", "tx").hit("log.write")
    assert story.state(TransactionState.COMPLETE_COMMIT).brief() == [
        "- hit by Produce",
        "1 Ongoing",
        "1 orders-0@0",
        "1 orders-1@0",
        "1 EndTxn",
        "1 hit by EndTxn",
        "1 hit by txn.prepare.append",
        "1 PrepareCommit",
        "1 hit by txn.marker",
        "1 hit by txn.marker",
        "1 COMMIT orders-0@1",
        "1 COMMIT orders-1@1",
        "1 hit by txn.complete.append",
        "- hit by log.write",
        "1 CompleteCommit",
    ]


def test_a_hit_is_of_no_transaction_while_none_is_open() -> None:
    story = Story().commit(ORDERS_0).hit("AddPartitionsToTxn", "tx").wait().commit(ORDERS_0)
    assert "- hit by AddPartitionsToTxn" in story.brief()
    # The marker of a decision before this millisecond.
    story = Story().state(TransactionState.ONGOING, ORDERS_0).state(TransactionState.PREPARE_ABORT, ORDERS_0)
    story.hit("txn.marker", "tx").marker(ORDERS_0, committed=False)
    assert story.brief()[-3:] == ["1 PrepareAbort", "1 hit by txn.marker", "1 ABORT orders-0@0"]


def test_the_timeline_lists_the_parts_of_logs_that_were_not_read() -> None:
    scanned = [Scanned("orders", 0, 1, 5000, 6000, is_whole=False)]
    assembled = assemble("tx", Story().state(TransactionState.EMPTY).states, [], scanned=scanned)
    told = Timeline(assembled)
    assert told.to_json()["scanned"][0]["is_whole"] is False
    assert told.to_text().splitlines()[-1] == (
        "orders-0 was read from offset 5000 on: there may be more before it"
    )
