from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.clients.security.world import World, started_world

if TYPE_CHECKING:
    from tests.clients.security.contract import Outcomes

pytest.register_assert_rewrite("tests.clients.security.contract")


@pytest.fixture(scope="class")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The broker of one client's handshake tests. A shared one would exhaust its log's rate limit for similar lines."""
    with started_world(tmp_path_factory.mktemp("handshakes")) as found:
        yield found


@pytest.fixture(scope="class")
def outcomes(request: pytest.FixtureRequest, world: World) -> Outcomes:
    """The outcomes of one run of a client: of all cells (connections with an action) that do not stay connected."""
    found: Outcomes = request.cls.outcomes_in(world)
    return found
