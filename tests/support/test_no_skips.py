"""Tests of the plugin that makes CI fail if a test did not run."""

import subprocess
from pathlib import Path

import pytest

from tests.support.inner_pytest import run_pytest

pytestmark = pytest.mark.more

ALL_RAN = {
    "passes": "def test(): pass",
    "deselected": "import pytest\ndef test(): pass\n@pytest.mark.slow\ndef test_slow(): assert False",
}
NOT_RUN = {
    "skipped": "import pytest\ndef test(): pytest.skip('no java')",
    "module_skipped": "import pytest\npytest.skip('no java', allow_module_level=True)",
    "xfailed": "import pytest\n@pytest.mark.xfail(reason='no java')\ndef test(): assert False",
    "xpassed": "import pytest\n@pytest.mark.xfail(reason='no java')\ndef test(): pass",
}


def run(folder: Path, cases: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    more = ("-m", "not slow", *arguments)
    return run_pytest("tests.support.no_skips", folder, cases, *more, ini="markers = slow\n")


def test_where_all_ran_nothing_fails(tmp_path: Path):
    result = run(tmp_path, ALL_RAN)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_test_that_did_not_run_fails_the_run(workers: str, tmp_path: Path):
    result = run(tmp_path, ALL_RAN | NOT_RUN, "-n", workers)
    assert result.returncode == 1, result.stdout + result.stderr
    _, _, summary = result.stdout.partition("not run, which fails here")
    for case in NOT_RUN:
        assert f"test_{case}.py" in summary
    assert summary.count(": ") >= summary.count("no java") == len(NOT_RUN)
