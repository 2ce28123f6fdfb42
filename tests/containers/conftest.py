"""A real Docker engine with the image of this checkout (`tests/support/docker.py`)."""

import pytest

from tests.support.docker import Docker, built


@pytest.fixture(scope="session")
def docker() -> Docker:
    """The Docker engine, after the image was built in it."""
    docker = Docker()
    built(docker)
    return docker
