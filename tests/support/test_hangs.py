"""What a process that hung had written stands in the report."""

from pathlib import Path

from tests.support.inner_pytest import run_pytest

HANGS = """
from subprocess import TimeoutExpired

def test_it_ends():
    raise TimeoutExpired(["worker"], 120, output=b"so far\\n", stderr=b"a reason\\n")
"""


def test_a_report_has_what_a_process_wrote_before_it_hung(tmp_path: Path):
    done = run_pytest("tests.support.hangs", tmp_path, {"worker": HANGS})
    assert "1 failed" in done.stdout
    assert "stdout of the process that hung -" in done.stdout
    assert "\nso far\n" in done.stdout
    assert "stderr of the process that hung -" in done.stdout
    assert "\na reason\n" in done.stdout
