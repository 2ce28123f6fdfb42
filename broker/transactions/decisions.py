"""The state machine of a transactional id. Pure: no clock, no log, no event loop.

Each function takes one request of a producer (or of the coordinator itself) and returns a ``Decision``: an immediate
response, or a transition that must be committed in ``__transaction_state`` before the client gets a response. The error
codes and the order of the checks are those of Kafka's ``TransactionCoordinator`` and ``TransactionMetadata`` (KIP-98,
KIP-360, KIP-588, KIP-890).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.transactions.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_MAX,
    LAST_USABLE_EPOCH,
    NEEDS_PRODUCER_ID,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    SETTLED,
    TRANSACTION_VERSION_2,
    VALID_PREDECESSORS,
    AbortFirst,
    Answer,
    Decision,
    NeedsProducerId,
    TopicPartition,
    Transaction,
    TransactionState,
    Transition,
)
from protocol.errors import NONE, ErrorCode
from protocol.records.transaction_log import TIMEOUT_NEVER_MS


def _next(
    txn: Transaction,
    state: TransactionState,
    last_update_ms: int,
    producer_id: int | None = None,
    next_producer_id: int | None = None,
    epoch: int | None = None,
    last_epoch: int | None = None,
    timeout_ms: int | None = None,
    partitions: frozenset[TopicPartition] | None = None,
    start_ms: int | None = None,
    client_version: int | None = None,
) -> Transaction:
    """Return the state that follows ``txn``: ``previous_producer_id`` is the producer id of ``txn``, and each
    field whose argument is None has its value in ``txn``."""
    assert txn.state in VALID_PREDECESSORS[state], f"{txn.state.name} cannot become {state.name}"
    return Transaction(
        txn.transactional_id,
        txn.producer_id if producer_id is None else producer_id,
        txn.producer_id,
        txn.next_producer_id if next_producer_id is None else next_producer_id,
        txn.epoch if epoch is None else epoch,
        txn.last_epoch if last_epoch is None else last_epoch,
        txn.timeout_ms if timeout_ms is None else timeout_ms,
        state,
        txn.partitions if partitions is None else partitions,
        txn.start_ms if start_ms is None else start_ms,
        last_update_ms,
        txn.client_version if client_version is None else client_version,
    )


# -- InitProducerId ---------------------------------------------------------------------------------------------


def init_producer_id(
    txn: Transaction,
    pending: TransactionState | None,
    *,
    timeout_ms: int,
    producer_id: int,
    epoch: int,
    now_ms: int,
    fresh_producer_id: int | None = None,
) -> Answer | Transition | AbortFirst | NeedsProducerId:
    """Decide InitProducerId: a producer starts (``producer_id`` -1), or requests an epoch bump (KIP-360)."""
    if pending is not None:
        return Answer(ErrorCode.concurrent_transactions)
    given = producer_id != NO_PRODUCER_ID
    if given and not _may_continue(txn, producer_id, epoch):
        return Answer(ErrorCode.producer_fenced)
    if txn.state in PREPARED:
        return Answer(ErrorCode.concurrent_transactions)
    if txn.state is ONGOING:
        return AbortFirst(Answer(ErrorCode.concurrent_transactions))
    if txn.state not in SETTLED:
        return Answer(ErrorCode.unknown_server_error)
    if txn.is_epoch_exhausted:
        return _rotate(txn, timeout_ms, epoch if given else None, now_ms, fresh_producer_id)
    return _bump(txn, timeout_ms, epoch if given else None, now_ms)


def _may_continue(txn: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether the request has the current producer id, or the previous producer id right after that id's last epoch."""
    return (
        txn.epoch == NO_EPOCH
        or producer_id == txn.producer_id
        or (producer_id == txn.previous_producer_id and epoch >= LAST_USABLE_EPOCH)
    )


def _bump(txn: Transaction, timeout_ms: int, expected: int | None, now_ms: int) -> Decision:
    if expected is None:
        epoch, last_epoch = txn.epoch + 1, NO_EPOCH
    elif txn.epoch == NO_EPOCH or expected == txn.epoch:
        epoch, last_epoch = txn.epoch + 1, txn.epoch
    elif expected == txn.last_epoch:
        # A retry of a request whose response was lost: do not bump again.
        epoch, last_epoch = txn.epoch, txn.last_epoch
    else:
        return Answer(ErrorCode.producer_fenced)
    return _initialised(txn, txn.producer_id, epoch, last_epoch, timeout_ms, now_ms)


def _rotate(
    txn: Transaction, timeout_ms: int, expected: int | None, now_ms: int, fresh_producer_id: int | None
) -> Decision | NeedsProducerId:
    if expected is not None and expected != txn.epoch:
        return Answer(ErrorCode.unknown_server_error)  # Kafka throws IllegalStateException here
    if fresh_producer_id is None:
        return NEEDS_PRODUCER_ID
    last_epoch = txn.epoch if expected is not None else NO_EPOCH
    return _initialised(txn, fresh_producer_id, 0, last_epoch, timeout_ms, now_ms)


