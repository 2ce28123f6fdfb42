"""The stories of each tool. A module registers its stories when it is imported."""

from tests.differential.console_tools.stories import (
    clients,
    cluster,
    configs,
    groups,
    nodes,
    tokens,
    topics,
    transactions,
)

__all__ = ["clients", "cluster", "configs", "groups", "nodes", "tokens", "topics", "transactions"]
