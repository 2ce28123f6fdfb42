"""A pytest plugin that runs Spark's tests in three workers of xdist, before all others because they take longest.

Then follow the files in `LONG`.

One worker has the tests that share a Spark session, so that they need one JVM. The tests of the audit, and the run of the
pipeline, which ends with an audit, take as long as all other tests with a session, and share another session in another
worker. The third worker has the tests that start Spark in processes of their own, one after the other. All other tests are
distributed by file, as `--dist loadfile` does, but for the files in `PARTS`.
"""

from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.support.tiers import names_mark

MARKS = ("spark", "spark_apart")
AUDIT = "audit"
WITH_AUDIT = ("test_audit_", "test_pipeline_run")
LONG = ("test_packaging.py", "test_wheel.py")
"""Files that build packages. In the order of the tree they would begin last, and run alone for most of a minute."""
PARTS = {"test_recorded.py": 4, "test_zoo.py": 3}
"""Files whose tests wait most of the time, and the number of parts that each is distributed in."""
_LONG = len(MARKS)


@cache
def rank(module: Path) -> int:
    """Index in ``MARKS`` of the mark that a test module uses. Modules that use none follow, those in `LONG` first.

    The mark is searched in the module's text, because a scheduler of xdist gets only the names of tests.
    """
    text = module.read_text("utf-8")
    unmarked = _LONG if module.name in LONG else _LONG + 1
    return next((at for at, mark in enumerate(MARKS) if names_mark(text, [mark])), unmarked)


class OneWorkerForSpark(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        module = super()._split_scope(nodeid)
        at = rank(self.config.rootpath / module)
        if at >= _LONG:
            parts = PARTS.get(Path(module).name, 1)
            return module if parts == 1 else f"{module}-{crc32(nodeid.encode()) % parts}"
        return MARKS[at] + (AUDIT if any(name in module for name in WITH_AUDIT) else "")


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
        raise pytest.UsageError(
            f"tests that use the fixture 'spark' without the mark 'spark': {', '.join(unmarked)}"
        )
    items.sort(key=lambda item: rank(item.path))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if any(item.get_closest_marker(mark) for mark in MARKS):
        # The module is a pytest plugin, which pytest has to import first to rewrite its assertions.
        from odradek.spark.testing.fixtures import require_spark

        require_spark()
