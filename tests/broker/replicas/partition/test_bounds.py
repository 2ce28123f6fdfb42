"""If log start <= high watermark <= log end does not hold, the broker logs an error and clamps the high watermark."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from broker.replicas.partition.bounds import check_bounds
from tests.broker.replicas.partition.test_partition import Bench, plain


@pytest.fixture
def bounds_are_kept() -> None:
    """Replace the fixture of the same name, which fails the test, so that the broker clamps the high watermark."""


@pytest.mark.parametrize(("wrong", "clamped"), [(1, 2), (9, 3)])
def test_a_high_watermark_outside_of_its_log_is_an_error_and_is_clamped(
    tmp_path: Path, wrong: int, clamped: int
):
    bench = Bench(tmp_path / "t-0")
    bench.fill(2)
    bench.append(plain())
    partition = bench.partition
    with structlog.testing.capture_logs() as lines:
        check_bounds(partition)
        assert not lines
        partition.high_watermark = wrong
        check_bounds(partition)
    assert partition.high_watermark == clamped
    [line] = lines
    assert (line["log_level"], line["high_watermark"]) == ("error", wrong)
    assert (line["log_start_offset"], line["log_end_offset"]) == (2, 3)
    partition.log.close(clean=False)
