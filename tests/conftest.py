"""What every test may use."""

import shutil

import pytest

pytest_plugins = ["tests.support.broker"]

TSHARK = shutil.which("tshark")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without Wireshark's tshark, which is no Python package, captures are judged by the tests' own reader alone."""
    if TSHARK is None:
        judged = [item for item in items if item.get_closest_marker("tshark")]
        config.hook.pytest_deselected(items=judged)
        items[:] = [item for item in items if item not in judged]


def pytest_report_header() -> str:
    return f"tshark: {TSHARK or 'not installed, its tests are left out'}"
