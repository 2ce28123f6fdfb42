"""WriteTxnMarkers: a coordinator (or kafka-transactions.sh) ends transactions in partitions that this node leads.

KIP-98; v1 is flexible; v2 has the transaction version, which decides how strictly the epoch is checked (KIP-1228).
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.clock import Domain, Timer
from broker.loop.coroutines import Waiter, fork
from broker.node.context import RequestContext
from broker.replicas.partition import Partition
from broker.requests.api import api
from broker.requests.authorization import may_on_cluster
from broker.transactions.markers import write_marker
from broker.transactions.transaction import TopicPartition
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
async def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    # Operators abort hanging transactions with ALTER on the cluster (KIP-664).
    if not may_on_cluster(context, "ALTER", logs_denial=False) and not may_on_cluster(
        context, "CLUSTER_ACTION"
    ):
        return _phrase(_refused(request))
    results: Results = {marker.producer_id: {} for marker in request.markers if marker.topics}
    life = context.node.life
    under_way = [
        (marker.producer_id, (topic.name, index), fork(_write(marker, (topic.name, index), context), life))
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    # A marker that misses the timeout may still be committed later; the coordinator sends it again.
    timer = _time_out([written for _, _, written in under_way], context)
    for producer_id, key, written in under_way:
        results[producer_id][key] = await written
    if timer is not None:
        timer.cancel()
    return _phrase(results)


def _refused(request: WriteTxnMarkersRequest) -> Results:
    error = ErrorCode.cluster_authorization_failed
    return {
        marker.producer_id: {
            (topic.name, index): error for topic in marker.topics for index in topic.partition_indexes
        }
        for marker in request.markers
    }


async def _write(marker: WritableTxnMarker, key: TopicPartition, context: RequestContext) -> ErrorCode:
    partition = context.node.replicas.leader(*key)
    if not isinstance(partition, Partition):
        # Kafka looks only among its online partitions here.
        offline = partition is ErrorCode.kafka_storage_error
        return ErrorCode.unknown_topic_or_partition if offline else partition
    return await write_marker(
        context.node.groups,
        partition,
        marker.producer_id,
        marker.producer_epoch,
        EndTxnMarker(marker.transaction_result, marker.coordinator_epoch),
        marker.transaction_version,
    )


def _time_out(markers: Sequence[Waiter[ErrorCode]], context: RequestContext) -> Timer | None:
    """Start the timer that sets REQUEST_TIMED_OUT for markers not committed in time. Returns None if all markers are
    committed already.
    """
    waiting = [written for written in markers if not written.done()]
    if not waiting:
        return None

    def time_is_up() -> None:
        for written in waiting:
            written.wake(ErrorCode.request_timed_out)

    timeout_ms = context.node.config.request_timeout_ms
    return context.node.clock.call_later_ms(timeout_ms, time_is_up, Domain.REQUESTS)


def _phrase(results: Results) -> WriteTxnMarkersResponse:
    """Build the response, with one entry per producer id, even if the request has several markers for the id."""
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
