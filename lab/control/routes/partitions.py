"""Operations on partitions: show leaders, in-sync replicas and offsets; list lost records; move leaders; abort
transactions."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from broker.cluster.in_words import nodes_in_words
from broker.metadata import ApiError
from broker.metadata.topics import CONSUMER_OFFSETS, NAME_CHARACTERS_MAX, TRANSACTION_STATE, is_internal
from broker.metadata.values import NO_LEADER, PartitionState
from lab.control.errors import HttpError
from lab.control.forms import Given, NodeId, View
from lab.control.operations import operation
from lab.control.ports import Control, topic_of
from protocol.errors import ErrorCode

INDEX_MAX: Final = 2**31 - 1
ID_CHARACTERS_MAX: Final = 2**15 - 1
PARTITIONS_PER_TURN: Final = 20
"""Number of partitions read in one turn of the event loop, because the first access to a partition opens its log."""

TopicName = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX, description="The name of a topic.")]
Index = Annotated[int, Meta(ge=0, le=INDEX_MAX, description="The number of a partition.")]
Id = Annotated[str, Meta(max_length=ID_CHARACTERS_MAX)]


class ReplicaView(View):
    node: int
    state: str
    """leading, following, offline (its files cannot be used), or the state of a node that is not running"""
    in_sync: bool
    log_start: int | None
    """Log start offset of the replica; null if the node is not running."""
    log_end: int | None
    leader_epoch: int | None
    """Leader epoch of the last batch in the replica's log; -1 if the log is empty, null if the node is not running."""


class PartitionView(View):
    topic: str
    partition: int
    leader: int | None
    """Node id of the leader; null if no in-sync replica is on a running node."""
    leader_epoch: int
    isr: list[int]
    high_watermark: int | None
    """High watermark of the leader. This and the last stable offset are null if there is no leader."""
    last_stable_offset: int | None
    replicas: list[ReplicaView]


class PartitionsView(View):
    partitions: list[PartitionView]


class LossView(View):
    time_ms: int
    """Time at which the first replica removed the records, in milliseconds since the epoch."""
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    producer_id: int
    """Producer id in the lost batches; -1 for a producer without idempotence."""
    producer_epoch: int
    acknowledged: str
    """How the records were acknowledged: committed, perhaps committed, or acks=1; docs/faults.md explains these"""
    written_epoch: int
    """The leader epoch in which the records were written."""
    leader: int
    """Node id of the leader that does not have the records."""
    leader_epoch: int
    nodes: list[int]
    """Ids of the nodes whose replicas had the records."""


class LossesView(View):
    losses: list[LossView]
    dropped: int
    """Number of older losses that were dropped from the list."""


class WantedPartitions(Given):
    topic: TopicName | None = None
    internal: Annotated[
        bool,
        Meta(description="Also partitions of internal topics. Not needed if topic names one."),
    ] = False


class OnePartition(Given):
    topic: TopicName
    partition: Index


class MoveLeader(Given):
    to: NodeId


class AbortProducer(Given):
    producer_id: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class MoveCoordinator(Given):
    to: NodeId
    transactional_id: Id | None = None
    group: Id | None = None


_EXAMPLE: Final[dict[str, Any]] = {
    "topic": "orders",
    "partition": 0,
    "leader": 2,
    "leader_epoch": 1,
    "isr": [1, 2],
    "high_watermark": 17,
    "last_stable_offset": 12,
    "replicas": [
        {"node": 1, "state": "following", "in_sync": True, "log_start": 0, "log_end": 17, "leader_epoch": 1},
        {"node": 2, "state": "leading", "in_sync": True, "log_start": 0, "log_end": 17, "leader_epoch": 1},
        {
            "node": 3,
            "state": "killed",
            "in_sync": False,
            "log_start": None,
            "log_end": None,
            "leader_epoch": None,
        },
    ],
}


@operation("GET", "/v1/partitions", answer_example={"partitions": [_EXAMPLE]}, may_wait=True)
async def list_partitions(control: Control, params: WantedPartitions) -> PartitionsView:
    """List the partitions: leader, leader epoch, in-sync replicas, and the log end offset of each replica."""
    metadata = control.cluster.metadata
    names = [params.topic] if params.topic is not None else sorted(metadata.topics)
    found: list[PartitionView] = []
    for name in names:
        topic = topic_of(metadata, name)
        if is_internal(name) and not params.internal and params.topic is None:
            continue
        for state in tuple(topic.partitions):
            found.append(_view(control, name, state))
            if len(found) % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
    return PartitionsView(partitions=found)


@operation(
    "GET",
    "/v1/losses",
    answer_example={
        "losses": [
            {
                "time_ms": 1795291007000,
                "topic": "orders",
                "partition": 0,
                "first_offset": 17,
                "last_offset": 18,
                "records": 2,
                "producer_id": 4,
                "producer_epoch": 0,
                "acknowledged": "acks=1",
                "written_epoch": 0,
                "leader": 2,
                "leader_epoch": 1,
                "nodes": [1],
            }
        ],
        "dropped": 0,
    },
)
async def list_losses(control: Control) -> LossesView:
    """List records that were acknowledged, or may have been, and are no longer in the log, the oldest loss first."""
    losses = control.cluster.injection.losses
    found = [msgspec.convert(each, type=LossView, from_attributes=True) for each in losses.list()]
    return LossesView(losses=found, dropped=losses.dropped)


