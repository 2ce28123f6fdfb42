"""Each test is in one tier, which one of make's targets runs: ``pytest --tier test``.

| tier | what is in it |
| --- | --- |
| `test` | what is waited for with each change: all that needs no JVM, and a few of the others, marked `smoke` |
| `more` | what also belongs to a change: what asks a JVM or Spark, and what is marked `more` |
| `clients` | programs in Go, Node and Rust, kcat, Kafka's tools, Testcontainers, marked `foreign` |
| `soak` | long forms, marked `slow` |
| `check` | what reads the sources of the house, marked `check`: `make check` runs it |

Without the option a call of pytest runs what it is given, whatever its tier.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pytest

TIERS: Final = ("test", "more", "clients", "soak", "check")
JVM: Final = frozenset({"java", "spark", "spark_apart"})


def tier_of(marks: Collection[str]) -> str:
    """The tier of a test with these marks."""
    if "slow" in marks:
        return "soak"
    if "check" in marks:
        return "check"
    if "foreign" in marks:
        return "clients"
    if "more" in marks or (JVM.intersection(marks) and "smoke" not in marks):
        return "more"
    return "test"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, help="run the tests of one tier only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("tier")
    if wanted is None:
        return
    tiers = {item: tier_of([mark.name for mark in item.iter_markers()]) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if tiers[item] != wanted])
    items[:] = [item for item in items if tiers[item] == wanted]
