"""The control port's own requests to a node, without a connection. Neither rules nor ACLs apply to them.

Each function returns the result, or raises ``HttpError``: 404 for what does not exist, 409 for an error of the node. Only
InitProducerId is retried. Any other error that a client would retry is returned to the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

from broker.clock import Domain, SystemClock
from broker.cluster import Cluster
from broker.loop.coroutines import start
from broker.loop.life import NodeLife
from broker.metadata import ApiError
from broker.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.metadata.values import TOPIC_RESOURCE, PartitionState
from broker.node import Node
from broker.replicas.partition import Partition
from broker.requests import own_requests
from lab.control.errors import HttpError
from lab.control.forms import WAIT_MS_MAX
from lab.control.ports import Control, topic_of
from lab.views.led import led
from protocol.batch import build_batch
from protocol.errors import NONE, ErrorCode
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.record import Header

CLIENT_ID: Final = "odradek-control"
ANSWER_S_MAX: Final = 10.0
"""Timeout of a response: the node may be killed or paused before it responds, and lagging replicas delay responses."""
_OFFSET_COMMIT: Final = (8, 9)
_DESCRIBE_GROUPS: Final = (15, 6)
_WRITE_MARKERS: Final = (27, 1)
_DESCRIBE_CONFIGS: Final = (32, 4)
_ALTER_CONFIGS: Final = (44, 1)
_CONSUMER_GROUP_DESCRIBE: Final = (69, 1)
_SHARE_GROUP_DESCRIBE: Final = (77, 1)
_ALTER_SHARE_GROUP_OFFSETS: Final = (91, 0)
_SET, _DELETE = 0, 1
_SETTLED: Final = ("Empty", "CompleteCommit", "CompleteAbort")
RETRY_BACKOFF_MS: Final = 20
_IS_INVALID: Final = (ErrorCode.invalid_config, ErrorCode.invalid_request)
_IS_MISSING: Final = (ErrorCode.unknown_topic_or_partition, ErrorCode.group_id_not_found)

Offsets = Mapping[tuple[str, int], int]


async def ask(cluster: Cluster, node: Node, api: own_requests.Api, request: object) -> Any:
    """The response of ``node`` to ``request``.

    Raises ``HttpError`` 409 if the node is paused, or does not respond in time.
    """
    runtime = cluster.nodes[node.node_id]
    if runtime.is_paused:
        raise HttpError(409, f"node {node.node_id} is paused")
    outcome = own_requests.handle(node, runtime.listeners[0], api, request, CLIENT_ID)
    if not isinstance(outcome, Awaitable):
        return outcome
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            return await outcome
    except TimeoutError:
        raise HttpError(
            409,
            f"node {node.node_id} has not responded for {ANSWER_S_MAX:g} s, and may still execute the request",
        ) from None


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise ``HttpError`` with Kafka's name of the error, unless the code is NONE."""
    error = ErrorCode(code)
    if error is not NONE:
        said = f" ({message})" if message else ""
        status = 404 if error in _IS_MISSING else 400 if error in _IS_INVALID else 409
        raise HttpError(status, f"{what}: {error.name.upper()}{said}")


# -- leaders and coordinators ---------------------------------------------------------------------------------------


def leader(cluster: Cluster, topic: str, index: int) -> tuple[Node, Partition]:
    """The node that leads a partition, and the replica of the partition on that node.

    Raises ``HttpError``: 404 if there is no such partition, 409 if no running node leads it.
    """
    state = topic_of(cluster.metadata, topic).partition(index)
    if state is None:
        raise HttpError(404, f"there is no partition {topic}-{index}")
    node, partition = cluster.running(state.leader), led(cluster, topic, index)
    if node is None or partition is None:
        raise no_leader(cluster, topic, state)
    return node, partition


def no_leader(cluster: Cluster, topic: str, partition: PartitionState) -> HttpError:
    """The HTTP error 409 for a partition that no running node leads, with the states of the nodes that have replicas."""
    nodes = [cluster.nodes[each] for each in partition.replicas if each in cluster.nodes]
    states = ", ".join(f"node {each.node_id} is {each.shown_state}" for each in nodes)
    return HttpError(409, f"no running node leads {topic}-{partition.index}: {states}")


async def first_at(node: Node, partition: Partition, time_ms: int, *, read_committed: bool) -> int:
    """Offset of the first record with a timestamp of at least ``time_ms``.

    If there is no such record: the last stable offset with ``read_committed``, else the high watermark.
    """
    steps = partition.offset_for_timestamp(time_ms, read_committed=read_committed)
    # The search has a `NodeLife` of its own, as it ends by itself when the log is closed.
    search = start(node.slices.run(steps), NodeLife())
    found = await search if isinstance(search, asyncio.Future) else search
    check(found.error, f"{partition.topic}-{partition.index}")
    end = partition.last_stable_offset if read_committed else partition.high_watermark
    return found.offset if found.offset >= 0 else end


