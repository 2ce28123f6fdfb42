"""The stories (scripted commands) of each of Kafka's tools. The import of a module registers its stories."""

from tests.differential.console_tools.stories import (
    acls,
    clients,
    cluster,
    configs,
    groups,
    nodes,
    share_groups,
    tokens,
    topics,
    transactions,
)

__all__ = [
    "acls",
    "clients",
    "cluster",
    "configs",
    "groups",
    "nodes",
    "share_groups",
    "tokens",
    "topics",
    "transactions",
]
