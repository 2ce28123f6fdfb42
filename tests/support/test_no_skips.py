"""The plugin that makes CI fail where a test did not run."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = {
    "passes": ("def test(): pass", 0),
    "skipped": ("import pytest\ndef test(): pytest.skip('no java')", 1),
    "module_skipped": ("import pytest\npytest.skip('no java', allow_module_level=True)", 1),
    "xfailed": ("import pytest\n@pytest.mark.xfail(reason='no java')\ndef test(): assert False", 1),
    "xpassed": ("import pytest\n@pytest.mark.xfail(reason='no java')\ndef test(): pass", 1),
    "deselected": ("import pytest\ndef test(): pass\n@pytest.mark.slow\ndef test_slow(): assert False", 0),
}


@pytest.mark.parametrize(
    ("case", "workers"), [*((case, "0") for case in CASES), ("skipped", "2"), ("passes", "2")]
)
def test_a_test_that_did_not_run_fails_the_run(case: str, workers: str, tmp_path: Path):
    source, expected = CASES[case]
    (tmp_path / f"test_{case}.py").write_text(f"def test_other(): pass\n{source}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.support.no_skips",
        "-n",
        workers,
        "-m",
        "not slow",
    ]
    result = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-c", str(tmp_path / "pytest.ini"), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == expected, result.stdout + result.stderr
    assert ("no java" in result.stdout) == (expected != 0)
