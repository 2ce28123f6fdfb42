"""The image of this checkout in a real engine (`tests/support/docker.py`)."""

import pytest

from tests.support.docker import Docker, built


@pytest.fixture(scope="session")
def docker() -> Docker:
    """With the image in it."""
    docker = Docker()
    built(docker)
    return docker
