"""Each test is in one tier, which one of make's targets runs: ``pytest --tier test``.

| tier | tests |
| --- | --- |
| `test` | run with each change: all tests that need no JVM, and a few others, marked `smoke` |
| `more` | also run with each change, but slower: tests with a JVM or Spark, and those marked `more` |
| `clients` | programs in Go, Node and Rust, kcat, Kafka's tools, Testcontainers, marked `foreign` |
| `soak` | long tests, marked `slow` |
| `check` | tests that check the source files of the project, marked `check`: `make check` runs them |

Without the option pytest runs all selected tests, whatever their tier. With it, modules whose text shows that they have no
test of the tier are not imported, which saves each worker of `make more` half of its collection.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TIERS: Final = ("test", "more", "clients", "soak", "check")
JVM: Final = frozenset({"java", "spark", "spark_apart"})
MARKS: Final = {
    "more": ("more", *sorted(JVM)),
    "clients": ("foreign",),
    "soak": ("slow",),
    "check": ("check",),
}
"""Tier -> the marks of which each of its tests has one."""
TESTS: Final = Path(__file__).parents[1]


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


def names_mark(text: str, marks: Collection[str]) -> bool:
    return re.search(rf"\bmark\.({'|'.join(marks)})\b", text) is not None


@cache
def _conftests(folder: Path) -> str:
    """The text of the ``conftest.py`` of a folder and of the folders above it, up to that of all tests."""
    own = folder / "conftest.py"
    text = own.read_text("utf-8") if own.exists() else ""
    return text if folder == TESTS or TESTS not in folder.parents else text + _conftests(folder.parent)


def may_have_tests(module: Path, tier: str) -> bool:
    """Whether the text of a module, or of the conftests above it, allows that one of its tests is in this tier.

    A test is in another tier than `test` only by a mark. If a module marks all its tests, none is in the tier `test`.
    """
    text = module.read_text("utf-8")
    if tier != "test":
        return names_mark(text + _conftests(module.parent), MARKS[tier])
    of_all = re.search(r"^pytestmark = (\[\n.*?^\]|.*?$)", text, re.MULTILINE | re.DOTALL)
    others = [mark for marks in MARKS.values() for mark in marks]
    return of_all is None or not names_mark(of_all[1], others) or names_mark(text, ["smoke"])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, help="run the tests of one tier only")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    wanted = config.getoption("tier")
    is_module = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if wanted and is_module and not may_have_tests(collection_path, wanted) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("tier")
    if wanted is None:
        return
    tiers = {item: tier_of([mark.name for mark in item.iter_markers()]) for item in items}
    for module, tier in sorted({(item.path, tier) for item, tier in tiers.items()}):
        if not may_have_tests(module, tier):
            raise pytest.UsageError(f"{module} names no mark of its tests of the tier {tier}")
    config.hook.pytest_deselected(items=[item for item in items if tiers[item] != wanted])
    items[:] = [item for item in items if tiers[item] == wanted]
