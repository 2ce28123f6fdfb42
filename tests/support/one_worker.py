"""Spark's tests go to one worker of xdist, so that there is one JVM with one session, and begin first: together they take
longest. All others are distributed by file, as `--dist loadfile` does it.
"""

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

SCOPE = "spark"


@cache
def shares_the_session(module: Path) -> bool:
    """Whether any test of a module is marked so. Schedulers know tests by name only, so it is the text that tells."""
    return re.search(r"\bmark\.spark\b", module.read_text("utf-8")) is not None


class OneWorkerForSpark(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        module = super()._split_scope(nodeid)
        return SCOPE if shares_the_session(self.config.rootpath / module) else module


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
    items.sort(key=lambda item: not shares_the_session(item.path))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Not all that is marked takes the session: some start drivers of their own."""
    if item.get_closest_marker("spark"):
        from odradek.spark.testing.fixtures import (
            require_spark,
        )  # a plugin, which pytest has to import itself

        require_spark()
