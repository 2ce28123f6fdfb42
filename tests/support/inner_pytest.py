"""A function that runs pytest in a process with one of our plugins, on test files that a test has written.

done = run_pytest("tests.support.no_skips", tmp_path, {"passes": "def test(): pass"}, "-n", "2")
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_pytest(
    plugin: str, folder: Path, cases: Mapping[str, str], *arguments: str, ini: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the cases, each as ``test_<name>.py`` in the folder. ``ini`` is appended to pytest.ini."""
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}")
    for name, source in cases.items():
        (folder / f"test_{name}.py").write_text(f"{source}\n")
    command = [sys.executable, "-m", "pytest", "-p", plugin, *arguments]
    # With a basetemp of its own pytest does not remove the directories of earlier runs, which may take minutes.
    command += ["--basetemp", str(folder / "temporary")]
    return subprocess.run(
        [*command, "--rootdir", str(folder), "-c", str(folder / "pytest.ini"), str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
