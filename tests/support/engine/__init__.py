"""A Docker engine for tests: the machine's own where one runs, else one without Docker.

That has the API on a unix socket, and containers as processes in namespaces.
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
    """An engine that has our image; skips the test where the machine allows no containers, fails it in CI."""
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
