"""One ShareFetch: reads share partitions, acquires records for the member, and waits while there are too few (KIP-932).

In Kafka this is SharePartitionManager.processShareFetch, DelayedShareFetch and ShareFetchUtils. Its fetch lock is not needed
here: nothing else runs between the read of a partition and the acquisition of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.clock import Domain
from broker.replicas.partition import Partition, ReadResult
from broker.requests.parking import Parking
from broker.share.manager import ManagedSharePartition
from broker.share.partition import Acquired, Fetched, Limits
from broker.share.sessions import Answers, CachedSharePartition
from broker.share.settings import ShareGroupSettings
from broker.share.state import SharePartitionKey
from protocol.batch import RecordBatch, batches
from protocol.errors import NONE, ErrorCode
from protocol.messages.share_fetch import AcquiredRecords, PartitionData
from protocol.named_tuple import NamedTuple

if TYPE_CHECKING:
    from broker.node import Node

BATCH_OPTIMIZED: Final = 0
RECORD_LIMIT: Final = 1
"""``ShareAcquireMode``: acquire whole batches, or at most MaxRecords records (KIP-1206)."""
OFFSET_MAX: Final = 2**63 - 1


class Wanted(NamedTuple):
    """The limits of a ShareFetch."""

    group_id: str
    member_id: str
    record_limit: bool
    records_max: int
    batch_size: int
    min_bytes: int
    max_bytes: int


class ShareFetching:
    """The partitions of one ShareFetch, in the order in which they are read."""

    __slots__ = ("_errors", "_managed", "_new", "_node", "_settings", "_wanted", "_was_ready")

    def __init__(self, node: Node, wanted: Wanted, partitions: Sequence[CachedSharePartition]) -> None:
        self._node = node
        self._wanted = wanted
        self._settings: ShareGroupSettings = node.share.settings(wanted.group_id)
        self._managed: list[tuple[CachedSharePartition, ManagedSharePartition]] = []
        self._errors: dict[CachedSharePartition, ErrorCode] = {}
        self._new: Set[ManagedSharePartition] = frozenset()
        """The share partitions whose next offset no fetch had seen before this one was ready."""
        self._was_ready = False
        if not wanted.records_max or not wanted.max_bytes:
            return
        for cached in partitions:
            assert cached.topic is not None
            assert cached.topic_id is not None
            key = SharePartitionKey(wanted.group_id, cached.topic_id, cached.index)
            managed = node.share.open(key, cached.topic, partial(self._errors.__setitem__, cached))
            if isinstance(managed, ErrorCode):
                self._errors[cached] = managed
            else:
                self._managed.append((cached, managed))

    async def run(self, max_wait_ms: int) -> Answers:
        """Return the partitions that were read or have an error. Waits up to ``max_wait_ms`` for records.

        As in Kafka, a share partition that cannot be loaded does not end the wait.
        """
        if self._managed and not self._ready() and max_wait_ms > 0:
            gives_way = self._node.config.fetch_gives_way
            shares = [managed for _, managed in self._managed]
            with _Parking(self._node, max_wait_ms, shares, self._ready, gives_way=gives_way) as parking:
                while await parking.moved() and not self._ready():
                    pass
        answers = self._complete()
        answers += [(cached, failed(cached.index, error)) for cached, error in self._errors.items()]
        return answers

    def _taken(self) -> list[tuple[CachedSharePartition, ManagedSharePartition]]:
        """The share partitions of which records may be acquired now."""
        records_max = self._settings.partition_max_record_locks
        return [
            each for each in self._managed if each[1].is_active and each[1].state.can_acquire(records_max)
        ]

    def _ready(self) -> bool:
        """Whether to respond: MinBytes are available, or a read would fail (``DelayedShareFetch.tryComplete``)."""
        taken = self._taken()
        new = _with_new_offsets(taken)
        self._new = self._new | new if self._was_ready else new
        self._was_ready = self._is_enough(taken)
        return self._was_ready

    def _is_enough(self, taken: Sequence[tuple[CachedSharePartition, ManagedSharePartition]]) -> bool:
        if not taken:
            return False
        read_committed = self._settings.read_committed
        bytes_max = max(self._wanted.max_bytes // len(taken), 1)
        available = 0
        for cached, managed in taken:
            replica = self._replica(cached)
            if isinstance(replica, ErrorCode):
                return True
            offset = managed.state.next_fetch_offset()
            end = replica.last_stable_offset if read_committed else replica.high_watermark
            if offset > end or offset < replica.log_start_offset:
                return True
            if offset < end and self._wanted.min_bytes <= 1:
                return True  # no need to look into the log
            if offset < end:
                size, in_older_segment = replica.readable_bytes(offset, read_committed=read_committed)
                if in_older_segment:
                    return True
                available += min(size, bytes_max)
        return available >= self._wanted.min_bytes

    def _replica(self, cached: CachedSharePartition) -> Partition | ErrorCode:
        replica = self._node.replicas.leader(cached.topic or "", cached.index)
        if not isinstance(replica, ErrorCode) and replica.topic_id != cached.topic_id:
            # The topic was deleted, and another one was created with its name.
            return ErrorCode.inconsistent_topic_id
        return replica

    def _complete(self) -> Answers:
        """Read the partitions and acquire records, until MaxRecords are acquired."""
        answers: Answers = []
        # Kafka reads those with new offsets when it decides whether to respond, and appends them to the others.
        new = self._new if self._was_ready else frozenset()
        taken = sorted(self._taken(), key=lambda each: each[1] in new)
        wanted = self._wanted
        records_left, bytes_left = wanted.records_max, wanted.max_bytes
        read: list[ManagedSharePartition] = []
        is_new = has_data = False
        for cached, managed in taken:
            if cached in self._errors:
                continue
            if managed in new and not is_new:
                is_new, has_data, bytes_left = True, False, wanted.max_bytes
            answer = PartitionData(partition_index=cached.index)
            answers.append((cached, answer))
            if wanted.max_bytes < 0:
                answer.error_code = ErrorCode.unknown_server_error  # as in Kafka, when it divides the bytes
            if records_left <= 0 or wanted.max_bytes < 0:
                continue
            bytes_max = min(wanted.max_bytes // len(taken), bytes_left)
            error, acquired, records = self._acquire(
                cached, managed, records_left, bytes_max, whole_first_batch=not has_data
            )
            answer.error_code = error
            if acquired:
                answer.records = records
                answer.acquired_records = [
                    AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                    for first, last, count in acquired
                ]
                records_left -= sum(each.last_offset - each.first_offset + 1 for each in acquired)
                bytes_left = max(bytes_left - len(records), 0)
                has_data = True
                read.append(managed)
                self._node.share.watch_locks(managed)
        for managed in read:
            managed.notify_all_groups()
        return answers

    def _acquire(
        self,
        cached: CachedSharePartition,
        managed: ManagedSharePartition,
        records_max: int,
        bytes_max: int,
        *,
        whole_first_batch: bool,
    ) -> tuple[ErrorCode, Sequence[Acquired], bytes]:
        """Read a partition and acquire records. Returns (error, acquired records, the batches that contain them)."""
        replica = self._replica(cached)
        if isinstance(replica, ErrorCode):
            return replica, (), b""
        offset = managed.state.next_fetch_offset()
        result, found = self._read(managed, replica, offset, records_max, bytes_max, whole_first_batch)
        if result.error is ErrorCode.offset_out_of_range:
            # The log start has passed the share partition's start. The client is not told, and fetches again.
            managed.state.advance_start(replica.log_start_offset)
            return NONE, (), b""
        if not found:
            return result.error, (), b""
        wanted = self._wanted
        acquired = managed.state.acquire(
            wanted.member_id,
            Fetched(
                offset, [(batch.base_offset, batch.last_offset) for batch in found], _aborted(result, found)
            ),
            Limits(records_max, wanted.batch_size, wanted.record_limit),
            self._settings,
            self._node.clock.now_ms(Domain.GROUPS),
        )
        return NONE, acquired, _slice(result.records, found, acquired) if acquired else b""

    def _read(
        self,
        managed: ManagedSharePartition,
        replica: Partition,
        offset: int,
        records_max: int,
        bytes_max: int,
        whole_first_batch: bool,
    ) -> tuple[ReadResult, list[RecordBatch]]:
        """Read batches from ``offset`` on, and no further than records can be acquired.

        New records are acquired from the end of the in-flight records on: up to the batch in which MaxRecords falls.
        """
        end_offset = managed.state.end_offset
        base_offset = offset if offset >= end_offset else end_offset + 1
        while True:
            result = replica.read(
                offset,
                bytes_max,
                read_committed=self._settings.read_committed,
                whole_first_batch=whole_first_batch,
                last_offset=min(base_offset + records_max - 1, OFFSET_MAX),
            )
            found = list(batches(result.records))
            if not found or found[0].base_offset <= base_offset:
                return result, found
            # Compaction has removed the records before the first batch.
            base_offset = found[0].base_offset


def _with_new_offsets(
    taken: Sequence[tuple[CachedSharePartition, ManagedSharePartition]],
) -> Set[ManagedSharePartition]:
    """Note the offsets to read next. Return the share partitions that had another one (Kafka: ``fetchOffsetMetadata``)."""
    found = set()
    for _, managed in taken:
        offset = managed.state.next_fetch_offset()
        if managed.seen_offset != offset:
            managed.seen_offset = offset
            found.add(managed)
    return found


def failed(index: int, error: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=index, error_code=error)


def rotated(partitions: Sequence[CachedSharePartition], epoch: int) -> Sequence[CachedSharePartition]:
    """The partitions in the order of reading: a different one is the first in each request of a session."""
    at = epoch % len(partitions) if partitions and epoch > 0 else 0
    return [*partitions[at:], *partitions[:at]] if at else partitions


def _aborted(result: ReadResult, found: Sequence[RecordBatch]) -> list[tuple[int, int]]:
    """(first, last) offsets of the batches of aborted transactions, for read_committed. Markers are not included."""
    if not result.aborted:
        return []
    starts = sorted(result.aborted, key=lambda each: each[1], reverse=True)
    open_ids: set[int] = set()
    aborted: list[tuple[int, int]] = []
    for batch in found:
        while starts and starts[-1][1] <= batch.last_offset:
            open_ids.add(starts.pop()[0])
        if batch.is_control:
            open_ids.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in open_ids:
            aborted.append((batch.base_offset, batch.last_offset))
    return aborted


def _slice(records: bytes, found: Sequence[RecordBatch], acquired: Sequence[Acquired]) -> bytes:
    """The batches from the one with the first to the one with the last acquired record."""
    first_offset, last_offset = acquired[0].first_offset, acquired[-1].last_offset
    start, end = 0, 0
    for batch in found:
        if batch.base_offset <= first_offset:
            start = batch.start
        if batch.base_offset > last_offset and end:
            break
        end = batch.start + batch.size
    return records[start:end]


class _Parking(Parking):
    """The wait of a ShareFetch, for its topic partitions as a Fetch, and for its share partitions."""

    __slots__ = ("_ready", "_shares")

    def __init__(
        self,
        node: Node,
        timeout_ms: int,
        shares: Sequence[ManagedSharePartition],
        ready: Callable[[], bool],
        *,
        gives_way: bool,
    ) -> None:
        super().__init__(node.clock, timeout_ms, [each.partition for each in shares], gives_way=gives_way)
        self._shares = shares
        self._ready = ready

    def __enter__(self) -> _Parking:
        for managed in self._shares:
            managed.watchers[self._look_now] = None
        super().__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        for managed in self._shares:
            managed.watchers.pop(self._look_now, None)

    def _look_now(self) -> None:
        """See within the call whether the request is ready (`ManagedSharePartition.watchers`)."""
        if self._ready():
            self._moved()
