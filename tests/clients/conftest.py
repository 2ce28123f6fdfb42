"""The same fixtures as the scenarios have, and asserts in the contract that speak as those of a test file do."""

import pytest

from tests.scenarios.conftest import client, new_producer, relay

__all__ = ["client", "new_producer", "relay"]

pytest.register_assert_rewrite("tests.clients.contract")
