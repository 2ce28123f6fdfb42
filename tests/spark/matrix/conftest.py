"""The tests here start drivers, so they need Java."""

from __future__ import annotations

import os

import pytest

from odradek.spark.environment import JavaMissing, java


@pytest.fixture(autouse=True)
def _java(request: pytest.FixtureRequest) -> None:
    """Skip tests that start drivers if there is no Java. In CI they fail instead."""
    if request.node.get_closest_marker("spark") is None:
        return
    try:
        java()
    except JavaMissing as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
