"""One transactional id as a value, its states, and what a coordinator may decide about it.

What becomes of it stands in `broker.transactions.decisions`.
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
"""32767 is left for the marker that fences the last producer of an id."""
NO_TIME = -1
TRANSACTION_VERSION_2 = 2
TIMEOUT_NEVER_MS = 2**31 - 1
"""A two-phase-commit producer's timeout: such transactions are not timed out (KIP-939)."""


class TransactionState(IntEnum):
    """``TransactionStatus`` as stored. The last two exist in memory only."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
    """Never pending here: Kafka fences with it before an abort of its own, where this coordinator does both in one step."""

    __hash__ = int.__hash__

    @property
    def wire_name(self) -> str:
        """As the inspecting APIs spell it: ``PrepareCommit``."""
        return self.name.title().replace("_", "")


# Up to Python 3.11 each access to a member through its class costs as much as a call.
EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT

NAMED_STATES = frozenset(state.wire_name for state in TransactionState)
"""The states that a client may filter by (KIP-664)."""

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
    """What ``__transaction_state`` holds of one id, and ``last_epoch``, which lives in memory only.

    A tuple, because each commit makes three new ones.
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
    """0 for clients of the old protocol, 2 for KIP-890's: which rules the current transaction runs under."""

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.epoch >= LAST_USABLE_EPOCH


class Answer(NamedTuple):
    """Said at once; nothing changes."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class Transition(NamedTuple):
    """``after`` must be in the log before ``answer`` is given."""

    after: Transaction
    answer: Answer


class AbortFirst(NamedTuple):
    """An open transaction is in the way: abort it as the coordinator, then give ``answer``."""

    answer: Answer


class NeedsProducerId:
    """Ask again with ``fresh_producer_id``: this id's epochs are used up."""

    __slots__ = ()


Decision = Answer | Transition
NEEDS_PRODUCER_ID = NeedsProducerId()
