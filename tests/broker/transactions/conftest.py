"""Fixtures for tests of transactions between nodes."""

import pytest

from tests.support.peers import FakePeers
from tests.support.world import NODE_ID


@pytest.fixture
def peers() -> FakePeers:
    """The other nodes, as the node under test reaches them."""
    return FakePeers(NODE_ID)
