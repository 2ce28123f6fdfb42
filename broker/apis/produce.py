"""Produce: append record batches to the logs of partitions that this node leads.

v3 is the first version with batches of magic 2 (KIP-98); v5 adds the log start offset; v7 zstd (KIP-110); v8 record errors
(KIP-467); v9 is flexible; v10 names the current leader (KIP-951); v11 may return TRANSACTION_ABORTABLE; v12 adds partitions
to the transaction implicitly (KIP-890); v13 uses topic ids (KIP-516). v0-v2 are announced and not served, as on Kafka: old
versions of librdkafka derive the supported codecs from the announced range.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.node.context import RequestContext
from broker.replicas.partition import AppendResult
from broker.requests.api import NO_RESPONSE, CloseConnection, NoResponse, api
from broker.requests.metadata_views import endpoints_of
from broker.requests.producing import Item, Produce
from protocol.errors import NONE, ErrorCode
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

FIRST_VERSION_WITH_LEADER_HINTS = 10


@api(key=0, versions=range(3, 14), announced=range(14))
def produce(
    request: ProduceRequest, context: RequestContext
) -> Coroutine[Any, Any, ProduceResponse | NoResponse]:
    return Produce(request, context, _be_silent if request.acks == 0 else _phrase).run()


def _be_silent(work: Produce) -> NoResponse:
    """Send no response, as the client asked with acks=0; on an error, close the connection instead."""
    for item in work.items:
        if item.result is not None and item.result.error is not NONE:
            where = f"{item.name}-{item.index}"
            raise CloseConnection(f"Produce with acks=0 to {where}: {item.result.error.name}")
    return NO_RESPONSE


def _phrase(work: Produce) -> ProduceResponse:
    context = work.context
    responses: list[TopicProduceResponse] = []
    partitions: list[PartitionProduceResponse] = []
    before: Item | None = None
    leaders: set[int] | None = None
    for item in work.items:
        if before is None or item.name != before.name or item.topic_id != before.topic_id:
            partitions = []
            responses.append(
                TopicProduceResponse(name=item.name, topic_id=item.topic_id, partition_responses=partitions)
            )
            before = item
        result = item.result
        assert result is not None
        response = PartitionProduceResponse(
            index=item.index,
            error_code=result.error,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
        if result.error is not NONE:
            _explain(response, result)
            _hint_leader(response, item, context)
            leaders = {response.current_leader.leader_id} | (leaders or set())
        partitions.append(response)
    return ProduceResponse(
        responses=responses,
        node_endpoints=() if leaders is None else endpoints_of(context, NodeEndpoint, leaders),
    )


def _explain(response: PartitionProduceResponse, result: AppendResult) -> None:
    response.error_message = result.message
    response.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in result.record_errors
    ]


def _hint_leader(response: PartitionProduceResponse, item: Item, context: RequestContext) -> None:
    """Add the current leader to NOT_LEADER_OR_FOLLOWER, so that the client need not request metadata (KIP-951)."""
    if response.error_code != ErrorCode.not_leader_or_follower:
        return
    topic = context.node.metadata.topic(item.name)
    state = topic.partition(item.index) if topic is not None else None
    if state is None or context.api_version < FIRST_VERSION_WITH_LEADER_HINTS:
        return
    response.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
