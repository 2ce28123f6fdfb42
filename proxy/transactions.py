"""The upstream's transactions: their summary, the readers that wait for open ones, and the timeline of an id."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

from broker.injection.happenings import Happening
from broker.metadata.topics import TRANSACTION_STATE
from lab.trace.scanning import Scan, ScanLimits, UnknownTransaction, timeline_from
from lab.trace.timeline_records import Hanging, Scanned, StateRecord
from lab.trace.timeline_view import Timeline
from lab.trace.trace import Trace
from lab.views.forms import HeldUp, TransactionsSummary, TransactionSummary
from lab.views.ports import PARTITIONS_OF_ONE_MAX, TRANSACTIONS_MAX
from protocol.batch import RecordBatch
from protocol.hashing import partition_for
from proxy.admin import EARLIEST, LATEST, READ_COMMITTED, Admin, Place, batches_in
from proxy.asking import NoAnswer

ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
FETCH_BYTES: Final = 1024 * 1024
OFFSETS_READ_MAX: Final = 1_000_000
"""Largest number of offsets that are read of one log. A longer log is read from the start of the timeline on, or, if that
is too far from the end, from this number of offsets before the end.
"""


async def owners(admin: Admin) -> dict[tuple[int, str, int], str]:
    """Return (producer id, topic, partition) -> transactional id, for open transactions of all coordinators."""
    listed = await admin.transactional_ids()
    open_ones = [
        (node_id, each.transactional_id) for node_id, each in listed if each.transaction_state not in ENDED
    ]
    return {
        (each.producer_id, topic.topic, index): each.transactional_id
        for _, each in await admin.described(open_ones[:TRANSACTIONS_MAX])
        for topic in each.topics
        for index in topic.partitions
    }


async def summary(admin: Admin) -> TransactionsSummary:
    """A summary of the transactions: open transactions first, the oldest one at the top, then the others by id."""
    listed = await admin.transactional_ids()
    listed.sort(key=lambda each: (each[1].transaction_state in ENDED, each[1].transactional_id))
    shown = await admin.described(
        (node_id, each.transactional_id) for node_id, each in listed[:TRANSACTIONS_MAX]
    )
    shown.sort(key=lambda each: _order(each[1]))
    held_up = await _held_up(admin, [each for _, each in shown if each.transaction_state not in ENDED])
    now_ms = admin.proxy.clock.now_ms()
    return TransactionsSummary(
        total=len(listed),
        by_state=dict(Counter(each.transaction_state for _, each in listed)),
        transactions=[_summary(node_id, each, now_ms, held_up) for node_id, each in shown],
    )


def _order(state: Any) -> tuple[bool, int, str]:
    is_open = state.transaction_state not in ENDED
    return not is_open, state.transaction_start_time_ms if is_open else 0, state.transactional_id


def _places(state: Any) -> list[Place]:
    found = sorted((topic.topic, index) for topic in state.topics for index in topic.partitions)
    return found[:PARTITIONS_OF_ONE_MAX]


def _summary(
    node_id: int, state: Any, now_ms: int, held_up: Mapping[tuple[int, Place], HeldUp]
) -> TransactionSummary:
    is_open = state.transaction_state not in ENDED
    waiting = [held_up.get((state.producer_id, place)) for place in _places(state)] if is_open else []
    return TransactionSummary(
        transactional_id=state.transactional_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        coordinator=node_id,
        timeout_ms=state.transaction_timeout_ms,
        open_ms=max(0, now_ms - state.transaction_start_time_ms) if is_open else None,
        partitions=[f"{topic}-{index}" for topic, index in _places(state)],
        holds_up=[each for each in waiting if each is not None],
    )


async def _held_up(admin: Admin, open_ones: Iterable[Any]) -> dict[tuple[int, Place], HeldUp]:
    """The records of each partition that read_committed consumers do not get because of an open transaction.

    The key is (producer id, partition). Only the first open transaction of a partition holds back records.
    """
    leaders = await admin.leaders(place for each in open_ones for place in _places(each))
    if not leaders:
        return {}
    producers = await admin.open_producers(leaders)
    high = await admin.offsets(leaders, LATEST)
    stable = await admin.offsets(leaders, LATEST, READ_COMMITTED)
    found = {}
    for place, states in producers.items():
        for each in states:
            first = each.current_txn_start_offset
            is_first = stable.get(place, -1) >= first
            found[each.producer_id, place] = HeldUp(
                topic=place[0],
                partition=place[1],
                first_offset=first,
                records=max(0, high.get(place, first) - first) if is_first else 0,
            )
    return found


class UpstreamTransactions:
    """The implementation of `lab.control.ports.Transactions` for the upstream."""

    def __init__(self, admin: Admin, trace: Trace) -> None:
        self._admin = admin
        self._trace = trace

    async def list(self) -> list[dict[str, Any]]:
        listed = await self._admin.transactional_ids()
        states = await self._admin.described((node_id, each.transactional_id) for node_id, each in listed)
        now_ms = self._admin.proxy.clock.now_ms()
        states.sort(key=lambda each: str(each[1].transactional_id))
        return [_view(node_id, each, now_ms) for node_id, each in states]

    async def timeline(self, transactional_id: str) -> Timeline:
        limits = ScanLimits()
        scan = _UpstreamScan(self._admin, limits)
        try:
            return await timeline_from(scan, transactional_id, self._trace, limits)
        except NoAnswer as error:
            raise UnknownTransaction(f"the upstream does not respond: {error}") from error


def _view(node_id: int, state: Any, now_ms: int) -> dict[str, Any]:
    is_open = state.transaction_state not in ENDED
    start_ms = state.transaction_start_time_ms if is_open else None
    return {
        "transactional_id": state.transactional_id,
        "state": state.transaction_state,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "timeout_ms": state.transaction_timeout_ms,
        "start_ms": start_ms,
        "open_ms": None if start_ms is None else now_ms - start_ms,
        "last_update_ms": None,  # DescribeTransactions does not return it
        "partitions": [
            f"{topic.topic}-{index}"
            for topic in sorted(state.topics, key=lambda each: str(each.topic))
            for index in sorted(topic.partitions)
        ],
        "coordinator": node_id,
    }


class _UpstreamScan(Scan):
    """A reader of the upstream's logs, which sends Fetch requests and reads up to the high watermark."""

    unknown = "no transaction log of the upstream knows the id"

    def __init__(self, admin: Admin, limits: ScanLimits) -> None:
        super().__init__()
        self._admin = admin
        self._limits = limits
        self._named: set[Place] = set()
        """Partitions that appear in records of the transactional id."""

    async def home(self, transactional_id: str) -> Place | None:
        topics = await self._admin.topics([TRANSACTION_STATE])
        if not topics:
            return None
        return TRANSACTION_STATE, partition_for(transactional_id, len(topics[0].partitions))

    async def states(self, transactional_id: str) -> list[StateRecord]:
        found = await super().states(transactional_id)
        self._named = set().union(*(record.partitions for record in found))
        return found

    async def hanging(self, transactional_id: str, producer_ids: frozenset[int]) -> list[Hanging]:
        """Hanging transactions of these producers, in the partitions that the coordinator has listed for the id.

        Describing the producers of all partitions of the upstream would be too expensive.
        """
        leaders = await self._admin.leaders(self._named)
        owned = await owners(self._admin)
        return [
            Hanging(
                *place, leaders[place], each.current_txn_start_offset, each.producer_id, each.producer_epoch
            )
            for place, states in sorted((await self._admin.open_producers(leaders)).items())
            for each in states
            if each.producer_id in producer_ids and (each.producer_id, *place) not in owned
        ]

    def happenings(self) -> Iterable[Happening]:
        return self._admin.proxy.injection.happenings

    async def batches(self, place: Place, since_ms: int | None) -> AsyncIterator[tuple[int, RecordBatch]]:
        leader = (await self._admin.leaders([place])).get(place)
        if leader is None:
            return
        start, is_whole = await self._start({place: leader}, place, since_ms)
        position, left = start, self._limits.bytes_max
        while True:
            data = await self._admin.fetch(leader, place, position, FETCH_BYTES)
            found = batches_in(data) if data is not None else ()
            for batch in found:
                yield leader, batch
                position = max(position, batch.next_offset)
                left -= batch.size
            if data is None or not found or position >= data.high_watermark or left <= 0:
                is_whole &= data is not None and position >= data.high_watermark
                break
        self.scanned.append(Scanned(*place, leader, start, position, is_whole))

    async def _start(
        self, leaders: Mapping[Place, int], place: Place, since_ms: int | None
    ) -> tuple[int, bool]:
        """Return the offset to start reading at, and whether no batch of the timeline is below that offset."""
        earliest = (await self._admin.offsets(leaders, EARLIEST)).get(place, 0)
        latest = (await self._admin.offsets(leaders, LATEST)).get(place, earliest)
        if latest - earliest <= OFFSETS_READ_MAX:
            return earliest, True
        if since_ms is not None:
            by_time = (await self._admin.offsets(leaders, since_ms)).get(place)
            if by_time is not None and latest - by_time <= OFFSETS_READ_MAX:
                return max(earliest, by_time), True
        return latest - OFFSETS_READ_MAX, False
