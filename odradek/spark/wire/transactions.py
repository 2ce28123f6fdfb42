"""The requests for transactions and committed offsets, with the functions that read their responses."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from odradek._protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek._protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek._protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek._protocol.messages.end_txn import EndTxnRequest
from odradek._protocol.messages.init_producer_id import InitProducerIdRequest
from odradek._protocol.messages.list_transactions import ListTransactionsRequest
from odradek._protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek._protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.spark.wire.errors import (
    RETRIABLE,
    TRANSACTIONAL_ID_NOT_FOUND,
    Retriable,
    name_of,
    refused,
)
from odradek.spark.wire.exchange import GROUP, TRANSACTION, Exchange, Exchanges, Malformed, raise_for
from odradek.spark.wire.messages import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)
from odradek.spark.wire.producer import Partition, ProducerId, TransactionState


def init_producer_id(transactional_id: str, transaction_timeout_ms: int) -> Exchange:
    """An exchange with InitProducerId; its result is a ``ProducerId``."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
    )

    def read(answer: Any, version: int) -> ProducerId:
        raise_for([answer.error_code])
        return ProducerId(answer.producer_id, answer.producer_epoch)

    subject = f"transactional id {transactional_id!r}"
    return Exchange(INIT_PRODUCER_ID, subject, (TRANSACTION, transactional_id), request, read)


