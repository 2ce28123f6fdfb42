"""A pytest plugin for CI that writes each failure as a line of JSON, for the last lines that ``.ci/run`` prints.

python -m pytest -p tests.support.failures_file      # with PYTEST_FAILURES_FILE=FILE; further runs append to it
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest

VARIABLE: Final = "PYTEST_FAILURES_FILE"
SECTIONS: Final = ("stacks of", "written by process", "std", "Captured")
"""Sections of a report that are written, in this order: the stacks of hung processes come first."""
KEPT_LINES: Final = 60
"""Maximum number of lines of a section; the last lines are written."""


class FailuresFile:
    """The plugin. It runs only in the process that reports: a worker of xdist leaves the file to the process that started
    it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._keep(report, f"{report.nodeid} ({report.when})")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._keep(report, f"{report.nodeid} (collection)")

    def _keep(self, report: pytest.TestReport | pytest.CollectReport, name: str) -> None:
        sections = [
            {"title": title, "lines": text.splitlines()[-KEPT_LINES:]}
            for prefix in SECTIONS
            for title, text in report.sections
            if title.startswith(prefix)
        ]
        line = {
            "test": name,
            "lines": report.longreprtext.splitlines()[-KEPT_LINES:],
            "sections": sections,
        }
        with self._path.open("a") as file:
            print(json.dumps(line), file=file)


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get(VARIABLE)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresFile(Path(path)))
