"""Fixtures for the tests of single APIs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from broker.metadata import ClusterMetadata
from tests.broker.metadata.world import open_cluster


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterMetadata]:
    """The metadata of a new cluster with one node and no topics."""
    opened = open_cluster(tmp_path / "node")
    yield opened
    await opened.close()
