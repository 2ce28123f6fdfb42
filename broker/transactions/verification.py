"""The partition leader verifies with the coordinator that a batch's transaction is open (KIP-890).

Old clients send AddPartitionsToTxn before a batch, so the coordinator verifies that the transaction contains the partition.
Clients of transaction version 2 do not, so the coordinator adds the partition on their first batch. If the coordinator is
on this node, the result is available in the same turn of the event loop; otherwise a request is sent
(`add_partitions_manager`). In both cases the leader creates a guard before the verification, and passes the guard to the
append. A marker that is written in between invalidates the guard, so the append is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain
from broker.clock.sleeping import sleep_ms
from broker.replicas.partition.partition import Partition
from broker.transactions.add_partitions_manager import AddPartitionsToTxnManager, Errors, VerificationRequest
from protocol.errors import NONE, ErrorCode
from storage.producers import VerificationGuard

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.loop.life import NodeLife
    from broker.peers import Peers
    from broker.transactions.coordinator import TransactionCoordinator

CLIENT_VERSION_2 = 2


class Check:
    """Verification of one partition of a transactional request, and its result: ``guard`` and ``error``."""

    __slots__ = ("epoch", "error", "guard", "partition", "producer_id", "sequence")

    def __init__(self, partition: Partition, producer_id: int, epoch: int, sequence: int) -> None:
        self.partition = partition
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        """Sequence of the batch's first record; -1 for offset commits."""
        self.guard: VerificationGuard | None = None
        self.error: ErrorCode = NONE


class Verifier:
    """Verifies partitions with the transaction coordinator, on behalf of the partitions' leader."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        transactions: TransactionCoordinator,
        life: NodeLife,
        peers: Peers | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._transactions = transactions
        self._peers = peers
        self._remote = AddPartitionsToTxnManager(peers, life) if peers is not None else None

    async def run(self, transactional_id: str, checks: Sequence[Check], *, adds: bool, wait_ms: int) -> None:
        """Verify or add the partition of each check at the coordinator. Sets the check's ``guard`` and ``error``.

        ``adds``: add the partitions, as the client relies on the implicit add; otherwise only verify them.
        ``wait_ms``: how long an add may be retried while the producer's previous transaction is being completed.
        Each attempt starts from the beginning, with new guards (``ReplicaManager.handleProduceAppend``), because
        the marker that ended the previous transaction has removed the old guards. The method suspends only if the
        coordinator is on another node, or before a retry.
        """
        deadline_ms: int | None = None
        while True:
            asked = self._to_ask(transactional_id, checks, adds)
            if not asked:
                return
            began_ms = self._clock.now_ms(Domain.REQUESTS) if adds and self._remote is not None else None
            errors = await self._ask(transactional_id, asked, verifies=not adds)
            if not adds or ErrorCode.concurrent_transactions not in errors.values():
                break
            backoff_ms = self._config.add_partitions_to_txn_retry_backoff_ms
            now_ms = self._clock.now_ms(Domain.REQUESTS)
            if deadline_ms is None:
                deadline_ms = (now_ms if began_ms is None else began_ms) + wait_ms
            if now_ms + backoff_ms > deadline_ms:
                break
            await sleep_ms(self._clock, backoff_ms, Domain.REQUESTS)
        for check in asked:
            check.error = errors[check.partition.key]

    def _to_ask(self, transactional_id: str, checks: Sequence[Check], adds: bool) -> list[Check]:
        """Return the checks that the coordinator has to verify or add, and set the results of the other checks."""
        now_ms = self._clock.now_ms(Domain.PRODUCERS)
        asked = [check for check in checks if self._is_asked(check, now_ms, adds)]
        if transactional_id:
            return asked
        for check in asked:
            check.error = ErrorCode.invalid_request
        return []

    def _is_asked(self, check: Check, now_ms: int, adds: bool) -> bool:
        if not adds and not self._config.transaction_partition_verification_enable:
            return False
        check.guard, check.error = None, NONE
        producers = check.partition.log.producers
        entry = producers.entries.get(check.producer_id)
        if entry is not None and check.epoch < entry.epoch:
            check.error = ErrorCode.invalid_producer_epoch
            return False
        check.guard = producers.start_verification(
            check.producer_id,
            check.epoch,
            check.sequence,
            adds,
            now_ms,
        )
        return check.guard is not None

    async def _ask(self, transactional_id: str, checks: Sequence[Check], *, verifies: bool) -> Errors:
        """Ask the id's coordinator to verify (``verifies``) or add the partitions; returns an error for each partition."""
        keys = [check.partition.key for check in checks]
        producer_id, epoch = checks[0].producer_id, checks[0].epoch
        node_id = self._transactions.node_for(transactional_id)
        if self._remote is not None and self._peers is not None and node_id != self._peers.node_id:
            if node_id is None or not self._peers.is_alive(node_id):
                return dict.fromkeys(keys, ErrorCode.coordinator_not_available)
            verification = VerificationRequest(transactional_id, producer_id, epoch, keys, verifies)
            self._remote.send(node_id, verification)
            return await verification.answered
        if verifies:
            return self._transactions.verify_partitions(transactional_id, producer_id, epoch, keys)
        answer = await self._transactions.add_partitions(
            transactional_id, producer_id, epoch, keys, CLIENT_VERSION_2
        )
        return dict.fromkeys(keys, answer.error)
