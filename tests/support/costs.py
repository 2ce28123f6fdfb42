"""A pytest plugin that measures each test's CPU seconds, which do not depend on the load: ``-p tests.support.costs``.

The cost of a test is the CPU time of its process and of all descendants, alive or ended, during setup, call and teardown.
The cost of a fixture that several tests share counts for the test that set it up or tore it down. The summary lists the most
expensive files and tests. ``PYTEST_COSTS=FILE`` writes one line of JSON for each test to a file. Linux only: it reads /proc.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import pytest

MOST = 30
TICKS = os.sysconf("SC_CLK_TCK")
# Some tests replace these functions by failing ones.
scan, read, process_id = os.scandir, Path.read_text, os.getpid


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _processes() -> Iterator[tuple[int, int, float]]:
    """Yield (process id, parent id, CPU seconds of the process and of its ended children)."""
    for entry in scan("/proc"):
        if entry.name.isdecimal():
            try:
                fields = read(Path(entry.path, "stat"), "utf-8", "replace").rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield int(entry.name), int(fields[1]), sum(map(int, fields[11:15])) / TICKS


def _below_s() -> float:
    """CPU seconds of the living descendants of this process."""
    children = defaultdict[int, list[tuple[int, float]]](list)
    for pid, parent, used_s in _processes():
        children[parent].append((pid, used_s))
    sum_s, parents = 0.0, [process_id()]
    while parents:
        for pid, used_s in children[parents.pop()]:
            sum_s += used_s
            parents.append(pid)
    return sum_s


def spent_s() -> float:
    """CPU seconds of this process and of all its descendants, those for reading /proc included."""
    below_s = _below_s() if _has_children() else 0.0
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system + below_s


def own_s() -> float:
    return sum(os.times()[:2])


class Costs:
    """The plugin: it measures the cost of each phase of a test in the worker, and sums the costs in the process that
    reports."""

    def __init__(self) -> None:
        self._of_tests = defaultdict[str, float](float)
        self._wall_s = defaultdict[str, float](float)
        self._last_s = 0.0

    def pytest_collection_finish(self) -> None:
        """Start counting after the collection, whose cost belongs to no test."""
        self._last_s = spent_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before_s = own_s()
        now_s = spent_s()
        measuring_s = own_s() - before_s
        report.user_properties = [("cpu_s", max(0.0, now_s - measuring_s - self._last_s))]
        self._last_s = now_s
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._of_tests[report.nodeid] += float(str(dict(report.user_properties).get("cpu_s", 0)))
        self._wall_s[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"{sum(self._of_tests.values()):.0f} CPU seconds")
        files = defaultdict[str, float](float)
        for test, cpu_s in self._of_tests.items():
            files[test.partition("::")[0]] += cpu_s
        for costs in (files, self._of_tests):
            for name, cpu_s in _highest_first(costs)[:MOST]:
                terminalreporter.line(f"{cpu_s:8.2f}  {name}")
            terminalreporter.line("")
        path = os.environ.get("PYTEST_COSTS")
        if path and "PYTEST_XDIST_WORKER" not in os.environ:
            self._write(Path(path))

    def _write(self, path: Path) -> None:
        lines = [
            {"test": test, "cpu_s": round(cpu_s, 3), "wall_s": round(self._wall_s[test], 3)}
            for test, cpu_s in _highest_first(self._of_tests)
        ]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _highest_first(costs: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(costs.items(), key=lambda item: item[1], reverse=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Costs(), "costs")