async def coordinator(cluster: Cluster, kind: str, name: str) -> Node:
    """The node that coordinates the group or transactional id ``name``.

    ``kind`` is the internal topic: __consumer_offsets for a group, __transaction_state for a transactional id. The
    topic is created if it does not exist. Raises ``HttpError`` 409 if the topic cannot be created, or if no
    running node leads the partition of ``name``.
    """
    try:
        await cluster.metadata.auto_topic_creation.ensure_internal_topic(kind)
    except ApiError as error:
        raise HttpError(409, f"{kind} cannot be created: {error.message}") from None
    any_node = any_running(cluster)
    coordinating = any_node.transactions if kind == TRANSACTION_STATE else any_node.groups
    return leader(cluster, kind, coordinating.partition_for(name))[0]


def any_running(cluster: Cluster) -> Node:
    node = next(iter(cluster.running_nodes()), None)
    if node is None:
        raise HttpError(409, "no node is running")
    return node


# -- transactions and records ---------------------------------------------------------------------------------------


async def abort(cluster: Cluster, node: Node, transactional_id: str, timeout_ms: int) -> None:
    """Abort the open transaction of an id and fence its producer, as ``Admin.fenceProducers`` does.

    Returns when the abort is decided; the coordinator writes the markers later.
    """
    request = own_requests.init_producer_id(
        transactional_id, min(timeout_ms, node.config.transaction_max_timeout_ms)
    )
    response = await ask(cluster, node, own_requests.INIT_PRODUCER_ID, request)
    # A producer would retry until the abort is complete.
    if response.error_code != ErrorCode.concurrent_transactions:
        check(response.error_code, f"transactional id {transactional_id}")


async def write_abort_marker(cluster: Cluster, topic: str, index: int, producer_id: int) -> None:
    """End a producer's transaction in one partition by an ABORT marker, as ``Admin.abortTransaction`` does."""
    node, partition = leader(cluster, topic, index)
    entry = partition.log.producers.entries.get(producer_id)
    if entry is None or entry.current_txn_first_offset < 0:
        raise HttpError(404, f"producer {producer_id} has no open transaction in {topic}-{index}")
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=max(0, entry.coordinator_epoch),
    )
    response = await ask(cluster, node, _WRITE_MARKERS, WriteTxnMarkersRequest(markers=[marker]))
    (written,) = response.markers[0].topics[0].partitions
    check(written.error_code, f"the ABORT marker in {topic}-{index}")


Record = tuple[int, bytes | None, bytes | None, Sequence[Header]]
"""Timestamp in milliseconds, key, value, headers."""


async def produce(cluster: Cluster, topic: str, index: int, record: Record) -> int:
    """Write a record outside of any transaction; returns its offset."""
    return await _produce(cluster, topic, index, build_batch([record]), None)


async def produce_in_transaction(
    control: Control, topic: str, index: int, record: Record, transactional_id: str, end: str
) -> tuple[int, own_requests.Producer]:
    """Write a record in a new transaction that ends by ``end``: commit, abort, or none, which leaves it open.

    As for every new producer, InitProducerId fences the id's earlier producer and aborts its open transaction. Returns
    the offset of the record, and the producer.
    """
    cluster = control.cluster
    leader(cluster, topic, index)
    node = await coordinator(cluster, TRANSACTION_STATE, transactional_id)
    what = f"transactional id {transactional_id}"
    timeout_ms = min(60_000, node.config.transaction_max_timeout_ms)
    begun = await _begun(control, node, own_requests.init_producer_id(transactional_id, timeout_ms))
    check(begun.error_code, what)
    producer = (begun.producer_id, begun.producer_epoch)
    add = own_requests.add_partitions(transactional_id, producer, {topic: [index]})
    added = await ask(cluster, node, own_requests.ADD_PARTITIONS, add)
    (result,) = added.results_by_topic_v3_and_below[0].results_by_partition
    check(result.partition_error_code, what)
    batch = build_batch(
        [record], producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True
    )
    offset = await _produce(cluster, topic, index, batch, transactional_id)
    if end != "none":
        request = own_requests.end_txn(transactional_id, producer, committed=end == "commit")
        check((await ask(cluster, node, own_requests.END_TXN, request)).error_code, what)
    return offset, producer


