"""Jobs of examples/certify/beyond: a few of them with each change. The soak certifies all (`tests.odradek.certify.soak`)."""

from __future__ import annotations

import pytest

from tests.odradek.certify.beyond import (
    PROGRAMS,
    is_certified,
    is_found,
)
from tests.odradek.certify.zoo import BEYOND, JOBS_BEYOND, ZOO
from tests.support.deadlines import LONG_TEST_S
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.more, pytest.mark.timeout(LONG_TEST_S)]
BY_NAME = {each.name: each for each in PROGRAMS}


@pytest.mark.postgres
def test_a_wrong_job_at_a_database_is_found_with_the_cause(postgres: PostgresServer) -> None:
    is_found(BY_NAME["wrong/loader"], 1, postgres)


@pytest.mark.postgres
def test_a_right_job_at_a_database_is_certified(postgres: PostgresServer) -> None:
    certificate = is_certified(BY_NAME["right/bookings"], 1, postgres, budget_s=8.0)
    assert certificate.runs > 2


def test_each_job_is_tried_and_in_the_table() -> None:
    page = (ZOO / "README.md").read_text(encoding="utf-8")
    for program in PROGRAMS:
        found = [each for each in JOBS_BEYOND if program.title in (each.stem, each.parent.name)]
        assert len(found) == 1, program
        assert f"({found[0].relative_to(ZOO).as_posix()})" in page
    languages = {BEYOND / each for each in ("wrong", "right", "node", "go")}
    known = {each.title for each in PROGRAMS}
    for job in JOBS_BEYOND:
        if languages & set(job.parents) and not job.stem.startswith("spark_"):
            assert {job.stem, job.parent.name} & known, job
