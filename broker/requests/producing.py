"""The walk of a Produce request: look at each batch, ask the coordinator where needed, append, wait, answer.

The steps run in one turn unless one has to wait: for the coordinator (a transaction that is still being completed) or for
the high watermark (acks=all).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from broker.clock import Domain
from broker.logging import get_logger
from broker.metadata.topics import is_internal
from broker.replicas.partition import AppendResult, Partition
from broker.transactions.verification import Check
from protocol import compression
from protocol.batch import MAGIC, CorruptBatch, Reason, RecordBatch
from protocol.errors import ErrorCode
from protocol.slotted import slotted
from storage.validation import Checked, Invalid

if TYPE_CHECKING:
    from broker.node.context import RequestContext
    from protocol.messages.produce import ProduceRequest

log_events = get_logger()

ACKS_ALL = -1
VALID_ACKS = (-1, 0, 1)
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_IMPLICIT_ADD = 12
FIRST_VERSION_WITH_ABORTABLE = 11
FIRST_VERSION_WITH_ZSTD = 7
ADMIN_CLIENT_ID = "__admin_client"
"""The one client that Kafka lets write to internal topics."""

# What the coordinator's refusal becomes in a Produce answer (``ReplicaManager``).
_VERIFICATION_ERRORS = {
    ErrorCode.producer_fenced: ErrorCode.invalid_producer_epoch,
    ErrorCode.network_exception: ErrorCode.not_enough_replicas,
    ErrorCode.coordinator_load_in_progress: ErrorCode.not_enough_replicas,
    ErrorCode.coordinator_not_available: ErrorCode.not_enough_replicas,
    ErrorCode.not_coordinator: ErrorCode.not_enough_replicas,
}


@slotted
class Item:
    """One partition of a request and what became of it."""

    name: str
    topic_id: UUID | None
    index: int
    batch: RecordBatch | None = None
    partition: Partition | None = None
    check: Check | None = None
    result: AppendResult | None = None


class Produce:
    """One request under way; ``finished`` is called once, with every item's result in place.

    ``guarded`` wraps what runs in a later turn of the loop: an exception there is the client's answer too.
    """

    __slots__ = ("_context", "_guarded", "_has_transactional", "_left", "_request", "finished", "items")

    def __init__(
        self,
        request: ProduceRequest,
        context: RequestContext,
        finished: Callable[[Sequence[Item]], object],
        guarded: Callable[[Callable[[], object]], Callable[[], None]],
    ) -> None:
        self._guarded = guarded
        self._request = request
        self._context = context
        self._left = 0
        # The name is asked for before anything else, so a batch that is refused on its own counts as well.
        self._has_transactional = False
        self.finished = finished
        self.items: list[Item] = []

    def run(self) -> None:
        transactional = self._look()
        if self._has_transactional and self._refuse_as_a_whole(transactional):
            self.finished(self.items)
        elif transactional:
            self._verify(transactional)
        else:
            self._append()

    # -- looking ------------------------------------------------------------------------------------------------

    def _look(self) -> list[Item]:
        """Parse every batch and find its partition; returns the items with transactional batches."""
        # A partition that is named twice gets the last of its batches, as on Kafka.
        items: dict[tuple[str, UUID | None, int], Item] = {}
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                item = Item(topic.name, topic.topic_id, data.index)
                items[topic.name, topic.topic_id, data.index] = item
                self._locate(item)
                if item.result is None:
                    self._parse(item, data.records)
                if item.result is not None:
                    self._has_transactional |= _is_transactional(data.records)
        self.items = list(items.values())
        transactional = [
            item for item in self.items if item.batch is not None and item.batch.is_transactional
        ]
        self._has_transactional |= bool(transactional)
        # A batch with the bit and without a producer is in no transaction: it is authorized, and appended as it is.
        return [item for item in transactional if item.batch is not None and item.batch.producer_id >= 0]

    def _locate(self, item: Item) -> None:
        """Resolve the topic; the check that this node leads it comes later, as in Kafka."""
        metadata = self._context.node.metadata
        if self._context.api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
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
        """Exactly one whole batch of format 2, of a codec that the version may use."""
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
        if batch.compression == compression.ZSTD and self._context.api_version < FIRST_VERSION_WITH_ZSTD:
            item.result = AppendResult(ErrorCode.unsupported_compression_type)
        elif records is not None and len(records) > batch.size and _has_batch(records, batch.size):
            item.result = AppendResult(ErrorCode.invalid_record)
        else:
            item.batch = batch

    def _refuse_as_a_whole(self, transactional: Sequence[Item]) -> bool:
        """A transactional batch without an id, or batches of two producers, refuse every partition."""
        error = ErrorCode.none
        producers = {
            (item.batch.producer_id, item.batch.producer_epoch)
            for item in transactional
            if item.batch is not None
        }
        if self._request.transactional_id is None:
            error = ErrorCode.transactional_id_authorization_failed
        elif len(producers) > 1:
            error = ErrorCode.invalid_producer_id_mapping
        if error is ErrorCode.none:
            return False
        message = "a request carries the batches of one producer" if len(producers) > 1 else None
        for item in self.items:
            item.result = AppendResult(error, message=message)
        return True

    # -- verifying ----------------------------------------------------------------------------------------------

    def _verify(self, transactional: Sequence[Item]) -> None:
        replicas = self._context.node.replicas
        for item in transactional:
            partition = replicas.leader(item.name, item.index)
            batch = item.batch
            if isinstance(partition, Partition) and batch is not None:
                item.check = Check(partition, batch.producer_id, batch.producer_epoch, batch.base_sequence)
        checks = [item.check for item in transactional if item.check is not None]
        config = self._context.node.config
        settled = False

        def verified() -> None:
            nonlocal settled
            settled = True
            self._append()

        self._context.node.verifier.run(
            self._request.transactional_id or "",
            checks,
            adds=self._context.api_version >= FIRST_VERSION_WITH_IMPLICIT_ADD,
            wait_ms=min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms),
            then=self._guarded(verified),
        )
        if not settled:
            self._keep_batches()

    def _keep_batches(self) -> None:
        """The request waits, and the buffer that its batches lie in may be used for the next frame: copy them."""
        for item in self.items:
            if item.batch is not None:
                item.batch = RecordBatch.parse(bytes(item.batch.data))

    def _verification_result(self, error: ErrorCode) -> AppendResult:
        version = self._context.api_version
        answer = _VERIFICATION_ERRORS.get(error, error)
        if error is ErrorCode.transaction_abortable and version < FIRST_VERSION_WITH_ABORTABLE:
            answer = ErrorCode.invalid_txn_state
        elif error is ErrorCode.concurrent_transactions and version < FIRST_VERSION_WITH_IMPLICIT_ADD:
            answer = ErrorCode.not_enough_replicas
        # A code that stands for another one says so, as on Kafka.
        explained = answer in (ErrorCode.invalid_txn_state, ErrorCode.not_enough_replicas)
        message = f"The transaction could not be verified: {error.name.upper()}" if explained else None
        return AppendResult(answer, message=message)

    # -- appending ----------------------------------------------------------------------------------------------

    def _append(self) -> None:
        acks = self._request.acks
        self._left = 1
        for item in self.items:
            if item.result is not None:
                continue
            check = item.check
            if check is not None and check.error is not ErrorCode.none:
                item.result = self._verification_result(check.error)
            elif acks not in VALID_ACKS:
                item.result = AppendResult(ErrorCode.invalid_required_acks)
            else:
                self._append_one(item)
        self._appended()

    def _append_one(self, item: Item) -> None:
        """Append at once, or after what must be read first: this batch, or another for the same partition."""
        if is_internal(item.name) and self._context.client_id != ADMIN_CLIENT_ID:
            item.result = AppendResult(ErrorCode.invalid_topic_exception)
            return
        node = self._context.node
        partition = node.replicas.leader(item.name, item.index)
        if not isinstance(partition, Partition):
            item.result = AppendResult(partition)
            return
        item.partition = partition
        assert item.batch is not None
        queues = node.append_queues
        checked = partition.check(item.batch, queues.limits)
        if isinstance(checked, Checked | Invalid) and queues.is_free(partition):
            self._append_checked(item, partition, checked)
            return
        self._left += 1

        def append(checked: Checked | Invalid) -> None:
            leader = node.replicas.leader(item.name, item.index)
            if leader is partition:
                self._append_checked(item, partition, checked)
            else:
                gone = ErrorCode.not_leader_or_follower
                item.result = AppendResult(gone if isinstance(leader, Partition) else leader)
            self._appended()

        queues.add(partition, checked, lambda checked: self._guarded(lambda: append(checked))())

    def _append_checked(self, item: Item, partition: Partition, checked: Checked | Invalid) -> None:
        assert item.batch is not None
        guard = item.check.guard if item.check is not None else None
        item.result = partition.append(
            item.batch, required_acks=self._request.acks, guard=guard, checked=checked
        )

    def _appended(self) -> None:
        """One batch less is to be appended; after the last of them comes what the acks ask for."""
        self._left -= 1
        if self._left:
            return
        if self._request.acks == ACKS_ALL:
            self._await_commit()
        elif self._context.node.injection.points is not None:
            self._await_disk()
        else:
            self.finished(self.items)

    def _await_disk(self) -> None:
        """acks=1 while a rule stands at ``log.write``: answer when what was appended counts, however slow the disk is."""
        appended = [item for item in self.items if item.result is not None and item.result.last_offset >= 0]
        self._left = len(appended) + 1

        def written(error: ErrorCode, item: Item | None = None) -> None:
            if item is not None and error is not ErrorCode.none:
                item.result = AppendResult(error)
            self._left -= 1
            if self._left == 0:
                self.finished(self.items)

        for item in appended:
            assert item.partition is not None
            assert item.result is not None
            item.partition.unconfirmed.on_written(item.result.last_offset + 1, partial(written, item=item))
        written(ErrorCode.none)

    def _await_commit(self) -> None:
        """acks=all: answer when every appended batch (a repeated one too) is below the high watermark."""
        waiting = [
            item
            for item in self.items
            if item.partition is not None
            and item.result is not None
            and item.result.error is ErrorCode.none
            and item.partition.high_watermark <= item.result.last_offset
        ]
        if not waiting:
            self.finished(self.items)
            return
        self._left = len(waiting)
        timer = self._context.node.clock.call_later_ms(
            self._request.timeout_ms, lambda: self._time_is_up(waiting), Domain.REQUESTS
        )
        for item in waiting:
            assert item.partition is not None
            assert item.result is not None

            def committed(error: ErrorCode, item: Item = item) -> None:
                self._committed(item, error)
                if self._left == 0:
                    timer.cancel()

            item.partition.on_committed(item.result.last_offset + 1, committed)

    def _committed(self, item: Item, error: ErrorCode) -> None:
        if self._left == 0:
            return
        if error is not ErrorCode.none:
            assert item.result is not None
            item.result = item.result._replace(
                error=error
            )  # the data stays, and so do its offsets in the answer
        self._left -= 1
        if self._left == 0:
            self.finished(self.items)

    def _time_is_up(self, waiting: Sequence[Item]) -> None:
        """The data stays; the client does not know."""
        if self._left == 0:
            return
        self._left = 0
        for item in waiting:
            assert item.partition is not None
            assert item.result is not None
            if item.partition.high_watermark <= item.result.last_offset:
                item.result = item.result._replace(error=ErrorCode.request_timed_out)
        self.finished(self.items)


def _is_transactional(records: bytes | memoryview | None) -> bool:
    try:
        return RecordBatch.parse(records or b"").is_transactional
    except CorruptBatch:
        return False


def _magic(records: bytes | memoryview | None) -> int:
    return records[16] if records is not None and len(records) > 16 else MAGIC


def _has_batch(records: bytes | memoryview, start: int) -> bool:
    """Does another whole batch follow? A torn one is cut off in silence, as Kafka's iterator does."""
    try:
        RecordBatch.parse(records, start)
    except CorruptBatch:
        return False
    return True