def _initialised(
    txn: Transaction, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
) -> Transition:
    after = _next(
        txn,
        EMPTY,
        producer_id=producer_id,
        next_producer_id=NO_PRODUCER_ID,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIME,
        last_update_ms=now_ms,
    )
    return Transition(after, Answer(NONE, producer_id, epoch))


# -- adding partitions ------------------------------------------------------------------------------------------


def _check_producer(
    txn: Transaction | None,
    pending: TransactionState | None,
    producer_id: int,
    epoch: int,
    ignore_pending: bool = False,
) -> ErrorCode:
    """Return the first error of the checks that add_partitions and verify_partitions share, in Kafka's order, or NONE."""
    if txn is None:
        return ErrorCode.invalid_producer_id_mapping
    if pending is not None and not ignore_pending:
        return ErrorCode.concurrent_transactions
    if producer_id != txn.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if epoch != txn.epoch:
        return ErrorCode.producer_fenced
    if txn.state in PREPARED:
        return ErrorCode.concurrent_transactions
    return NONE


def add_partitions(
    txn: Transaction | None,
    pending: TransactionState | None,
    producer_id: int,
    epoch: int,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> Decision:
    """Decide to add ``partitions`` to the transaction. If no transaction is open, this begins one."""
    error = _check_producer(txn, pending, producer_id, epoch)
    if error is not NONE or txn is None:
        return Answer(error)
    is_open = txn.state is ONGOING
    if is_open and txn.partitions.issuperset(partitions):
        return Answer(NONE, producer_id, epoch)
    after = _next(
        txn,
        ONGOING,
        partitions=txn.partitions.union(partitions) if is_open else frozenset(partitions),
        start_ms=txn.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )
    return Transition(after, Answer(NONE, producer_id, epoch))


def verify_partitions(
    txn: Transaction | None, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return for each partition whether it is part of the open transaction: NONE or the error (KIP-890, part 1)."""
    error = _check_producer(txn, None, producer_id, epoch, ignore_pending=True)
    if error is not NONE or txn is None:
        return dict.fromkeys(partitions, error)
    return {
        partition: NONE if partition in txn.partitions else ErrorCode.transaction_abortable
        for partition in partitions
    }


# -- EndTxn -----------------------------------------------------------------------------------------------------

# Response to an EndTxn for a transaction that is already ended, by its state and the requested result. Version 1: the
# transaction is not open. Version 2: the epoch of the request is one behind. Any other combination gets INVALID_TXN_STATE.
_DECIDED = {
    (COMPLETE_COMMIT, True): NONE,
    (COMPLETE_ABORT, False): NONE,
    (PREPARE_COMMIT, True): ErrorCode.concurrent_transactions,
    (PREPARE_ABORT, False): ErrorCode.concurrent_transactions,
}


def end_v1(
    txn: Transaction | None,
    pending: TransactionState | None,
    producer_id: int,
    epoch: int,
    committed: bool,
    now_ms: int,
) -> Decision:
    """Decide EndTxn v0-v4, which does not change the producer epoch."""
    if txn is None or producer_id != txn.producer_id:
        return Answer(ErrorCode.invalid_producer_id_mapping)
    if epoch != txn.epoch:
        return Answer(ErrorCode.producer_fenced)
    if pending is not None and pending is not TransactionState.PREPARE_EPOCH_FENCE:
        return Answer(ErrorCode.concurrent_transactions)
    if txn.state is not ONGOING:
        return Answer(_DECIDED.get((txn.state, committed), ErrorCode.invalid_txn_state))
    after = _next(
        txn,
        PREPARE_COMMIT if committed else PREPARE_ABORT,
        last_update_ms=now_ms,
        client_version=0,
    )
    return Transition(after, Answer(NONE))


def end_v2(
    txn: Transaction | None,
    pending: TransactionState | None,
    producer_id: int,
    epoch: int,
    committed: bool,
    now_ms: int,
    fresh_producer_id: int | None = None,
) -> Decision | NeedsProducerId:
    """Decide EndTxn v5 and later, where each end of a transaction bumps the producer epoch (KIP-890, part 2)."""
    if txn is None:
        return Answer(ErrorCode.invalid_producer_id_mapping)
    if pending is not None and pending is not TransactionState.PREPARE_EPOCH_FENCE:
        return Answer(ErrorCode.concurrent_transactions)
    repeated_after_rotation = (
        txn.previous_producer_id == producer_id and epoch == LAST_USABLE_EPOCH and txn.epoch == 0
    )
    if producer_id != txn.producer_id and not repeated_after_rotation:
        return Answer(ErrorCode.invalid_producer_id_mapping)
    repeated = txn.epoch == epoch + 1 or repeated_after_rotation
    if not _is_epoch_valid_v2(txn, epoch, repeated=repeated):
        return Answer(ErrorCode.producer_fenced)
    if repeated:
        error = _DECIDED.get((txn.state, committed), ErrorCode.invalid_txn_state)
        if error is NONE:
            return Answer(error, txn.producer_id, txn.epoch)
        return Answer(error)
    # There is nothing to commit. An abort without partitions still bumps the epoch, which fences requests in flight.
    if committed and txn.state is not ONGOING:
        return Answer(ErrorCode.invalid_txn_state)
    if committed and txn.epoch >= EPOCH_MAX:
        # Reached only after a fence by an older version; Kafka throws here.
        return Answer(ErrorCode.unknown_server_error)
    return _prepare_v2(txn, now_ms, fresh_producer_id, committed=committed)


def _is_epoch_valid_v2(txn: Transaction, epoch: int, repeated: bool) -> bool:
    if txn.state in (ONGOING, EMPTY):
        return epoch == txn.epoch
    if txn.state in PREPARED:
        return txn.epoch == epoch + 1
    return repeated or epoch == txn.epoch


def _prepare_v2(
    txn: Transaction, now_ms: int, fresh_producer_id: int | None, committed: bool
) -> Transition | NeedsProducerId:
    """Return the transition to PrepareX with a bumped epoch.

    The Prepare record and the markers have the bumped epoch, the data batches have the epoch before. Epoch 32767 cannot be
    bumped: an abort keeps it, and CompleteAbort switches to the next producer id
    (``TransactionMetadata.prepareAbortOrCommit``).
    """
    exhausted = txn.is_epoch_exhausted
    if exhausted and fresh_producer_id is None:
        return NEEDS_PRODUCER_ID
    after = _next(
        txn,
        PREPARE_COMMIT if committed else PREPARE_ABORT,
        next_producer_id=fresh_producer_id if exhausted else NO_PRODUCER_ID,
        epoch=min(txn.epoch + 1, EPOCH_MAX),
        last_epoch=txn.epoch,
        start_ms=txn.start_ms if txn.state is ONGOING else now_ms,
        last_update_ms=now_ms,
        client_version=2,
    )
    if exhausted:
        assert fresh_producer_id is not None
        return Transition(after, Answer(NONE, fresh_producer_id, 0))
    return Transition(after, Answer(NONE, after.producer_id, after.epoch))


def abort_by_coordinator(
    txn: Transaction,
    *,
    transaction_version: int,
    failed_fence: bool,
    now_ms: int,
    fresh_producer_id: int | None = None,
) -> Transition | NeedsProducerId:
    """Abort the open transaction after a timeout or for a new instance of the producer. The epoch bump fences the old
    instance.

    ``failed_fence``: an earlier attempt bumped the epoch in memory but could not write the record, so do not bump again.
    """
    assert txn.state is ONGOING, txn
    if transaction_version >= TRANSACTION_VERSION_2:
        return _prepare_v2(txn, now_ms, fresh_producer_id, committed=False)
    epoch = txn.epoch if failed_fence or txn.epoch >= EPOCH_MAX else txn.epoch + 1
    after = _next(
        txn,
        PREPARE_ABORT,
        epoch=epoch,
        last_epoch=NO_EPOCH,
        last_update_ms=now_ms,
        client_version=0,  # as in every end without an epoch bump, even at transaction.version 1 (``endTransactionWithTV1``)
    )
    return Transition(after, Answer(NONE))


def complete(txn: Transaction, now_ms: int) -> Transaction:
    """Return the CompleteX state, for a transaction whose markers are all written."""
    state = COMPLETE_COMMIT if txn.state is PREPARE_COMMIT else COMPLETE_ABORT
    rotated = txn.client_version >= 2 and txn.next_producer_id != NO_PRODUCER_ID
    return _next(
        txn,
        state,
        producer_id=txn.next_producer_id if rotated else txn.producer_id,
        epoch=0 if rotated else txn.epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )


# -- time -------------------------------------------------------------------------------------------------------


def is_timed_out(txn: Transaction, pending: TransactionState | None, now_ms: int) -> bool:
    """Whether an open transaction has timed out. The timeout counts from the first partition, not from the last activity."""
    return (
        txn.state is ONGOING
        and pending is None
        and txn.timeout_ms != TIMEOUT_NEVER_MS
        and txn.start_ms + txn.timeout_ms < now_ms
    )


def is_expired(txn: Transaction, pending: TransactionState | None, now_ms: int, expiration_ms: int) -> bool:
    """Whether a transactional id without an open transaction has been idle for ``expiration_ms``."""
    return txn.state in SETTLED and pending is None and txn.last_update_ms <= now_ms - expiration_ms
