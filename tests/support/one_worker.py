"""Spark's tests go to two workers of xdist, and begin first: together they take longest.

One has the tests that share a session, so that there is one JVM for them; one has the tests that start Spark in processes
of their own, one after the other. All others are distributed by file, as `--dist loadfile` does it.
"""

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

MARKS = ("spark", "spark_apart")
_LAST = len(MARKS)


@cache
def rank(module: Path) -> int:
    """Which of the marks a module has. Schedulers know tests by name only, so it is the text that tells."""
    text = module.read_text("utf-8")
    return next((at for at, mark in enumerate(MARKS) if re.search(rf"\bmark\.{mark}\b", text)), _LAST)


class OneWorkerForSpark(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        module = super()._split_scope(nodeid)
        at = rank(self.config.rootpath / module)
        return module if at == _LAST else MARKS[at]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    return OneWorkerForSpark(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    unmarked = [
        item.nodeid
        for item in items
        if "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("spark")
    ]
    if unmarked:
        raise pytest.UsageError(f"these take a Spark session, but are not marked so: {', '.join(unmarked)}")
    items.sort(key=lambda item: rank(item.path))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if any(item.get_closest_marker(mark) for mark in MARKS):
        # A plugin, which pytest has to import itself.
        from odradek.spark.testing.fixtures import require_spark

        require_spark()
