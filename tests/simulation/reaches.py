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
SHARE: Final = 0.25
"""Probability that a seed runs a reach, the same for each reach."""


def drawn(seed: int, nodes: int, names: list[str] | None = None) -> list[Reach]:
    """The reaches that the seed selects, or the reaches with these ``names``."""
    random = Random(f"{seed}/drawn")
    shares = {name: random.random() for name in REACHES}
    chosen = [name for name, share in shares.items() if share < SHARE] if names is None else names
    return [REACHES[name](Random(f"{seed}/reach/{name}"), nodes) for name in chosen]
