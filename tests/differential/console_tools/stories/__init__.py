"""The stories of each tool. A module registers its stories when it is imported."""

from tests.differential.console_tools.stories import (
    acls,
    clients,
    cluster,
    configs,
    groups,
    nodes,
    tokens,
    topics,
    transactions,
)

__all__ = ["acls", "clients", "cluster", "configs", "groups", "nodes", "tokens", "topics", "transactions"]
