"""docs/limits.md: each bound equals the constant in the code, or the default of the setting."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from broker.config.definitions import broker_configs

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text("utf-8")
BOUNDS = re.findall(r"^\| .+ \| (\d+) \| `([\w.]+)` \|$", PAGE, re.M)


def bound(name: str) -> Any:
    """Return a bound by its name on the page: a broker setting, a constant of a module, or a default of a class."""
    settings = broker_configs()
    if name in settings:
        return int(str(settings[name].default))
    parts = name.split(".")
    for at in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(parts[:at]))
        except ModuleNotFoundError:
            continue
        for part in parts[at:]:
            found = getattr(found() if isinstance(found, type) else found, part)
        return found
    raise LookupError(name)


@pytest.mark.parametrize(("figure", "name"), BOUNDS)
def test_a_bound_is_that_of_the_code(figure: str, name: str) -> None:
    assert bound(name) == int(figure)


def test_every_row_has_a_figure() -> None:
    rows = [line for line in PAGE.partition("## Sizes")[2].splitlines() if line.startswith("| ")]
    assert len(BOUNDS) == len(rows) - 2 > 20
