"""Plugins, settings and fixtures for all tests."""

import gc
import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings

from compiled.finder import use_python
from tests.support.children import reset_signals
from tests.support.deadlines import TEST_S
from tests.support.docker_socket import engine
from tests.support.postgres import PostgresServer
from tests.support.postgres import programs as postgres_programs

pytest_plugins = [
    "tests.support.tiers",
    "tests.support.broker",
    "tests.support.forked",
    "tests.support.coroutines",
    "tests.support.one_worker",
    "tests.support.hangs",
    "tests.compatibility.verdicts",
    "odradek.spark.testing.fixtures",
]

# Downloads for Spark go to the checkout, like all other downloads of the tests.
os.environ["ODRADEK_CACHE"] = str(Path(__file__).resolve().parents[1] / ".cache")

# The time limit of pytest-timeout for tests that set none of their own. A test that exceeds this limit counts as hung.
os.environ["PYTEST_TIMEOUT"] = str(TEST_S)

# By default Hypothesis fails an example that takes 200 ms, and a test that takes a second to generate its data.
# The explain phase is off: it traces every line while a failure is shrunk, so a failing state machine would take an hour.
settings.register_profile(
    "odradek",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.load_profile("odradek")

reset_signals()

# The process of a test runs the Python modules, and brokers in processes of their own run the compiled ones. With
# TESTED=compiled this process runs the compiled modules too, for tests that replace no method.
if os.environ.get("TESTED") != "compiled":
    use_python()

# PYTHONPYCACHEPREFIX is for this worker only: programs that tests start in temporary directories use their own.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("PYTHONPYCACHEPREFIX", None)

# The default renderer, if rich is installed, prints the variables of each frame of a traceback, however large.
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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector: 17,000 tests are a million objects that live until the end of the run.

    Afterwards it runs rarely, as in a broker (`server.process`).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(50_000, 20, 50)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that need a missing program: tshark (without it only our own reader checks captures), kcat, Chromium,
    Prometheus, PostgreSQL, a Docker engine or a Kubernetes (`ODRADEK_KUBECTL`)."""
    missing = [name for name, found in PROGRAMS.items() if found is None]
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in missing)]
    # At module level, this import would load the module before pytest can rewrite its asserts.
    from tests.compatibility.verdicts import note_left_out

    note_left_out(left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def postgres() -> Generator[PostgresServer, None, None]:
    """A PostgreSQL server for all tests of this worker. A test uses databases or tables of its own names."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def spark_conf() -> dict[str, str]:
    """Settings of the session in ``spark``: its JVM starts with an archive of Spark's classes."""
    from tests.spark.archive import java_options

    return {"spark.driver.extraJavaOptions": java_options()}


def pytest_report_header() -> str:
    return ", ".join(
        f"{name}: {found or 'not here, its tests are left out'}" for name, found in PROGRAMS.items()
    )
