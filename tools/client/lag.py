"""How far a group is behind."""

from __future__ import annotations

from typing import Any

from tools.client.cluster import Cluster
from tools.client.groups import assigned, describe_group, fetch_offsets
from tools.client.offsets import LATEST, READ_COMMITTED, list_offset


def lag_of(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """For each partition of a group: its offset, the ends, and the member that has it."""
    owners = {
        where: each.client_id
        for each in describe_group(cluster, name).members
        for where in assigned(each.member_assignment)
    }
    found = []
    for (topic, partition), committed in sorted(fetch_offsets(cluster, name).items()):
        stable = list_offset(cluster, topic, partition, LATEST, READ_COMMITTED)
        end = list_offset(cluster, topic, partition, LATEST)
        found.append(
            {
                "topic": topic,
                "partition": partition,
                "committed_offset": committed,
                "last_stable_offset": stable,
                "end_offset": end,
                "lag": max(0, stable - committed),
                "open": max(0, end - stable),
                "client_id": owners.get((topic, partition)),
            }
        )
    return found
