"""Collect facts about all possible problems of a cluster over the protocol, with limits."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from lab.explain.facts import ClusterFacts, PartitionFacts
from lab.explain.members import REBALANCING
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.metadata import MetadataResponseTopic
from tools.client.cluster import Cluster
from tools.client.errors import check
from tools.client.transactions import Transaction, transactions_of
from tools.control import Ages
from tools.explain.asking import Asking
from tools.explain.groups import group_facts
from tools.explain.looking import Where, look, transaction_facts

LOOKED_AT_MAX: Final = 5000
"""Maximum number of partitions whose transactions are queried; first those without a leader or with a small ISR."""
GROUPS_MAX: Final = 5
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


def cluster_facts(asking: Asking, ages: Ages) -> ClusterFacts:
    """Query the facts about nodes, partitions, groups and transactions."""
    wanted = _suspects(asking.metadata(None))
    if len(wanted) > LOOKED_AT_MAX:
        asking.note(f"Only {LOOKED_AT_MAX} of {len(wanted)} partitions were examined.")
    nodes = sorted(asking.cluster.nodes)
    listed = asking.each("ListGroups", {node: partial(_of_node, asking.cluster) for node in nodes})
    groups = sorted({group for found, _ in listed.values() for group in found})
    before = [each for _, found in listed.values() for each in found]
    places = look(asking, set(wanted[:LOOKED_AT_MAX]), ages, tails=False)
    again = asking.each(
        "ListTransactions",
        {node: partial(_under_way, asking.cluster) for node, (_, found) in listed.items() if found},
    )
    transactions = [each for found in again.values() for each in found if each in before]
    unmarked = {
        where for each in transactions if each.state.startswith("Prepare") for where in each.partitions
    }
    return ClusterFacts(
        partitions=tuple(
            places[where] for where in sorted(places) if where in unmarked or _is_troubled(places[where])
        ),
        transactions=tuple(transaction_facts(each, ages) for each in transactions),
        groups=tuple(group_facts(asking, group, ages) for group in groups[:GROUPS_MAX]),
        left_out=max(0, len(groups) - GROUPS_MAX),
    )


def _suspects(topics: Iterable[MetadataResponseTopic]) -> list[Where]:
    """All partitions of users' topics, and internal ones without a leader; those with a problem first."""
    found: list[tuple[int, Where]] = []
    for topic in topics:
        for each in topic.partitions:
            rank = 0 if each.leader_id < 0 else 1 if len(each.isr_nodes) < len(each.replica_nodes) else 2
            if not (topic.is_internal and rank):
                found.append((rank, (topic.name or "", each.partition_index)))
    return [where for _, where in sorted(found)]


def _is_troubled(at: PartitionFacts) -> bool:
    is_held = at.last_stable is None or at.high_watermark is None or at.last_stable < at.high_watermark
    is_held = is_held and not (at.advances and not at.open)
    return at.leader is None or at.offline is not None or len(at.isr) < len(at.replicas) or is_held


def _of_node(cluster: Cluster, node: int) -> tuple[list[str], list[Transaction]]:
    """The rebalancing groups and the open transactions of one coordinator."""
    response = cluster.ask_node(node, "list_groups", ListGroupsRequest())
    check(response.error_code, f"the groups of node {node}")
    groups = [each.group_id for each in response.groups if each.group_state in REBALANCING]
    return groups, _under_way(cluster, node)


def _under_way(cluster: Cluster, node: int) -> list[Transaction]:
    return transactions_of(cluster, node, OPEN_STATES)
