"""The steps of a Produce request: parse each batch, verify transactions, append, wait for the acks, respond.

All steps run in one turn of the event loop, unless a step waits: for the transaction coordinator (while it completes the
previous transaction), for records that must be read before the append, or for the high watermark (acks=all).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from broker.clock import Domain
from broker.logging import get_logger
from broker.loop.coroutines import Waiter, fork
from broker.metadata.topics import is_internal
from broker.replicas.partition.append_result import AppendResult
from broker.replicas.partition.partition import Partition
from broker.requests.authorization import may_write_transactions, unwritable_topics
from broker.transactions.verification import Check
from protocol import compression
from protocol.batch import CODEC_MASK, MAGIC, TRANSACTIONAL, CorruptBatch, Reason, RecordBatch
from protocol.errors import NONE, ErrorCode
from storage.validation import Checked, Invalid

if TYPE_CHECKING:
    from broker.node.context import RequestContext
    from broker.requests.api import NoResponse
    from protocol.messages.produce import ProduceRequest, ProduceResponse
    from storage.steps import Steps

log_events = get_logger()

ACKS_ALL = -1
VALID_ACKS = (-1, 0, 1)
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_IMPLICIT_ADD = 12
FIRST_VERSION_WITH_ABORTABLE = 11
FIRST_VERSION_WITH_ZSTD = 7
ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that Kafka allows to write to internal topics."""

# Errors of the coordinator, and the codes that the Produce response has for them (``ReplicaManager``).
_VERIFICATION_ERRORS = {
    ErrorCode.producer_fenced: ErrorCode.invalid_producer_epoch,
    ErrorCode.network_exception: ErrorCode.not_enough_replicas,
    ErrorCode.coordinator_load_in_progress: ErrorCode.not_enough_replicas,
    ErrorCode.coordinator_not_available: ErrorCode.not_enough_replicas,
    ErrorCode.not_coordinator: ErrorCode.not_enough_replicas,
}


