"""The lag of a group."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tools.client.cluster import Cluster
from tools.client.groups import Group, fetch_offsets, unstable_partitions
from tools.client.offsets import LATEST, READ_COMMITTED, list_offset


def lag_of(cluster: Cluster, group: Group) -> list[dict[str, Any]]:
    """One dict for each partition of a classic or consumer group: committed offset, log offsets, lag, assigned member.

    The partitions are those with a committed offset, those assigned to a member, and those for which an open transaction
    has a pending offset. ``committed_offset`` and ``lag`` are None if nothing is committed yet.
    """
    owners, offsets = group.owners, fetch_offsets(cluster, group.group_id)
    pending = _pending(cluster, group.group_id, {topic for topic, _ in {*owners, *offsets}})
    found = []
    for topic, partition in sorted({*owners, *offsets, *pending}):
        where = (topic, partition)
        committed, owner = offsets.get(where), owners.get(where)
        stable = list_offset(cluster, topic, partition, LATEST, READ_COMMITTED)
        end = list_offset(cluster, topic, partition, LATEST)
        found.append(
            {
                "topic": topic,
                "partition": partition,
                "committed_offset": committed,
                "pending": where in pending,
                "last_stable_offset": stable,
                "end_offset": end,
                "lag": None if committed is None else max(0, stable - committed),
                "open": max(0, end - stable),
                "client_id": owner and owner.client_id,
            }
        )
    return found


def _pending(cluster: Cluster, name: str, topics: Collection[str]) -> set[tuple[str, int]]:
    """Return the partitions of ``topics`` with a pending offset of an open transaction.

    If ``topics`` is empty (the group has no offsets or members yet), all topics except internal ones are queried.

    A coordinator reports pending offsets only for partitions that are requested by name.
    """
    known = cluster.refresh(sorted(topics) or None)
    partitions = [
        (topic.name or "", each.partition_index)
        for topic in known
        if not topic.is_internal
        for each in topic.partitions
    ]
    return unstable_partitions(cluster, name, partitions)
