"""The names in a cluster: topics, groups, transactional ids."""

from __future__ import annotations

from typing import Final

from odradek.deadlines import stretched
from odradek.nearest import did_you_mean
from tools.client.cluster import Cluster
from tools.client.errors import Kind, ToolError
from tools.client.groups import list_groups
from tools.client.transactions import list_transactions

LOOK_S: Final = stretched(2.0)
"""Timeout in seconds of the query for existing names after a command failed because of an unknown name."""


def names_of(cluster: Cluster, kind: Kind) -> list[str]:
    """The names of all topics (except internal ones), groups or transactional ids of a cluster."""
    if kind == "topic":
        return [each.name for each in cluster.refresh(None) if each.name and not each.is_internal]
    if kind == "group":
        return [each.group_id for each in list_groups(cluster, missing=[])]
    return [each.transactional_id for each in list_transactions(cluster, missing=[])]


def near_name(cluster: Cluster, error: ToolError) -> str:
    """Suggestion to append to an error about an unknown name: a similar existing name. Empty for other errors."""
    if error.unknown is None:
        return ""
    kind, name = error.unknown
    try:
        with cluster.within(LOOK_S):
            return did_you_mean(name, names_of(cluster, kind))
    except ToolError:
        return ""
