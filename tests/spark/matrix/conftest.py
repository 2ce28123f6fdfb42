"""Drivers need a Java, as sessions do."""

from __future__ import annotations

import os

import pytest

from odradek.spark.environment import JavaMissing, java


@pytest.fixture(autouse=True)
def _java(request: pytest.FixtureRequest) -> None:
    """Without one, what starts drivers is left out, and fails in CI."""
    if request.node.get_closest_marker("spark") is None:
        return
    try:
        java()
    except JavaMissing as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
