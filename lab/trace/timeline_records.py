"""What a timeline is made of: what the logs hold of an id, and the line that each becomes."""

from __future__ import annotations

from broker.injection.happenings import Happening
from broker.transactions.transaction import TransactionState
from lab.trace.exchange import Exchange
from protocol.records.transaction_log import TransactionLogValue
from protocol.slotted import slotted

NEVER_MS = 2**63 - 1
TopicPartition = tuple[str, int]
BatchKey = tuple[str, int, int, int, int]
"""Topic, partition, producer id and epoch, first sequence: which batch it is, also before it has an offset."""


@slotted(frozen=True)
class Scanned:
    """A part of a log that was read: of which partition, where, and whether it was all that could matter."""

    topic: str
    partition: int
    node_id: int
    from_offset: int
    end_offset: int
    is_whole: bool


@slotted(frozen=True, eq=False)
class StateRecord:
    """A record of ``__transaction_state`` for the id; no value: it was forgotten."""

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
    """An offset of a group, written in the transaction."""

    group_id: str
    topic: str
    partition: int
    offset: int


@slotted(frozen=True, eq=False)
class BatchWritten:
    """A batch of one of the id's producers; in ``__consumer_offsets`` it holds offsets of a group."""

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
    """A transaction that is open in a partition while its coordinator knows nothing of it: nothing will end it."""

    topic: str
    partition: int
    node_id: int
    offset: int
    """Its first one: read_committed readers stop there."""
    producer_id: int
    producer_epoch: int


Written = StateRecord | BatchWritten | MarkerWritten


@slotted(frozen=True, eq=False)
class Event:
    """One line of a timeline."""

    what: Written | Exchange | Happening
    transaction: int | None
    """The number of the transaction that it belongs to, from 1; None: to none that is known."""
    order_ms: int
    """Where it stands in time; of a batch what its client said, moved to where it must have been."""
    joined: tuple[TopicPartition, ...] = ()
    """Of a state: the partitions that the record before it of the same transaction does not have."""
