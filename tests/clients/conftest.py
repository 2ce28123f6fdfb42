"""Imports the fixtures of the scenarios, and enables pytest's assertion messages in the contract modules."""

import pytest

from tests.scenarios.conftest import client, new_producer, relay

__all__ = ["client", "new_producer", "relay"]

pytest.register_assert_rewrite("tests.clients.contract")