@operation(
    "POST",
    "/v1/partitions/{topic}/{partition}/move",
    body_example={"to": 1},
    answer_example=_EXAMPLE,
    may_wait=True,
)
async def move_leader(control: Control, params: OnePartition, body: MoveLeader) -> PartitionView:
    """Make another in-sync replica the leader of a partition, as an election does.

    The preferred leader leads again after the next check of the balance (leader.imbalance.check.interval.seconds).
    """
    return await _move(control, params.topic, params.partition, body.to)


@operation(
    "POST",
    "/v1/partitions/{topic}/{partition}/abort",
    body_example={"producer_id": 1000},
    answer_example={**_EXAMPLE, "last_stable_offset": 17},
    may_wait=True,
)
async def abort_in_partition(control: Control, params: OnePartition, body: AbortProducer) -> PartitionView:
    """Abort a hanging transaction by an ABORT marker in one partition, as kafka-transactions.sh abort does.

    A transaction that a coordinator has open must be aborted by its transactional id instead.
    """
    from lab.control import node_requests  # rarely used
    from lab.views.transactions import owners

    owner = (await owners(control.cluster)).get((body.producer_id, params.topic, params.partition))
    if owner is not None:
        raise HttpError(
            409, f"the transaction belongs to {owner.transactional_id}: abort it by its transactional id"
        )
    await node_requests.write_abort_marker(control.cluster, params.topic, params.partition, body.producer_id)
    topic = control.cluster.metadata.topic(params.topic)
    state = topic.partition(params.partition) if topic is not None else None
    if state is None:
        raise HttpError(404, f"{params.topic} was deleted meanwhile")
    return _view(control, params.topic, state)


@operation(
    "POST",
    "/v1/coordinators/move",
    body_example={"transactional_id": "payments", "to": 1},
    answer_example={**_EXAMPLE, "topic": TRANSACTION_STATE, "partition": 7},
    may_wait=True,
)
async def move_coordinator(control: Control, body: MoveCoordinator) -> PartitionView:
    """Move the coordinator of a transactional id or a group: another replica becomes leader of its internal partition.

    All ids and groups of that partition move with it. The internal topic is created if it does not exist yet.
    """
    named = {
        TRANSACTION_STATE: body.transactional_id,
        CONSUMER_OFFSETS: body.group,
    }
    said = [(name, each) for name, each in named.items() if each is not None]
    if len(said) != 1:
        raise HttpError(400, "give a transactional_id or a group")
    [(name, coordinated)] = said
    try:
        await control.cluster.metadata.auto_topic_creation.ensure_internal_topic(name)
    except ApiError as error:
        raise HttpError(409, f"{name} cannot be created: {error.message}") from None
    node = next(iter(control.cluster.running_nodes()), None)
    if node is None:
        raise HttpError(409, "no node is running")
    coordinator = node.transactions if name == TRANSACTION_STATE else node.groups
    return await _move(control, name, coordinator.partition_for(coordinated), body.to)


async def _move(control: Control, name: str, index: int, to: int) -> PartitionView:
    cluster = control.cluster
    if to not in cluster.nodes:
        raise HttpError(404, f"there is no node {to}: {nodes_in_words(cluster.nodes)}")
    topic_of(cluster.metadata, name)
    try:
        await cluster.metadata.replication_control.move_leader(name, index, to)
    except ApiError as error:
        status = 404 if error.error is ErrorCode.unknown_topic_or_partition else 409
        raise HttpError(status, str(error.message)) from None
    topic = cluster.metadata.topic(name)
    state = topic.partition(index) if topic is not None else None
    if state is None:
        raise HttpError(404, f"{name} was deleted meanwhile")
    return _view(control, name, state)


def _view(control: Control, name: str, state: PartitionState) -> PartitionView:
    leader = control.cluster.running(state.leader)
    led = leader.replicas.get(name, state.index) if leader is not None else None
    return PartitionView(
        topic=name,
        partition=state.index,
        leader=None if state.leader == NO_LEADER else state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        high_watermark=None if led is None else led.high_watermark,
        last_stable_offset=None if led is None else led.last_stable_offset,
        replicas=[_replica(control, name, state, node_id) for node_id in sorted(state.replicas)],
    )


def _replica(control: Control, name: str, state: PartitionState, node_id: int) -> ReplicaView:
    node = control.cluster.running(node_id)
    held = node.replicas.get(name, state.index) if node is not None else None
    if held is None:
        runtime = control.cluster.nodes.get(node_id)
        said = "away" if runtime is None else runtime.state.value
    elif held.offline is not None:
        said = "offline"
    else:
        said = "leading" if state.leader == node_id else "following"
    return ReplicaView(
        node=node_id,
        state=said,
        in_sync=node_id in state.isr,
        log_start=None if held is None else held.log_start_offset,
        log_end=None if held is None else held.log_end_offset,
        leader_epoch=None if held is None else held.log.epochs.latest,
    )
