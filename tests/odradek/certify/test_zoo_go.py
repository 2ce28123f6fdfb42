"""One Go job of examples/certify/go, which `make clients` runs, as it needs Go. The soak runs all Go jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.odradek.certify.zoo import certified
from tests.odradek.certify.zoo_jobs import go
from tests.support.deadlines import LONG_TEST_S

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(LONG_TEST_S)]


def test_a_job_that_is_right_is_certified(tmp_path: Path) -> None:
    certificate = certified(go("session"), tmp_path, budget_s=10.0).run()
    assert certificate.failures == []
    assert certificate.lints == []
    assert certificate.runs > 2
