from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.nodes import Nodes

MakeNodes = Callable[..., Nodes]


@pytest.fixture
def make_nodes(tmp_path: Path) -> Iterator[MakeNodes]:
    made: list[Nodes] = []

    def make(count: int = 3, **settings: str) -> Nodes:
        made.append(
            Nodes(tmp_path, count, {name.replace("_", "."): value for name, value in settings.items()})
        )
        return made[-1]

    yield make
    for nodes in made:
        nodes.end()


@pytest.fixture
def nodes(make_nodes: MakeNodes) -> Nodes:
    return make_nodes()
