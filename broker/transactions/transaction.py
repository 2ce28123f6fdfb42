"""The state of one transactional id as a value, and the results that a decision of the coordinator can have.

The decisions are made in `broker.transactions.decisions`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple

TopicPartition = tuple[str, int]

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 32767
LAST_USABLE_EPOCH = EPOCH_MAX - 1
"""Last epoch for producers. Epoch 32767 is reserved for the marker that fences the last producer of a producer id."""
NO_TIME = -1
TRANSACTION_VERSION_2 = 2


class TransactionState(IntEnum):
    """Kafka's ``TransactionState`` with the numbers in the records. The last two states exist in memory only."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
    """Not used here: Kafka fences the producer in a separate step before the abort, this coordinator in the same step."""

    __hash__ = int.__hash__

    @property
    def wire_name(self) -> str:
        """The name in responses of DescribeTransactions and ListTransactions, such as ``PrepareCommit``."""
        return self.name.title().replace("_", "")


# Up to Python 3.11, access to a member through its enumeration costs as much as a call.
EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT

NAMED_STATES = frozenset(state.wire_name for state in TransactionState)
"""The states that ListTransactions can filter by (KIP-664)."""

PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
SETTLED = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)

VALID_PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING: frozenset({ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: frozenset(
        {
            ONGOING,
            TransactionState.PREPARE_EPOCH_FENCE,
            EMPTY,
            COMPLETE_COMMIT,
            COMPLETE_ABORT,
        }
    ),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    TransactionState.DEAD: frozenset({EMPTY, COMPLETE_ABORT, COMPLETE_COMMIT}),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}


class Transaction(NamedTuple):
    """State of one transactional id: the fields in ``__transaction_state``, and ``last_epoch``, which is in memory only.

    A tuple for speed, because each commit creates three of them.
    """

    transactional_id: str
    producer_id: int = NO_PRODUCER_ID
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    last_update_ms: int = NO_TIME
    client_version: int = 0
    """Protocol of the current transaction: 0 for old clients, 2 for clients of KIP-890 part 2."""

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.epoch >= LAST_USABLE_EPOCH


class Answer(NamedTuple):
    """Decision: respond at once; the state does not change."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class Transition(NamedTuple):
    """Decision: the new state ``after`` must be committed in the log before the response ``answer`` is sent."""

    after: Transaction
    answer: Answer


class AbortFirst(NamedTuple):
    """Decision: the coordinator must abort the open transaction first; ``answer`` is the response after that."""

    answer: Answer


class NeedsProducerId:
    """No decision yet, as the epochs of the producer id are exhausted: decide again with a ``fresh_producer_id``."""

    __slots__ = ()


Decision = Answer | Transition
NEEDS_PRODUCER_ID = NeedsProducerId()
