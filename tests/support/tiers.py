"""Each test is in one tier, which one of make's targets runs: ``pytest --tier test``.

| tier | tests |
| --- | --- |
| `test` | run with each change: all tests that need no JVM, and a few others, marked `smoke` |
| `more` | also run with each change, but slower: tests with a JVM or Spark, and those marked `more` |
| `clients` | programs in Go, Node and Rust, kcat, Kafka's tools, Testcontainers, marked `foreign` |
| `soak` | long tests, marked `slow` |
| `check` | tests that check the source files of the project, marked `check`: `make check` runs them |

Without the option pytest runs all selected tests, whatever their tier.
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
