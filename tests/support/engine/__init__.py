"""A Docker engine for tests: a real one if the machine has one, otherwise an engine without Docker.

The engine without Docker serves the API on a unix socket and runs containers as processes in namespaces.
"""

from __future__ import annotations

import os

import pytest

from tests.support.docker_socket import engine
from tests.support.engine.process import CannotContain, check
from tests.support.engine.real import RealEngine
from tests.support.engine.server import Engine

__all__ = ["Engine", "RealEngine", "engine_or_skip"]


def engine_or_skip() -> Engine | RealEngine:
    """Yield an engine that has our image. Skips the test if the machine allows no containers; fails it in CI."""
    if (socket := engine()) is not None:
        return RealEngine(socket)
    try:
        check()
    except CannotContain as reason:
        message = f"needs the rights to make namespaces, mounts and a network, as root has them: {reason}"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return Engine()
