"""Sends AddPartitionsToTxn to coordinators on other nodes, before a transactional batch is appended (KIP-890).

One request is in flight to each node. Verifications that arrive in the meantime go in the next request, at most one for each
transactional id (Kafka's ``AddPartitionsToTxnManager``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from broker.loop.coroutines import Waiter, start_in_background
from broker.metadata.topics import by_topic
from broker.peers.senders import partition_verifier
from broker.transactions.transaction import TopicPartition
from protocol.errors import NONE, ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.loop.life import NodeLife
    from broker.peers import Peers

API_KEY: Final = 24
API_VERSION: Final = 5

Errors = dict[TopicPartition, ErrorCode]


@slotted(frozen=True)
class VerificationRequest:
    """The partitions of one transaction that a partition leader asks the coordinator to verify or to add."""

    transactional_id: str
    producer_id: int
    epoch: int
    keys: Sequence[TopicPartition]
    verifies: bool
    """True: only verify that the transaction contains the partitions. False: add the partitions to the transaction."""
    answered: Waiter[Errors] = field(default_factory=Waiter)
    """Waiter that is woken with the error code of each partition."""

    def answer(self, error: ErrorCode) -> None:
        self.answered.wake(dict.fromkeys(self.keys, error))


class AddPartitionsToTxnManager:
    """Sends verifications for the partitions that this node leads, one request at a time to each coordinator node."""

    def __init__(self, peers: Peers, life: NodeLife) -> None:
        self._client_id = partition_verifier(peers.node_id)
        self._peers = peers
        self._life = life
        self._waiting: dict[int, dict[str, VerificationRequest]] = {}
        """Node id -> transactional id -> verification. Bounded: each request of a client has at most one
        verification."""
        self._under_way: set[int] = set()

    def send(self, node_id: int, verification: VerificationRequest) -> None:
        """Queue the verification for the next request to ``node_id``. Its result wakes ``verification.answered``.

        If a verification of the same transactional id is queued already, one of the two gets an error at once: the
        one with the lower epoch gets INVALID_PRODUCER_EPOCH; with equal epochs, the earlier one gets
        NETWORK_EXCEPTION.
        """
        waiting = self._waiting.setdefault(node_id, {})
        other = waiting.get(verification.transactional_id)
        if other is not None:
            if verification.epoch < other.epoch:
                verification.answer(ErrorCode.invalid_producer_epoch)
                return
            # Same epoch: the producer has lost its connection and retries. The verification of the earlier request gets a
            # retriable error.
            fenced = other.epoch < verification.epoch
            del waiting[verification.transactional_id]
            other.answer(ErrorCode.invalid_producer_epoch if fenced else ErrorCode.network_exception)
        waiting[verification.transactional_id] = verification
        if node_id not in self._under_way:
            start_in_background(self._send_all(node_id), self._life)

    async def _send_all(self, node_id: int) -> None:
        """Send one request after the other while verifications wait for the node."""
        self._under_way.add(node_id)
        try:
            while verifications := self._waiting.pop(node_id, None):
                request = AddPartitionsToTxnRequest(
                    transactions=[_transaction(each) for each in verifications.values()]
                )
                response = await self._peers.send(node_id, self._client_id, API_KEY, API_VERSION, request)
                for transactional_id, errors in _errors(verifications, response).items():
                    verifications[transactional_id].answered.wake(errors)
        finally:
            self._under_way.discard(node_id)


def _transaction(verification: VerificationRequest) -> AddPartitionsToTxnTransaction:
    topics = by_topic(verification.keys)
    return AddPartitionsToTxnTransaction(
        transactional_id=verification.transactional_id,
        producer_id=verification.producer_id,
        producer_epoch=verification.epoch,
        verify_only=verification.verifies,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
    )


def _errors(verifications: dict[str, VerificationRequest], response: Any) -> dict[str, Errors]:
    """Return the errors of the partitions, by transactional id.

    An error of the whole response is the error of every partition. NETWORK_EXCEPTION for an id that is missing in the
    response, and for all ids if there is no response (None).
    """
    whole = ErrorCode.network_exception if response is None else ErrorCode(response.error_code)
    if whole is ErrorCode.cluster_authorization_failed:
        # As Kafka: the client must not see the broker's own authorization error.
        whole = ErrorCode.invalid_txn_state
    unsaid: ErrorCode = ErrorCode.network_exception if whole is NONE else whole
    answers: dict[str, Errors] = {
        name: dict.fromkeys(each.keys, unsaid) for name, each in verifications.items()
    }
    if whole is NONE:
        for result in response.results_by_transaction:
            errors = answers.get(result.transactional_id, {})
            for topic in result.topic_results:
                for partition in topic.results_by_partition:
                    errors[topic.name, partition.partition_index] = ErrorCode(partition.partition_error_code)
    return answers
