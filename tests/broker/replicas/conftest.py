from typing import NoReturn

import pytest

from broker.replicas.partition import bounds
from broker.replicas.partition.partition import Partition


@pytest.fixture(autouse=True)
def bounds_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if a high watermark is outside its log. Without this fixture the broker logs an error and clamps the
    high watermark."""

    def fail(partition: Partition) -> NoReturn:
        raise AssertionError(
            f"log start {partition.log_start_offset} <= high watermark {partition.high_watermark} "
            f"<= log end {partition.log_end_offset} does not hold"
        )

    monkeypatch.setattr(bounds, "report", fail)
