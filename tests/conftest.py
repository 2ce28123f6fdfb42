"""What every test may use."""

import os
import shutil
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from compiled.finder import use_python
from tests.support.children import reset_signals
from tests.support.deadlines import TEST_S
from tests.support.docker_socket import engine
from tests.support.postgres import programs as postgres_programs

pytest_plugins = [
    "tests.support.tiers",
    "tests.support.broker",
    "tests.support.coroutines",
    "tests.support.one_worker",
    "tests.support.hangs",
    "tests.compatibility.verdicts",
    "odradek.spark.testing.fixtures",
]

# What is fetched for Spark lies in the checkout, as all else that tests fetch.
os.environ["ODRADEK_CACHE"] = str(Path(__file__).resolve().parents[1] / ".cache")

# pytest-timeout's, before a test's own mark; what it ends has hung.
os.environ["PYTEST_TIMEOUT"] = str(TEST_S)

# Hypothesis would fail an example that takes 200 ms, and a test whose data take a second to be drawn.
settings.register_profile("odradek", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("odradek")

reset_signals()

# In the process of a test; brokers that it starts in processes of their own run what is compiled. With
# TESTED=compiled this one does too, for tests that put nothing in place of a method.
if os.environ.get("TESTED") != "compiled":
    use_python()

# Where this worker keeps the bytecode of tests; what tests start, in a directory that is new each time, keeps its own.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("PYTHONPYCACHEPREFIX", None)

# Its default, where rich is installed, shows the variables of each frame of a traceback, however large they are.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

TSHARK = shutil.which("tshark")
PROGRAMS = {
    "tshark": TSHARK,
    "kcat": shutil.which("kcat"),
    "chromium": shutil.which("chromium"),
    "postgres": postgres_programs(),
    "prometheus": shutil.which("prometheus"),
    "kubernetes": os.environ.get("ODRADEK_KUBECTL"),
    "docker": engine(),
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What needs a program that is no Python package is left out where it is not: Wireshark's tshark, without which the
    tests' own reader judges captures alone, kcat, Chromium, Prometheus, PostgreSQL, a Docker engine, and a Kubernetes
    (`ODRADEK_KUBECTL`)."""
    missing = [name for name, found in PROGRAMS.items() if found is None]
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in missing)]
    # Imported when pytest has loaded it as a plug-in: before, its asserts could not be rewritten.
    from tests.compatibility.verdicts import note_left_out

    note_left_out(left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_report_header() -> str:
    return ", ".join(
        f"{name}: {found or 'not here, its tests are left out'}" for name, found in PROGRAMS.items()
    )
