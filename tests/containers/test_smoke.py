"""A few of the container tests for `make clients`. `make soak` runs all of them."""

from __future__ import annotations

import pytest

from tests.containers.shapes import SHAPES, check
from tests.support.docker import Docker

pytestmark = [pytest.mark.docker, pytest.mark.foreign]


@pytest.mark.parametrize("name", ["--port", "a listener bound to the host's name"])
def test_it_is_healthy_and_serves_clients_outside(docker: Docker, name: str):
    check(docker, SHAPES[name])


def test_sigterm_stops_the_container_as_any_user(docker: Docker):
    with docker.container(["--user", "1000650000:0", "--cap-drop", "ALL"]) as broker:
        broker.until_healthy()
        broker.says("odradek", "produce", "orders", "paid")
        assert broker.stop() == 0
