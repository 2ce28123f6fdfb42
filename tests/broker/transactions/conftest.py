"""Fixtures for tests of transactions between nodes."""

import pytest

from tests.support.peers import FakePeers
from tests.support.world import NODE_ID


@pytest.fixture
def peers() -> FakePeers:
    """A fake network to the other nodes."""
    return FakePeers(NODE_ID)