class Item:
    """One partition of a Produce request, and the result of its append."""

    __slots__ = ("batch", "check", "index", "name", "partition", "result", "topic_id")

    def __init__(self, name: str, topic_id: UUID | None, index: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.index = index
        self.batch: RecordBatch | None = None
        self.partition: Partition | None = None
        self.check: Check | None = None
        self.result: AppendResult | None = None


class Produce:
    """One Produce request in progress. ``phrase`` builds the response from the items."""

    __slots__ = ("_has_transactional", "_phrase", "context", "items", "request")

    def __init__(
        self,
        request: ProduceRequest,
        context: RequestContext,
        phrase: Callable[[Produce], ProduceResponse | NoResponse],
    ) -> None:
        self.request = request
        self.context = context
        self._phrase = phrase
        # Whether any batch is transactional, even a refused one: the transactional id is authorized before all else.
        self._has_transactional = False
        self.items: list[Item] = []

    async def run(self) -> ProduceResponse | NoResponse:
        """Execute the request. Returns the response after the acks that the client asked for."""
        transactional = self._look()
        if self._has_transactional and self._refuse_as_a_whole(transactional):
            return self._phrase(self)
        if transactional:
            await self._verify(transactional)
        for appended in self._append():
            await appended
        if self.request.acks == ACKS_ALL:
            waiting = self._uncommitted()
            if waiting:
                await self._await_commit(waiting)
        elif self.context.node.injection.points is not None:
            await self._await_writes()
        return self._phrase(self)

    # -- parsing ------------------------------------------------------------------------------------------------

    def _look(self) -> list[Item]:
        """Parse every batch and resolve its partition. Returns the items with transactional batches."""
        context = self.context
        replicas = context.node.replicas
        by_id = context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        unauthorized = (
            unwritable_topics(context, self.request.topic_data, by_id=by_id)
            if context.node.authorizer is not None
            else None
        )
        # If a request names a partition twice, the last batch is appended, as on Kafka.
        items: dict[tuple[str, UUID | None, int], Item] = {}
        transactional: list[Item] = []
        for topic in self.request.topic_data:
            name, topic_id = topic.name, topic.topic_id
            for data in topic.partition_data:
                item = items[name, topic_id, data.index] = Item(name, topic_id, data.index)
                if unauthorized and (name, topic_id) in unauthorized:
                    item.result = AppendResult(ErrorCode.topic_authorization_failed)
                elif by_id or replicas.opened_leader(name, data.index) is None:
                    self._locate(item)
                if item.result is None:
                    self._parse(item, data.records)
                batch = item.batch
                if batch is None:
                    self._has_transactional |= _is_transactional(data.records)
                elif batch.attributes & TRANSACTIONAL:
                    self._has_transactional = True
                    # A transactional batch without a producer id is in no transaction: it needs authorization, and
                    # no verification.
                    if batch.producer_id >= 0:
                        transactional.append(item)
        self.items = list(items.values())
        if len(transactional) > 1:
            transactional = [item for item in transactional if item in self.items]
        return transactional

    def _locate(self, item: Item) -> None:
        """Look up the topic and partition in the metadata. As in Kafka, leadership is checked later."""
        metadata = self.context.node.metadata
        if self.context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
            topic = metadata.topic_by_id(item.topic_id)
            if topic is None:
                item.result = AppendResult(ErrorCode.unknown_topic_id)
                return
            item.name = topic.name
        else:
            topic = metadata.topic(item.name)
        if topic is None or topic.partition(item.index) is None:
            item.result = AppendResult(ErrorCode.unknown_topic_or_partition)

    def _parse(self, item: Item, records: bytes | memoryview | None) -> None:
        """Parse the records as one batch of magic 2, with a codec that the API version permits; else set the error."""
        try:
            batch = RecordBatch.parse(records or b"")
        except CorruptBatch as error:
            if error.reason is Reason.SIZE or (error.reason is Reason.MAGIC and _magic(records) > MAGIC):
                item.result = AppendResult(ErrorCode.corrupt_message, message=str(error))
            else:
                item.result = AppendResult(ErrorCode.invalid_record)
            log_events.info(
                "batch refused",
                topic=item.name,
                partition=item.index,
                error=item.result.error.name,
                reason=str(error),
            )
            return
        if (
            batch.attributes & CODEC_MASK == compression.ZSTD
            and self.context.api_version < FIRST_VERSION_WITH_ZSTD
        ):
            item.result = AppendResult(ErrorCode.unsupported_compression_type)
        elif records is not None and len(records) > batch.size and _has_batch(records, batch.size):
            item.result = AppendResult(ErrorCode.invalid_record)
        else:
            item.batch = batch

    def _refuse_as_a_whole(self, transactional: Sequence[Item]) -> bool:
        """Refuse all items if the transactional id is missing or not authorized, or if there is more than one producer."""
        error = NONE
        transactional_id = self.request.transactional_id
        producers = {
            (item.batch.producer_id, item.batch.producer_epoch)
            for item in transactional
            if item.batch is not None
        }
        if transactional_id is None or not may_write_transactions(self.context, transactional_id):
            error = ErrorCode.transactional_id_authorization_failed
        elif len(producers) > 1:
            error = ErrorCode.invalid_producer_id_mapping
        if error is NONE:
            return False
        several = error is ErrorCode.invalid_producer_id_mapping
        message = "Transactional records contained more than one producer ID" if several else None
        for item in self.items:
            item.result = AppendResult(error, message=message)
        return True

    # -- verifying ----------------------------------------------------------------------------------------------

    async def _verify(self, transactional: Sequence[Item]) -> None:
        node = self.context.node
        replicas = node.replicas
        for item in transactional:
            partition = replicas.leader(item.name, item.index)
            batch = item.batch
            if isinstance(partition, Partition) and batch is not None:
                item.check = Check(partition, batch.producer_id, batch.producer_epoch, batch.base_sequence)
        checks = [item.check for item in transactional if item.check is not None]
        config = node.config
        verified = fork(
            node.verifier.run(
                self.request.transactional_id or "",
                checks,
                adds=self.context.api_version >= FIRST_VERSION_WITH_IMPLICIT_ADD,
                wait_ms=min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms),
            ),
            node.life,
        )
        if not verified.done():
            self._copy_batches()
            await verified

    def _copy_batches(self) -> None:
        """Copy the batches, since the connection reuses its frame buffer while the request waits."""
        for item in self.items:
            if item.batch is not None:
                item.batch = RecordBatch.parse(bytes(item.batch.data))

    def _verification_result(self, error: ErrorCode) -> AppendResult:
        version = self.context.api_version
        answer = _VERIFICATION_ERRORS.get(error, error)
        if error is ErrorCode.transaction_abortable and version < FIRST_VERSION_WITH_ABORTABLE:
            answer = ErrorCode.invalid_txn_state
        elif error is ErrorCode.concurrent_transactions and version < FIRST_VERSION_WITH_IMPLICIT_ADD:
            answer = ErrorCode.not_enough_replicas
        # Kafka adds a message to a code that replaces another one.
        explained = answer in (ErrorCode.invalid_txn_state, ErrorCode.not_enough_replicas)
        message = f"The transaction could not be verified: {error.name.upper()}" if explained else None
        return AppendResult(answer, message=message)

    # -- appending ----------------------------------------------------------------------------------------------

    def _append(self) -> list[Waiter[None]]:
        """Append every batch. Returns a waiter for each append that is queued."""
        acks = self.request.acks
        in_turn: list[Waiter[None]] = []
        for item in self.items:
            if item.result is not None:
                continue
            check = item.check
            if check is not None and check.error is not NONE:
                item.result = self._verification_result(check.error)
            elif acks not in VALID_ACKS:
                item.result = AppendResult(ErrorCode.invalid_required_acks)
            else:
                later = self._append_one(item)
                if later is not None:
                    in_turn.append(later)
        return in_turn

    def _append_one(self, item: Item) -> Waiter[None] | None:
        """Append now, or queue the append if the records of this batch, or of an earlier batch in the queue, must be read
        first.
        """
        node = self.context.node
        replicas = node.replicas
        partition = replicas.leader(item.name, item.index)
        if is_internal(item.name) and self.context.client_id != ADMIN_CLIENT_ID:
            item.result = AppendResult(ErrorCode.invalid_topic_exception)
            return None
        if not isinstance(partition, Partition):
            item.result = AppendResult(partition)
            return None
        item.partition = partition
        batch, check, queues = item.batch, item.check, node.append_queues
        assert batch is not None
        if queues.is_free(partition):
            item.result = partition.append_as_sent(
                batch, self.request.acks, check.guard if check is not None else None, queues.limits
            )
            if item.result is not None:
                return None
        checked = partition.check(batch, queues.limits)
        if isinstance(checked, Checked | Invalid) and queues.is_free(partition):
            self._append_checked(item, partition, checked)
            return None
        return fork(self._append_in_turn(item, partition, checked), node.life)

    async def _append_in_turn(
        self, item: Item, partition: Partition, checked: Checked | Invalid | Steps[Checked | Invalid]
    ) -> None:
        """Append the item's batch, after its records are validated and the partition's earlier batches are appended.

        If this node no longer leads the partition then, set the item's error instead.
        """
        node = self.context.node
        queues = node.append_queues
        found = await queues.turn(partition, checked)
        try:
            leader = node.replicas.leader(item.name, item.index)
            if leader is partition:
                self._append_checked(item, partition, found)
            else:
                gone = ErrorCode.not_leader_or_follower
                item.result = AppendResult(gone if isinstance(leader, Partition) else leader)
        finally:
            queues.leave(partition)

    def _append_checked(self, item: Item, partition: Partition, checked: Checked | Invalid) -> None:
        assert item.batch is not None
        guard = item.check.guard if item.check is not None else None
        item.result = partition.append(
            item.batch, required_acks=self.request.acks, guard=guard, checked=checked
        )

    # -- waiting ------------------------------------------------------------------------------------------------

    async def _await_writes(self) -> None:
        """Wait until all appended batches are written (acks=1), since a fault rule at ``log.write`` may hold them."""
        appended: list[tuple[Item, Waiter[ErrorCode]]] = []
        for item in self.items:
            if item.result is not None and item.result.last_offset >= 0:
                assert item.partition is not None
                written: Waiter[ErrorCode] = Waiter()
                item.partition.unconfirmed.on_written(item.result.last_offset + 1, written.wake)
                appended.append((item, written))
        for item, written in appended:
            error = await written
            if error is not NONE:
                item.result = AppendResult(error)

    def _uncommitted(self) -> list[Item]:
        """Items whose batch (new or duplicate) is not below the high watermark yet."""
        waiting: list[Item] = []
        for item in self.items:
            partition, result = item.partition, item.result
            if (
                partition is not None
                and result is not None
                and result.error is NONE
                and partition.high_watermark <= result.last_offset
            ):
                waiting.append(item)
        return waiting

    async def _await_commit(self, waiting: Sequence[Item]) -> None:
        """Wait for acks=all. After the timeout the batch stays in the log, and the response has REQUEST_TIMED_OUT."""
        verdicts: list[Waiter[ErrorCode | None]] = [Waiter() for _ in waiting]

        def time_is_up() -> None:
            for verdict in verdicts:
                verdict.wake(None)

        timer = self.context.node.clock.call_later_ms(self.request.timeout_ms, time_is_up, Domain.REQUESTS)
        for item, verdict in zip(waiting, verdicts, strict=True):
            assert item.partition is not None
            assert item.result is not None
            item.partition.on_committed(item.result.last_offset + 1, verdict.wake)
        for item, verdict in zip(waiting, verdicts, strict=True):
            assert item.partition is not None
            assert item.result is not None
            error = await verdict
            if error is None and item.partition.high_watermark <= item.result.last_offset:
                error = ErrorCode.request_timed_out
            if error:
                # The batch stays in the log, and the response has its offsets.
                item.result = item.result._replace(error=error)
        timer.cancel()


def _is_transactional(records: bytes | memoryview | None) -> bool:
    try:
        return RecordBatch.parse(records or b"").is_transactional
    except CorruptBatch:
        return False


def _magic(records: bytes | memoryview | None) -> int:
    return records[16] if records is not None and len(records) > 16 else MAGIC


def _has_batch(records: bytes | memoryview, start: int) -> bool:
    """Whether a whole batch begins at ``start``. A truncated batch is ignored, as Kafka's iterator does."""
    try:
        RecordBatch.parse(records, start)
    except CorruptBatch:
        return False
    return True
