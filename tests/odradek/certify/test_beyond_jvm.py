"""The jobs of examples/certify/beyond on a JVM do their work if there are no faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.odradek.certify.beyond_jvm import PROGRAMS, Program, copied, place
from tests.odradek.certify.zoo import BEYOND, RECORDS, ZOO
from tests.support.broker import StartBroker
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.java, pytest.mark.postgres]
QUICK = {"group.initial.rebalance.delay.ms": 0}


IN_MORE = "connect/right/rows.json"
"""The job that `make more` runs: half a minute of CPU each is too much for all of them. The soak has the others."""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(each, id=each.title, marks=() if each.title == IN_MORE else (pytest.mark.slow,))
        for each in PROGRAMS
    ],
)
def test_each_record_has_one_row_or_one_event(
    program: Program, start_broker: StartBroker, postgres: PostgresServer, tmp_path: Path
):
    broker = start_broker(topics=["in:2", "out:2"], settings=QUICK)
    values = [f"v{number}" for number in range(RECORDS)]
    expected = values if program.output else [value.upper() for value in values]
    assert sorted(copied(program, broker, postgres, tmp_path)) == sorted(expected)


def test_each_program_is_tried_and_in_the_table():
    page = (ZOO / "README.md").read_text("utf-8")
    tried = {place(program) for program in PROGRAMS}
    folders = [BEYOND / framework for framework in {program.framework for program in PROGRAMS} - {"spark"}]
    sources = {each for folder in folders for each in folder.glob("*/*.*") if each.suffix != ".properties"}
    assert sources | set(BEYOND.glob("*/spark_*.py")) == tried
    for source in tried:
        assert f"({source.relative_to(ZOO).as_posix()})" in page
