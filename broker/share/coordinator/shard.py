"""One partition of ``__share_group_state`` that this node leads: its share partitions in memory, and its log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.clock import Clock
from broker.coordinator_runtime.batching import split
from broker.coordinator_runtime.damaged_records import DamagedRecords
from broker.coordinator_runtime.loader import load_log
from broker.coordinator_runtime.replayed_shard import ReplayedShard
from broker.coordinator_runtime.shard import COORDINATOR_SEQUENCE, verdict_at
from broker.injection.crash import crash_point
from broker.injection.points import FaultInjection, InjectionPoint
from broker.logging import get_logger
from broker.replicas.partition import Partition
from broker.share.coordinator.state import ShareCoordinatorState, ShareRecord
from protocol.batch import RecordBatch, build_batch
from protocol.errors import NONE, ErrorCode
from protocol.records.share_state_log import decode_record
from protocol.schema import MalformedRecord

if TYPE_CHECKING:
    from broker.config import BrokerConfig


log_events = get_logger()

_Encoded = tuple[int, bytes, bytes | None]
"""(timestamp in milliseconds, key, value)."""


class ShareCoordinatorShard(ReplayedShard):
    """The share partitions of one partition of ``__share_group_state``, while this node leads it."""

    def __init__(
        self,
        partition: Partition,
        config: BrokerConfig,
        clock: Clock,
        injection: FaultInjection | None = None,
    ) -> None:
        super().__init__(partition, clock, injection)
        self._config = config
        self.state = ShareCoordinatorState(config.share_coordinator_snapshot_update_records_per_snapshot)

    @property
    def commit_timeout_ms(self) -> int:
        return self._config.share_coordinator_write_timeout_ms

    # -- loading ------------------------------------------------------------------------------------------------

    def load(self) -> Iterator[None]:
        topic, index = self.partition.topic, self.partition.index
        damaged = DamagedRecords(topic, index, "groups", _group_of, self._groups)
        yield from load_log(self.partition, partial(self._replay, damaged), damaged)
        damaged.report()

    def _replay(self, damaged: DamagedRecords, batch: RecordBatch) -> None:
        """Replay the records of a batch up to the first that cannot be decoded."""
        records = () if batch.is_control else batch.keys_and_values()
        for offset, (key, value) in enumerate(records, batch.base_offset):
            if damaged:
                damaged.note_read(key)
            found = None if key is None else decode_record(key, value)
            if found is not None:
                self.state.replay(offset, *found)

    def _groups(self) -> set[str]:
        return {key.group_id for key in self.state.offsets}

    def loaded(self) -> None:
        log_events.debug(
            "share partitions loaded",
            partition=self.partition.index,
            share_partitions=len(self.state.offsets),
        )

    # -- writing ------------------------------------------------------------------------------------------------

    async def may_append(self, at: InjectionPoint) -> ErrorCode:
        """Wait while a fault rule delays the append; return NONE or the client's error.

        The caller must decide again after this wait, since other requests may have changed the state. The wait ends with
        the leadership.
        """
        return self.client_error(await self.await_verdict(verdict_at(self._injection, at)))

    async def write(self, records: Sequence[ShareRecord]) -> ErrorCode:
        """Append records and apply them. Return NONE once they and all earlier records are committed, or the client's error.

        Records that do not fit into one batch are appended in several.
        """
        now_ms = self.clock.now_ms()
        max_message_bytes = self.partition.log.config.max_message_bytes
        with self.held_commits:
            for piece in split(records, _size_bytes, max_message_bytes):
                batch = build_batch(
                    [
                        (now_ms, key.encode(), None if value is None else value.encode(0))
                        for key, value in piece
                    ],
                    base_sequence=COORDINATOR_SEQUENCE,
                    compression=self._config.share_coordinator_state_topic_compression_codec,
                )
                if len(batch) > max_message_bytes:
                    return self.client_error(ErrorCode.message_too_large)
                crash_point("share.append.before")
                # As in Kafka, without min.insync.replicas: a small ISR only delays the commit, until the request times out.
                result = self.append(batch, required_acks=1)
                if result.error is not NONE:
                    return self.client_error(result.error)
                crash_point("share.append.after")
                for offset, (key, value) in enumerate(piece, result.base_offset):
                    self.state.replay(offset, key, value)
        return await self.committed(self.partition.log_end_offset)

    def prune(self) -> None:
        """Delete the records that no share partition needs (``lastRedundantOffset``)."""
        before_offset = self.state.deletable_offset()
        if self.partition.log_start_offset < before_offset <= self.partition.high_watermark:
            self.partition.delete_records(before_offset)


def _size_bytes(record: ShareRecord) -> int:
    return len(record.key.encode()) + (0 if record.value is None else len(record.value.encode(0)))


def _group_of(key: bytes) -> str | None:
    try:
        found = decode_record(key, None)
    except MalformedRecord:
        return None
    group_id: str | None = None if found is None else getattr(found[0], "group_id", None)
    return group_id
