"""All reaches (optional parts of the workload), and the choice of reaches by the seed."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.simulation.deletions import Deletions
from tests.simulation.logins import Logins
from tests.simulation.reach import Reach
from tests.simulation.recreated import Recreated
from tests.simulation.settings import DynamicSettings
from tests.simulation.shares import Shares

REACHES: Final[dict[str, type[Reach]]] = {
    "deletions": Deletions,
    "recreated": Recreated,
    "settings": DynamicSettings,
    "logins": Logins,
    "shares": Shares,
}
PROBABILITY: Final = 0.25
"""Probability that a seed runs a reach, if it is not in ``PROBABILITIES``."""
PROBABILITIES: Final = {"shares": 0.6}


def drawn(seed: int, nodes: int, names: list[str] | None = None) -> list[Reach]:
    """The reaches that the seed selects, or the reaches with these ``names``."""
    random = Random(f"{seed}/drawn")
    numbers = {name: random.random() for name in REACHES}
    chosen = [name for name in REACHES if numbers[name] < PROBABILITIES.get(name, PROBABILITY)]
    names = chosen if names is None else names
    return [REACHES[name](Random(f"{seed}/reach/{name}"), nodes) for name in names]
