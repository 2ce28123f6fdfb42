"""The same fixtures as the scenarios have."""

from tests.scenarios.conftest import client, new_producer, relay

__all__ = ["client", "new_producer", "relay"]