def add_partitions(transactional_id: str, producer: ProducerId, partitions: Iterable[Partition]) -> Exchange:
    """An exchange with AddPartitionsToTxn; its result is None."""
    topics = by_topic(partitions)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=each) for topic, each in topics.items()
        ],
    )

    def read(answer: Any, version: int) -> None:
        codes = {
            (topic.name, each.partition_index): each.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        _all_done(topics, codes)

    subject = f"adding {names(topics)} to the transaction of {transactional_id!r}"
    return Exchange(ADD_PARTITIONS_TO_TXN, subject, (TRANSACTION, transactional_id), request, read)


def end_transaction(transactional_id: str, producer: ProducerId, commit: bool) -> Exchange:
    """An exchange with EndTxn; its result is None."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    subject = f"the {'commit' if commit else 'abort'} of transactional id {transactional_id!r}"
    return Exchange(END_TXN, subject, (TRANSACTION, transactional_id), request, _accepted)


def fetch_offsets(group: str, partitions: Iterable[Partition] | None) -> Exchange:
    """An exchange with OffsetFetch; its result is (offset, metadata) by partition.

    ``partitions`` None: all partitions with an offset of the group.
    """
    topics = None if partitions is None else by_topic(partitions)
    request = OffsetFetchRequest(
        # Up to version 7 the request is for one group, since version 8 for several groups.
        group_id=group,
        topics=_each(OffsetFetchRequestTopic, topics),
        groups=[OffsetFetchRequestGroup(group_id=group, topics=_each(OffsetFetchRequestTopics, topics))],
        require_stable=True,
    )

    def read(answer: Any, version: int) -> dict[Partition, tuple[int, str]]:
        if version >= 8 and not answer.groups:
            raise Malformed("the requested group is missing")
        of_group = answer if version < 8 else answer.groups[0]
        raise_for([of_group.error_code])
        raise_for(each.error_code for topic in of_group.topics for each in topic.partitions)
        found = {
            (topic.name, each.partition_index): (each.committed_offset, each.metadata or "")
            for topic in of_group.topics
            for each in topic.partitions
        }
        _complete(topics or {}, found)
        return found

    return Exchange(OFFSET_FETCH, f"the offsets of group {group!r}", (GROUP, group), request, read)


def _each(message: Any, topics: Mapping[str, list[int]] | None) -> list[Any] | None:
    if topics is None:
        return None
    return [message(name=topic, partition_indexes=each) for topic, each in topics.items()]


def add_offsets(transactional_id: str, producer: ProducerId, group: str) -> Exchange:
    """An exchange with AddOffsetsToTxn; its result is None."""
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
    )
    subject = f"adding the offsets of group {group!r} to the transaction of {transactional_id!r}"
    return Exchange(ADD_OFFSETS_TO_TXN, subject, (TRANSACTION, transactional_id), request, _accepted)


def commit_offsets(
    transactional_id: str, producer: ProducerId, group: str, offsets: Mapping[Partition, tuple[int, str]]
) -> Exchange:
    """An exchange with TxnOffsetCommit; its result is None."""
    topics = by_topic(offsets)

    def partition(topic: str, index: int) -> Any:
        offset, metadata = offsets[topic, index]
        return TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )

    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[
            TxnOffsetCommitRequestTopic(name=topic, partitions=[partition(topic, each) for each in indexes])
            for topic, indexes in topics.items()
        ],
    )

    def read(answer: Any, version: int) -> None:
        codes = {
            (topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }
        _all_done(topics, codes)

    subject = f"the offsets of group {group!r} in the transaction of {transactional_id!r}"
    return Exchange(TXN_OFFSET_COMMIT, subject, (GROUP, group), request, read)


def list_transactions(exchanges: Exchanges, node_id: int, states: Sequence[str]) -> dict[str, str]:
    """Send ListTransactions once to a broker.

    Returns the states of the transactional ids in one of ``states`` (empty: any) that the broker coordinates and this client
    may describe. Raises ``WireError`` if that fails, and ``Retriable`` while the broker loads transactions.
    """
    request = ListTransactionsRequest(state_filters=states)
    answer, _ = exchanges.ask_once(node_id, LIST_TRANSACTIONS, request)
    code = int(answer.error_code)
    if code in RETRIABLE:
        raise Retriable(name_of(code), f"broker {node_id} is still loading transactions")
    if code:
        raise refused(code, "the list of transactions")
    return {each.transactional_id: each.transaction_state for each in answer.transaction_states}


def describe(transactional_id: str) -> Exchange:
    """An exchange with DescribeTransactions.

    Its result is a ``TransactionState``, None if the id is unknown or has expired.
    """
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

    def read(answer: Any, version: int) -> TransactionState | None:
        [state] = [
            each for each in answer.transaction_states if each.transactional_id == transactional_id
        ] or [None]
        if state is None:
            raise Malformed(f"the requested transactional id {transactional_id!r} is missing")
        if state.error_code == TRANSACTIONAL_ID_NOT_FOUND:
            return None
        raise_for([state.error_code])
        return TransactionState(
            ProducerId(state.producer_id, state.producer_epoch),
            state.transaction_state,
            state.transaction_start_time_ms,
            tuple(sorted((topic.topic, index) for topic in state.topics for index in topic.partitions)),
        )

    subject = f"transactional id {transactional_id!r}"
    return Exchange(DESCRIBE_TRANSACTIONS, subject, (TRANSACTION, transactional_id), request, read)


def _accepted(answer: Any, version: int) -> None:
    """Read a response that contains only an error code; raise ``Refusal`` unless the code is 0."""
    raise_for([answer.error_code])


def _all_done(asked: Mapping[str, list[int]], codes: Mapping[Partition, int]) -> None:
    """Raise ``Malformed`` if a partition of the request has no error code, and ``Refusal`` unless all codes are 0."""
    raise_for(codes.values())
    _complete(asked, codes)


def _complete(asked: Mapping[str, list[int]], answered: Container[Partition]) -> None:
    """Raise ``Malformed`` if the response lacks a partition of the request, which would otherwise count as done."""
    missing = {
        topic: left
        for topic, indexes in asked.items()
        if (left := [index for index in indexes if (topic, index) not in answered])
    }
    if missing:
        raise Malformed(f"the result for {names(missing)} is missing")


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Partition numbers by topic, sorted."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def names(topics: Mapping[str, list[int]]) -> str:
    """Up to three partitions as text, with the number of the others."""
    every = [f"{topic}-{index}" for topic, indexes in topics.items() for index in indexes]
    return ", ".join(every[:3]) + (f" and {len(every) - 3} more" if len(every) > 3 else "")