async def _begun(control: Control, node: Node, begin: InitProducerIdRequest) -> Any:
    """The response to the InitProducerId ``begin``, which is retried while the id's earlier transaction is ending.

    Raises ``HttpError`` 409 if that transaction does not end within ``ANSWER_S_MAX`` seconds.
    """
    transactional_id = begin.transactional_id
    assert transactional_id is not None
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            while True:
                begun = await ask(control.cluster, node, own_requests.INIT_PRODUCER_ID, begin)
                if begun.error_code != ErrorCode.concurrent_transactions:
                    return begun
                await control.awaited_states.reached(transactional_id, _SETTLED, WAIT_MS_MAX)
                # Retry as clients do: another producer with this id may be initialising.
                await pause(RETRY_BACKOFF_MS)
    except TimeoutError:
        check(
            ErrorCode.concurrent_transactions,
            f"transactional id {transactional_id}",
            "its transaction before this one is still being ended" + _held_by(control, transactional_id),
        )


def _held_by(control: Control, transactional_id: str) -> str:
    """End of an error message that names the rule which holds a request of this transactional id.

    Empty if no rule holds such a request.
    """
    for active in control.faults.list():
        for item in active.held:
            if transactional_id in item.subjects.transactional_ids:
                return f": rule {active.id} holds {item.at}"
    return ""


async def _produce(
    cluster: Cluster, topic: str, index: int, batch: bytes, transactional_id: str | None
) -> int:
    node, _ = leader(cluster, topic, index)
    request = own_requests.produce(topic, index, batch, transactional_id, node.config.request_timeout_ms)
    response = await ask(cluster, node, own_requests.PRODUCE, request)
    found = response.responses[0].partition_responses[0]
    check(found.error_code, f"{topic}-{index}", found.error_message)
    return int(found.base_offset)


# -- settings -------------------------------------------------------------------------------------------------------


async def describe_configs(cluster: Cluster, topic: str) -> Sequence[Any]:
    """The settings of a topic, as DescribeConfigs returns them."""
    topic_of(cluster.metadata, topic)
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    (found,) = (await ask(cluster, any_running(cluster), _DESCRIBE_CONFIGS, request)).results
    check(found.error_code, f"topic {topic}", found.error_message)
    return found.configs  # type: ignore[no-any-return]


async def alter_configs(
    cluster: Cluster, topic: str, values: Mapping[str, str], deleted: Sequence[str]
) -> None:
    changes = [
        AlterableConfig(name=name, config_operation=_SET, value=value) for name, value in values.items()
    ]
    changes += [AlterableConfig(name=name, config_operation=_DELETE, value=None) for name in deleted]
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (result,) = (await ask(cluster, any_running(cluster), _ALTER_CONFIGS, request)).responses
    check(result.error_code, f"topic {topic}", result.error_message)


# -- groups ---------------------------------------------------------------------------------------------------------


async def describe_group(cluster: Cluster, node: Node, group: str, group_type: str) -> Any:
    """A group as DescribeGroups, ConsumerGroupDescribe or ShareGroupDescribe returns it, by its type."""
    if group_type == "classic":
        response = await ask(cluster, node, _DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group]))
    elif group_type == "consumer":
        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        response = await ask(cluster, node, _CONSUMER_GROUP_DESCRIBE, request)
    else:
        from protocol.messages.share_group_describe import ShareGroupDescribeRequest  # rarely used

        shares = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        response = await ask(cluster, node, _SHARE_GROUP_DESCRIBE, shares)
    (found,) = response.groups
    check(found.error_code, f"group {group}", found.error_message)
    return found


async def commit_offsets(cluster: Cluster, group: str, offsets: Offsets) -> None:
    """Commit offsets for a group without members, as an admin client does."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        by_topic.setdefault(topic, []).append(partition)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        retention_time_ms=-1,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=each) for topic, each in by_topic.items()],
    )
    node = await coordinator(cluster, CONSUMER_OFFSETS, group)
    response = await ask(cluster, node, _OFFSET_COMMIT, request)
    for topic in response.topics:
        for partition in topic.partitions:
            check(partition.error_code, f"group {group}, {topic.name}-{partition.partition_index}")


async def alter_share_offsets(cluster: Cluster, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Set the start offsets of a share group without members in a topic, as an admin client does."""
    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        for index, offset in offsets.items()
    ]
    wanted = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=[wanted])
    node = await coordinator(cluster, CONSUMER_OFFSETS, group)
    response = await ask(cluster, node, _ALTER_SHARE_GROUP_OFFSETS, request)
    check(response.error_code, f"group {group}", response.error_message)
    for altered in response.responses:
        for each in altered.partitions:
            check(each.error_code, f"group {group}, {topic}-{each.partition_index}", each.error_message)


async def pause(pause_ms: float) -> None:
    """Sleep for real milliseconds. An advance of the broker's clock does not shorten the sleep."""
    over = asyncio.Event()
    timer = SystemClock().call_later_ms(pause_ms, over.set, Domain.REQUESTS)
    try:
        await over.wait()
    finally:
        timer.cancel()
