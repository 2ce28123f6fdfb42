"""What a process that hung had written stands in the report."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HANGS = """
from subprocess import TimeoutExpired

def test_it_ends():
    raise TimeoutExpired(["worker"], 120, output=b"so far\\n", stderr=b"a reason\\n")
"""


def test_a_report_has_what_a_process_wrote_before_it_hung(tmp_path: Path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_worker.py").write_text(HANGS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.support.hangs",
        "--basetemp",
        str(tmp_path / "temporary"),
    ]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-c", str(tmp_path / "pytest.ini"), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed" in done.stdout
    assert "stdout of the process that hung -" in done.stdout
    assert "\nso far\n" in done.stdout
    assert "stderr of the process that hung -" in done.stdout
    assert "\na reason\n" in done.stdout
