"""What every test may use."""

import os
import shutil
from pathlib import Path

import pytest

pytest_plugins = ["tests.support.broker", "tests.support.one_worker", "odradek.spark.testing.fixtures"]

# What is fetched for Spark lies in the checkout, as all else that tests fetch.
os.environ["ODRADEK_CACHE"] = str(Path(__file__).resolve().parents[1] / ".cache")

TSHARK = shutil.which("tshark")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without Wireshark's tshark, which is no Python package, captures are judged by the tests' own reader alone."""
    if TSHARK is None:
        judged = [item for item in items if item.get_closest_marker("tshark")]
        config.hook.pytest_deselected(items=judged)
        items[:] = [item for item in items if item not in judged]


def pytest_report_header() -> str:
    return f"tshark: {TSHARK or 'not installed, its tests are left out'}"
