"""A pytest plugin for CI that fails the run if a test was skipped or xfailed.

python -m pytest -p tests.support.no_skips
"""

import pytest

_not_run: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped or hasattr(report, "wasxfail"):
        _remember(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _remember(report)


def _remember(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = getattr(report, "wasxfail", None)
    if reason is None and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
    _not_run[report.nodeid] = str(reason)


# Last, so that no other plugin overwrites the exit status.
@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    # A worker of xdist reports to the process that started it, and only that process sets the exit status.
    if _not_run and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _not_run:
        terminalreporter.section("not run, which fails here", red=True)
        for test, reason in _not_run.items():
            terminalreporter.line(f"{test}: {reason}")
