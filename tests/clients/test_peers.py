"""The benchmark that compares Odradek with other brokers (`benchmarks.peers`) runs without an error.

Only the measures and the brokers that need no JVM are run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers.load import load_program
from benchmarks.peers.measures import MEASURES
from benchmarks.targets import ROOT
from tests.support.deadlines import TEST_S

pytestmark = pytest.mark.foreign

TARGETS = ("odradek", "kfake", "kfake-disk", "mock", "null")


def test_every_row_without_a_jvm_runs(tmp_path: Path) -> None:
    # Skips the test if there is no Go.
    load_program()
    measures = [measure for measure in MEASURES if "java" not in measure.rows[0].name]
    rows = {row.name: measure for measure in measures for row in measure.rows}
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.peers", "--quick", "--json", str(file)]
    command += ["--targets", ",".join(TARGETS), *(f"--only={name}" for name in rows)]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TEST_S,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(file.read_text("utf-8"))["rows"]
    assert list(found) == list(rows)
    for name, measure in rows.items():
        assert set(found[name]["figures"]) == set(measure.targets) & set(TARGETS)
        assert found[name]["failures"] == {}
        assert {target for target, each in found[name]["figures"].items() if each["median"] <= 0} == set(), (
            name
        )
