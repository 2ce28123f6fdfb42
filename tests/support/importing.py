"""A pytest plugin that lets the workers of xdist share the compilation of bytecode: each begins with other test modules.

If a checkout has no bytecode yet, importing the test modules and all that they import costs a process 11 seconds of CPU.
Workers that import the same modules in the same order all pay that. Here each worker imports another part of the modules
first, and then finds the bytecode of the other parts. pytest's collection uses the imported modules.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.tiers import may_have_tests


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    config = session.config
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    worker = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in in_turn(list(_modules(config)), worker, count):
        name = ".".join(path.relative_to(config.rootpath).with_suffix("").parts)
        # A module that cannot be imported, or warns, is not kept. The collection imports it again, and reports that.
        with suppress(Exception, pytest.skip.Exception), warnings.catch_warnings():
            warnings.simplefilter("error")
            import_module(name)


def in_turn(modules: list[Path], worker: int, count: int) -> list[Path]:
    """All modules, from the first one of this worker's part on."""
    first = len(modules) * worker // count
    return modules[first:] + modules[:first]


def _modules(config: pytest.Config) -> Iterator[Path]:
    """Yield the test modules below the folders of the command line that may have tests of the tier.

    pytest imports the modules of a package under another name, so these are left out.
    """
    tier = config.getoption("tier")
    for argument in config.args:
        for path in sorted((config.invocation_params.dir / argument).glob("**/test_*.py")):
            is_in_package = (path.parent / "__init__.py").exists()
            if not is_in_package and (tier is None or may_have_tests(path, tier)):
                yield path
