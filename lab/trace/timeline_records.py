"""The records of logs from which a timeline is built, and the event, one line of the timeline."""

from __future__ import annotations

from broker.injection.happenings import Happening
from broker.transactions.transaction import TransactionState
from lab.trace.exchange import Exchange
from protocol.records.transaction_log import TransactionLogValue
from protocol.slotted import slotted

NEVER_MS = 2**63 - 1
TopicPartition = tuple[str, int]
BatchKey = tuple[str, int, int, int, int]
"""(topic, partition, producer id, producer epoch, first sequence): identifies a batch even before it has an offset."""


@slotted(frozen=True)
class Scanned:
    """The part of a partition's log that was read, on which node, and whether it contains all batches of the timeline."""

    topic: str
    partition: int
    node_id: int
    from_offset: int
    end_offset: int
    is_whole: bool


@slotted(frozen=True, eq=False)
class StateRecord:
    """A record of ``__transaction_state`` for the transactional id, or a tombstone, which has no value."""

    node_id: int
    topic: str
    partition: int
    offset: int
    time_ms: int
    value: TransactionLogValue | None

    @property
    def state(self) -> TransactionState | None:
        return None if self.value is None else TransactionState(self.value.transaction_status)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        if self.value is None:
            return frozenset()
        return frozenset(
            (topic.topic, index)
            for topic in self.value.transaction_partitions or ()
            for index in topic.partition_ids
        )


@slotted(frozen=True)
class CommittedOffset:
    """An offset of a group, committed in the transaction."""

    group_id: str
    topic: str
    partition: int
    offset: int


@slotted(frozen=True, eq=False)
class BatchWritten:
    """A batch of a producer of the transactional id. A batch in ``__consumer_offsets`` commits offsets of a group."""

    node_id: int
    topic: str
    partition: int
    offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    records: int
    bytes: int
    time_ms: int
    leader_epoch: int
    is_transactional: bool = True
    offsets: tuple[CommittedOffset, ...] = ()

    @property
    def key(self) -> BatchKey:
        return self.topic, self.partition, self.producer_id, self.producer_epoch, self.base_sequence


@slotted(frozen=True, eq=False)
class MarkerWritten:
    """The end of a transaction in one partition."""

    node_id: int
    topic: str
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    time_ms: int
    leader_epoch: int


@slotted(frozen=True)
class Hanging:
    """A transaction that is open in a partition but unknown to its coordinator, so that nothing will end it."""

    topic: str
    partition: int
    node_id: int
    offset: int
    """First offset of the transaction. read_committed readers stop there."""
    producer_id: int
    producer_epoch: int


Written = StateRecord | BatchWritten | MarkerWritten


@slotted(frozen=True, eq=False)
class Event:
    """One line of a timeline: a state, a batch, a marker, a request with its response, or a `Happening`."""

    what: Written | Exchange | Happening
    transaction: int | None
    """Number of the event's transaction, from 1; None if the event belongs to no known transaction."""
    order_ms: int
    """Time by which events are ordered. For a batch: the client's timestamp, limited by the other events' times."""
    joined: tuple[TopicPartition, ...] = ()
    """For a state: the partitions that the transaction's previous record does not have."""
