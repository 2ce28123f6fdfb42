"""WriteTxnMarkers: a coordinator (or an operator's tool) ends transactions in the partitions that this node leads.

KIP-98; v1 is flexible; v2 carries the transaction version, which decides how strictly the epoch is checked (KIP-1228).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker.api import api
from broker.context import RequestContext
from broker.deferred import Deferred
from broker.partition import Partition
from broker.transactions.markers import write_marker
from broker.transactions.state import TopicPartition
from protocol.batch import EndTxnMarker
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

Results = dict[int, dict[TopicPartition, ErrorCode]]


@api(key=27, versions=range(1, 3))
def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]:
    answer: Deferred[WriteTxnMarkersResponse] = Deferred()
    wanted = [
        (marker, (topic.name, index))
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    results: Results = {marker.producer_id: {} for marker in request.markers if marker.topics}
    left = len(wanted)

    def note(marker: WritableTxnMarker, key: TopicPartition) -> Callable[[ErrorCode, int], None]:
        def written(error: ErrorCode, offset: int) -> None:
            nonlocal left
            results[marker.producer_id][key] = error
            left -= 1
            if left == 0:
                answer.resolve(_phrase(results))

        return written

    if not wanted:
        return _phrase(results)
    for marker, key in wanted:
        _write(marker, key, context, note(marker, key))
    return answer.outcome()


def _write(
    marker: WritableTxnMarker,
    key: TopicPartition,
    context: RequestContext,
    written: Callable[[ErrorCode, int], None],
) -> None:
    partition = context.node.replicas.leader(*key)
    if not isinstance(partition, Partition):
        # Kafka looks among its online partitions only.
        offline = partition is ErrorCode.kafka_storage_error
        written(ErrorCode.unknown_topic_or_partition if offline else partition, -1)
        return
    write_marker(
        context.node.groups,
        partition,
        marker.producer_id,
        marker.producer_epoch,
        EndTxnMarker(marker.transaction_result, marker.coordinator_epoch),
        marker.transaction_version,
        written,
    )


def _phrase(results: Results) -> WriteTxnMarkersResponse:
    """One entry per producer id, whatever the number of its markers."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(errors))
            for producer_id, errors in results.items()
        ]
    )


def _topics(errors: dict[TopicPartition, ErrorCode]) -> list[WritableTxnMarkerTopicResult]:
    by_topic: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (name, index), error in errors.items():
        result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
        by_topic.setdefault(name, []).append(result)
    return [WritableTxnMarkerTopicResult(name=name, partitions=results) for name, results in by_topic.items()]
