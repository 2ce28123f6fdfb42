"""Records of `__transaction_state`: the states of transactional ids.

Version 1 (KIP-890) is written if the cluster's `transaction.version` is at least 1. `transaction_partitions` is None if the
state is Empty, and an empty list if it is Complete.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from protocol.schema import (
    Key,
    Structure,
    Value,
    array,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    string,
)
from protocol.slotted import slotted
from protocol.wire_types import INT32

TIMEOUT_NEVER_MS: Final = 2**31 - 1
"""``transaction_timeout_ms`` of a producer with two-phase commit: its transactions do not time out (KIP-939)."""


@slotted
class TransactionLogKey(Key):
    TYPE: ClassVar[int] = 0

    transactional_id: str = string()


@slotted
class TransactionPartitions(Structure):
    """The partitions of one topic in the transaction."""

    topic: str = string()
    partition_ids: Sequence[int] = array(INT32)


@slotted
class TransactionLogValue(Value):
    VERSIONS: ClassVar[range] = range(2)
    FLEXIBLE: ClassVar[int | None] = 1

    producer_id: int = int64()
    previous_producer_id: int = int64(-1, since=1, tag=0)
    next_producer_id: int = int64(-1, since=1, tag=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16(-1, since=1, tag=3)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: Sequence[TransactionPartitions] | None = nullable_array(TransactionPartitions)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16(since=1, tag=2)


VALUE_OF: dict[type[Key], type[Value]] = {TransactionLogKey: TransactionLogValue}
