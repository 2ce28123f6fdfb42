"""The benchmark of TLS and SASL runs: every row has a result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.security.measures import ROWS, TARGETS
from benchmarks.targets import ROOT
from tests.support.deadlines import TEST_S


@pytest.mark.parametrize(
    "targets",
    [
        pytest.param(["odradek"], marks=pytest.mark.more),
        pytest.param(
            [*TARGETS], marks=[pytest.mark.java, pytest.mark.foreign, pytest.mark.xdist_group("jvm")]
        ),
    ],
    ids=["by itself", "beside Apache Kafka"],
)
def test_every_row_runs(tmp_path: Path, targets: list[str]) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.security", "--quick", "--json", str(file)]
    ran = subprocess.run(
        [*command, "--targets", ",".join(targets)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TEST_S,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(file.read_text("utf-8"))["rows"]
    assert list(found) == ROWS
    for row in found.values():
        assert list(row["figures"]) == targets
        assert all(each["median"] > 0 for each in row["figures"].values())
        assert bool(row["ratios"]) == (len(targets) > 1)
