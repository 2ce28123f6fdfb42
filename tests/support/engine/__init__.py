"""A Docker engine for tests, without Docker: the API on a unix socket, containers as processes in namespaces."""

from __future__ import annotations

import os

import pytest

from tests.support.engine.process import CannotContain, check
from tests.support.engine.server import Engine

__all__ = ["Engine", "engine_or_skip"]


def engine_or_skip() -> Engine:
    """An engine; skips the test where the machine allows no containers, fails it in CI."""
    try:
        check()
    except CannotContain as reason:
        message = f"needs the rights to make namespaces, mounts and a network, as root has them: {reason}"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return Engine()
