"""`Reader` on logs with missing offsets, as compaction leaves them: it stops at the end of the readable part."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.batch import RecordBatch, parse_end_txn_marker
from protocol.batch import batches as parsed
from protocol.messages.fetch import AbortedTransaction, PartitionData
from tools.client.fetching import Reader
from tools.client.offsets import EARLIEST, READ_COMMITTED, READ_UNCOMMITTED
from tools.commands.consume import read
from tools.crafting import batches, words

FETCHES_MAX = 20


class CraftedLeader:
    """The leader of one partition with a crafted log. The leader responds as Apache Kafka does, but never waits for more
    bytes."""

    def __init__(self, text: str) -> None:
        made = list(batches(words(text), 0))
        self.log: list[RecordBatch] = [each for word in made for each in parsed(word.data)]
        self.end = made[-1].last_offset + 1
        markers = {each.producer_id: parse_end_txn_marker(each) for each in self.log if each.is_control}
        firsts = {
            each.producer_id: each.base_offset
            for each in self.log
            if each.is_transactional and not each.is_control
        }
        self.stable = min([at for producer, at in firsts.items() if producer not in markers] + [self.end])
        self.aborted = [
            AbortedTransaction(producer_id=producer, first_offset=firsts[producer])
            for producer, marker in markers.items()
            if marker is not None and not marker.committed
        ]
        self.fetches: list[int] = []

    def retrying(self, function: Callable[[], Any]) -> Any:
        return function()

    def ask_leader(
        self, topic: str, partition: int, api: str, request: Any, highest: int | None = None
    ) -> Any:
        committed = request.isolation_level == READ_COMMITTED
        end = self.stable if committed else self.end
        if api == "list_offsets":
            at = 0 if request.topics[0].partitions[0].timestamp == EARLIEST else end
            return _one(SimpleNamespace(error_code=0, offset=at))
        offset = request.topics[0].partitions[0].fetch_offset
        self.fetches.append(offset)
        assert len(self.fetches) <= FETCHES_MAX, self.fetches
        found = [each for each in self.log if each.next_offset > offset and each.base_offset < end]
        data = PartitionData(
            partition_index=0,
            high_watermark=self.end,
            last_stable_offset=self.stable,
            aborted_transactions=self.aborted if committed else None,
            records=b"".join(bytes(each.data) for each in found),
        )
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[data])])


def _one(partition: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])])


LOGS = [
    "commit 2, abort 1, gap 3, open 1",
    "plain 2, gap 3, open 2, plain 2",
    "gap 2, open 1",
    "plain 2, gap 3",
    "commit 1, gap 1, abort 1, gap 3",
]


@pytest.mark.parametrize("text", LOGS)
@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
@pytest.mark.parametrize("behind", [0, 1, 4])
def test_a_gap_at_the_end_of_what_may_be_read_is_passed(text: str, isolation: int, behind: int) -> None:
    leader: Any = CraftedLeader(text)
    start = min(behind, leader.stable)
    reader = Reader(leader, "flow", 0, isolation, start)
    seen = list(read({("flow", 0): reader}))
    shown = [each.record.offset for each in seen]
    expected = [
        record.offset
        for batch in leader.log
        for record in batch.records()
        if record.offset >= start
        and (isolation == READ_UNCOMMITTED or (record.offset < leader.stable and _is_shown(leader, batch)))
    ]
    assert shown == expected
    assert reader.offset == (leader.stable if isolation == READ_COMMITTED else leader.end)
    assert {
        each.outcome for each in seen if each.record.offset >= leader.stable and each.batch.is_transactional
    } <= {"open"}


def _is_shown(leader: CraftedLeader, batch: RecordBatch) -> bool:
    aborted = {each.producer_id for each in leader.aborted}
    return not batch.is_control and batch.producer_id not in aborted


def test_a_gap_is_skipped_too() -> None:
    leader: Any = CraftedLeader("plain 2, gap 3, open 1")
    reader = Reader(leader, "flow", 0, READ_COMMITTED)
    while not reader.at_end:
        reader.skip()
    assert reader.offset == 5
