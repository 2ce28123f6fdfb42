"""The suite to copy, examples/spark, run by its own pytest as a user runs it, with Spark started five times.

`test_example.py` runs its fast tests with each change.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.archive import java_options
from tests.support.deadlines import TEST_S

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "spark"

pytestmark = [pytest.mark.spark_apart, pytest.mark.slow]


def test_the_suite_passes_by_itself(tmp_path: Path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE)]
    command += ["--basetemp", str(tmp_path / "temporary")]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": java_options()}
    ended = subprocess.run(
        command, cwd=EXAMPLE, env=environment, capture_output=True, text=True, timeout=TEST_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout
