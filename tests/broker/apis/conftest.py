"""What tests of single APIs share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from broker.metadata import ClusterMetadata
from tests.broker.metadata.world import open_cluster


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterMetadata]:
    """A new cluster of one node, with nothing in it."""
    opened = open_cluster(tmp_path / "node")
    yield opened
    await opened.close()
