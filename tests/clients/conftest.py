"""Imports the fixtures of the scenarios."""

from tests.scenarios.conftest import client, new_producer, relay

__all__ = ["client", "new_producer", "relay"]
