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
            f"log start, high watermark, log end are {partition.log_start_offset}, "
            f"{partition.high_watermark}, {partition.log_end_offset}"
        )

    monkeypatch.setattr(bounds, "report", fail)
