"""pytest in a process of its own, with one plugin of ours, on tests that a test has written.

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
    """Run the cases, each as ``test_<name>.py`` in the folder; ``ini`` is what pytest.ini says besides."""
    (folder / "pytest.ini").write_text(f"[pytest]\n{ini}")
    for name, source in cases.items():
        (folder / f"test_{name}.py").write_text(f"{source}\n")
    command = [sys.executable, "-m", "pytest", "-p", plugin, *arguments]
    # A directory of its own: else it clears away those of earlier runs, which may take minutes.
    command += ["--basetemp", str(folder / "temporary")]
    return subprocess.run(
        [*command, "--rootdir", str(folder), "-c", str(folder / "pytest.ini"), str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
