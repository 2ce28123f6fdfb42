"""WriteTxnMarkers: a coordinator (or an operator's tool) ends transactions in the partitions that this node leads.

KIP-98; v1 is flexible; v2 carries the transaction version, which decides how strictly the epoch is checked (KIP-1228).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from broker.clock import Domain, Timer
from broker.loop.deferred import Deferred
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
def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]:
    # Operators abort hanging transactions with the right to alter the cluster (KIP-664).
    if not may_on_cluster(context, "ALTER", logs_denial=False) and not may_on_cluster(
        context, "CLUSTER_ACTION"
    ):
        return _phrase(_refused(request))
    return WriteTxnMarkers(request, context).run()


def _refused(request: WriteTxnMarkersRequest) -> Results:
    error = ErrorCode.cluster_authorization_failed
    return {
        marker.producer_id: {
            (topic.name, index): error for topic in marker.topics for index in topic.partition_indexes
        }
        for marker in request.markers
    }


class WriteTxnMarkers:
    """One request under way: answered when every marker is committed or refused, or its time is over."""

    def __init__(self, request: WriteTxnMarkersRequest, context: RequestContext) -> None:
        self._context = context
        self._wanted = [
            (marker, (topic.name, index))
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]
        self._results: Results = {marker.producer_id: {} for marker in request.markers if marker.topics}
        self._waiting = set(range(len(self._wanted)))
        self._answer: Deferred[WriteTxnMarkersResponse] = Deferred()
        self._timer: Timer | None = None

    def run(self) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]:
        if not self._wanted:
            return _phrase(self._results)
        for number, (marker, key) in enumerate(self._wanted):
            _write(marker, key, self._context, partial(self._written, number))
        if self._waiting:
            clock, timeout_ms = self._context.node.clock, self._context.node.config.request_timeout_ms
            self._timer = clock.call_later_ms(timeout_ms, self._time_is_up, Domain.REQUESTS)
        return self._answer.outcome()

    def _written(self, number: int, error: ErrorCode, offset: int) -> None:
        if number not in self._waiting:
            return  # its time was over before
        marker, key = self._wanted[number]
        self._results[marker.producer_id][key] = error
        self._waiting.discard(number)
        if not self._waiting:
            if self._timer is not None:
                self._timer.cancel()
            self._answer.resolve(_phrase(self._results))

    def _time_is_up(self) -> None:
        """What is not committed yet may be later; the coordinator sends it again."""
        for number in sorted(self._waiting):
            self._written(number, ErrorCode.request_timed_out, -1)


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
