"""The demo's worker and the pipeline's job, which we ship, pass the certifier."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from odradek.certify.testing import certify
from odradek.demo.flights import data_file, lines
from odradek.spark.pipeline.departures import closing_value, in_order
from tests.spark.archive import java_options
from tests.support.deadlines import LONG_TEST_S

FLIGHTS = 60
pytestmark = [pytest.mark.more, pytest.mark.timeout(LONG_TEST_S)]


def test_the_worker_of_the_demo_is_exactly_once(tmp_path: Path) -> None:
    told = [{"key": str(row), "value": line} for row, line in enumerate(lines(data_file())[:FLIGHTS])]
    # The worker ends with its standard input, which the demo keeps open.
    worker = (
        f"{shlex.quote(sys.executable)} -m odradek.demo.worker {{bootstrap}} {{instance}} flights results"
    )
    certificate = certify(
        ["sh", "-c", f"tail -f /dev/null | {worker}"],
        {"flights": told},
        "results",
        directory=tmp_path,
        topic=["flights:2", "results:2"],
        set=["group.min.session.timeout.ms=100"],
        budget="6s",
        accept="incomplete",
    )
    assert certificate.lints == []
    assert certificate.runs > 2


# Spark starts for each of its runs. `make more` kills a whole pipeline instead (tests/spark/pipeline/test_pipeline_run.py).
@pytest.mark.slow
@pytest.mark.spark_apart
def test_the_job_of_the_pipeline_is_exactly_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", java_options())
    partitions = range(2)
    told = [
        {"key": each.key, "value": each.value, "partition": row % len(partitions)}
        for row, each in enumerate(in_order(lines(data_file()), FLIGHTS))
    ]
    closing = [{"value": closing_value(), "partition": each} for each in partitions]
    job = ["-m", "odradek.spark.pipeline.job", "--bootstrap", "{bootstrap}", "--partitions", "2"]
    certificate = certify(
        [sys.executable, *job, "--checkpoint", "{data}/checkpoint", "--per-batch", "40"],
        {"flights": told + closing},
        "delays",
        directory=tmp_path,
        topic=["flights:2", "delays:2"],
        until="exit",
        budget="1s",
        accept="incomplete",
    )
    assert certificate.lints == []
    assert certificate.runs > 2
