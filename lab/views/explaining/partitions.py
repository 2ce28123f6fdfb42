"""Collects the facts of partitions from the nodes of this process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Final

from broker.cluster import Cluster
from broker.metadata.values import NO_LEADER, PartitionState, Topic
from broker.replicas.partition import Partition
from lab.explain.facts import OpenInLog, PartitionFacts
from lab.views.explaining.content import tail
from lab.views.explaining.transactions import Owners, Place, all_serve
from storage.config import LogConfig
from storage.files import StorageError

OPEN_MAX: Final = 50
"""Largest number of open transactions of one partition that are listed."""


def replica_at_leader(cluster: Cluster, topic: str, index: int) -> Partition | None:
    """The leader's replica, even if its files cannot be used; None if no running node leads the partition."""
    known = cluster.metadata.topic(topic)
    state = known.partition(index) if known is not None else None
    node = cluster.running(state.leader) if state is not None else None
    return None if node is None else node.replicas.get(topic, index)


def open_producers(cluster: Cluster, places: Iterable[Place]) -> frozenset[int]:
    """The producers with an open transaction in one of these partitions."""
    replicas = (replica_at_leader(cluster, *place) for place in places)
    return frozenset(
        producer_id
        for partition in replicas
        if partition is not None and partition.offline is None
        for _, producer_id in islice(partition.log.producers.open_transactions(), OPEN_MAX)
    )


def partition_facts(cluster: Cluster, owners: Owners, topic: str, index: int) -> PartitionFacts | None:
    """The facts of a partition in this turn of the event loop, without the content of the log's end (see `with_tail`).

    None if the partition does not exist.
    """
    known = cluster.metadata.topic(topic)
    state = known.partition(index) if known is not None else None
    if known is None or state is None:
        return None
    partition = replica_at_leader(cluster, topic, index)
    facts = metadata_facts(cluster, known, state)
    if partition is None or partition.offline is not None:
        return replace(facts, offline=_offline(cluster, topic, state))
    is_complete = all_serve(cluster)
    return replace(
        facts,
        min_isr=partition.log.config.min_insync_replicas,
        log_start=partition.log_start_offset,
        last_stable=partition.last_stable_offset,
        high_watermark=partition.high_watermark,
        log_end=partition.log_end_offset,
        open=tuple(
            _open(cluster, partition, owners, producer_id, offset, is_complete)
            for offset, producer_id in islice(partition.log.producers.open_transactions(), OPEN_MAX)
        ),
    )


def metadata_facts(cluster: Cluster, topic: Topic, state: PartitionState) -> PartitionFacts:
    """The facts about a partition from the metadata alone."""
    defaults = cluster.first.config.log_defaults
    return PartitionFacts(
        topic=topic.name,
        index=state.index,
        leader=None if state.leader == NO_LEADER else state.leader,
        leader_epoch=state.leader_epoch,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        eligible=tuple(state.eligible_leader_replicas),
        last_known_leader=tuple(state.last_known_eligible),
        min_isr=LogConfig.from_properties(topic.configs, defaults).min_insync_replicas,
    )


def home_facts(cluster: Cluster, topic: str, index: int) -> PartitionFacts | None:
    """The facts about a coordinator's partition from the metadata alone; None if its topic does not exist."""
    known = cluster.metadata.topic(topic)
    state = known.partition(index) if known is not None else None
    if known is None or state is None:
        return None
    return replace(metadata_facts(cluster, known, state), offline=_offline(cluster, topic, state))


def with_tail(cluster: Cluster, facts: PartitionFacts) -> PartitionFacts:
    """The facts with the content of the log's end, if no transaction is open.

    That part of a log does not change any more, so it need not be read in the same turn.
    """
    partition = replica_at_leader(cluster, facts.topic, facts.index)
    end = facts.last_stable
    if partition is None or partition.offline is not None or end is None or end != facts.high_watermark:
        return facts
    try:
        return replace(facts, tail=tail(partition.log, end))
    except StorageError:
        return facts  # the log reports the failure, and the partition goes offline


def _open(
    cluster: Cluster,
    partition: Partition,
    owners: Owners,
    producer_id: int,
    first_offset: int,
    is_complete: bool,
) -> OpenInLog:
    owner = owners.facts(cluster, producer_id)
    return OpenInLog(
        producer_id=producer_id,
        producer_epoch=partition.log.producers.entries[producer_id].epoch,
        first_offset=first_offset,
        owner=owner,
        owner_is_known=owner is not None or (is_complete and producer_id in owners.asked),
    )


def _offline(cluster: Cluster, topic: str, state: PartitionState) -> str | None:
    """The reason why the files of the leader, or without a leader those of the replica that should lead, cannot be used."""
    wanted = (state.leader,) if state.leader != NO_LEADER else tuple(state.replicas)
    for node_id in wanted:
        node = cluster.running(node_id)
        if node is not None and node.replicas.is_offline(topic, state.index):
            partition = node.replicas.get(topic, state.index)
            return None if partition is None else partition.offline
    return None
