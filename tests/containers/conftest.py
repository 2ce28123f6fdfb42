"""The image of this checkout in a real engine (`tests/support/docker.py`)."""

import os

import pytest

from tests.support.docker import Docker


@pytest.fixture(scope="session")
def docker() -> Docker:
    """With the image, which is built where it has changed."""
    docker = Docker()
    if "ODRADEK_CHECKED_IMAGE" not in os.environ:
        docker.build()
    return docker
