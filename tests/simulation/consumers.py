"""Consumers without a group, which filter aborted transactions like Kafka's consumers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from protocol.batch import HEADER_BYTES, RecordBatch
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.record import Record
from tests.simulation.ledger import Broken, Spot, View
from tests.simulation.wire import ASK_LEADER_AGAIN, GROUP, NONE, Gone, Wire

FETCH, OFFSET_FETCH = 1, 9
MAX_WAIT_MS: Final = 2_000
BYTES_MAX: Final = 2_000
ABORT = 0


def batch_size(records: bytes, at: int) -> int:
    """Size in bytes of the batch at this position: the value of batch_length, plus base offset and batch_length itself."""
    return 12 + int.from_bytes(records[at + 8 : at + 12], "big")


def whole_batches(records: bytes) -> Iterator[RecordBatch]:
    """Yield the batches of a Fetch response, without the last one if ``max_bytes`` has truncated it."""
    at = 0
    while at + HEADER_BYTES <= len(records) and at + batch_size(records, at) <= len(records):
        batch = RecordBatch.parse(records, at)
        at += batch.size
        yield batch


def visible(
    records: bytes, aborted: list[tuple[int, int]], position: int
) -> tuple[list[tuple[int, bytes]], int]:
    """Return the (offset, value) of each record that a consumer at ``position`` delivers, and its next position."""
    found, after = delivered(records, aborted, position)
    return [(offset, record.value or b"") for offset, record in found], after


def delivered(
    records: bytes, aborted: list[tuple[int, int]], position: int
) -> tuple[list[tuple[int, Record]], int]:
    """Return the (offset, record) of each record that a consumer at ``position`` delivers, and its next position.

    ``aborted`` has (producer id, first offset) of each aborted transaction, as in a Fetch response. If it is
    empty, only markers are filtered. The algorithm is that of ``CompletedFetch``.
    """
    found: list[tuple[int, Record]] = []
    waiting = sorted(aborted, key=lambda entry: entry[1])
    active: set[int] = set()
    for batch in whole_batches(records):
        while waiting and waiting[0][1] <= batch.last_offset:
            active.add(waiting.pop(0)[0])
        if batch.is_control:
            record = next(iter(batch.records()))
            assert record.key is not None
            if record.key[3] == ABORT:
                active.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in active):
            found += [(record.offset, record) for record in batch.records() if record.offset >= position]
        position = max(position, batch.next_offset)
    return found, position


class Reader:
    """A consumer that reads one partition from its beginning. ``view`` collects the records that it got."""

    version = 12
    """Version of the Fetch requests."""

    def __init__(self, wire: Wire, spot: Spot, isolation: str, view: View | None = None) -> None:
        self.wire = wire
        self.spot = spot
        self.position = 0
        self._committed_only = isolation == "read_committed"
        self.view = view

    async def fetch(self, max_wait_ms: int = MAX_WAIT_MS) -> list[tuple[int, bytes]]:
        """Send one Fetch and return the new records, possibly none. Raises ``Gone`` if there was no response."""
        topic, index = self.spot
        _, leader_epoch = await self.wire.leader(topic, index)
        answer = await self.wire.ask_leader(
            topic, index, FETCH, self.version, self._request(leader_epoch, max_wait_ms)
        )
        if not answer.responses:
            raise Gone(f"Fetch fails with error code {answer.error_code}")
        data = answer.responses[0].partitions[0]
        error = ErrorCode(data.error_code)
        if error is not NONE:
            self.wire.say(f"fetch {topic}-{index} at {self.position}: {error.name}")
            self.wire.forget_leader(topic, index)
            if error is ErrorCode.offset_out_of_range:
                await self.out_of_range(leader_epoch)
            elif error not in ASK_LEADER_AGAIN and error is not ErrorCode.unknown_topic_id:
                raise Broken(f"{self.spot}: Fetch at position {self.position} fails with {error.name}")
            raise Gone(error.name)
        return self._take(data, leader_epoch)

    def note_shown(self, records: bytes) -> None:
        self.wire.facts.shown(*self.spot, records)

    async def out_of_range(self, leader_epoch: int) -> None:
        """Raise ``Broken`` for OFFSET_OUT_OF_RANGE, as no records are deleted. A subclass may allow the error."""
        raise Broken(f"{self.spot}: the consumer's position {self.position} is OFFSET_OUT_OF_RANGE")

    def _request(self, leader_epoch: int, max_wait_ms: int) -> FetchRequest:
        topic, index = self.spot
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=BYTES_MAX,
            isolation_level=int(self._committed_only),
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=index,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=self.position,
                            partition_max_bytes=BYTES_MAX,
                        )
                    ],
                )
            ],
        )

    def _take(self, data: Any, leader_epoch: int) -> list[tuple[int, bytes]]:
        records = bytes(data.records or b"")
        self.note_shown(records)
        aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        found, self.position = visible(records, aborted, self.position)
        if self.view is not None:
            self.view.saw_offsets(self.spot, leader_epoch, data.high_watermark, data.last_stable_offset)
            self.view.saw(found, data.high_watermark)
        return found


async def committed_offset(wire: Wire, group: str, spot: Spot) -> int:
    """Committed offset of a group in a partition, 0 if the group has none.

    Raises ``Gone`` if there is no response, or if an open transaction may change the offset.
    """
    return max((await committed_offsets(wire, group, [spot]))[spot], 0)


async def committed_offsets(wire: Wire, group: str, spots: Sequence[Spot]) -> dict[Spot, int]:
    """Committed offsets of a group, -1 for a partition without one.

    Raises ``Gone`` if there is no response, or if an open transaction may change one of the offsets.
    """
    topics: dict[str, list[int]] = {}
    for topic, index in spots:
        topics.setdefault(topic, []).append(index)
    request = OffsetFetchRequest(
        group_id=group,
        topics=[
            OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ],
        require_stable=True,
    )
    answer = await wire.ask_coordinator(GROUP, group, OFFSET_FETCH, 7, request)
    found = {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}
    for error in (answer.error_code, *(each.error_code for each in found.values())):
        if error != NONE:
            wire.forget_coordinator(GROUP, group)
            raise Gone(ErrorCode(error).name)
    return {spot: found[spot].committed_offset for spot in spots}
