"""The jobs of examples/certify/beyond on a JVM do their work if there are no faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.odradek.certify.beyond_jvm import PROGRAMS, Program, copied
from tests.odradek.certify.zoo import BEYOND, RECORDS
from tests.support.broker import StartBroker
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.java, pytest.mark.postgres]
QUICK = {"group.initial.rebalance.delay.ms": 0}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: f"{program.framework}/{program.name}")
def test_each_record_has_one_row_or_one_event(
    program: Program, start_broker: StartBroker, postgres: PostgresServer, tmp_path: Path
):
    broker = start_broker(topics=["in:2", "out:2"], settings=QUICK)
    values = [f"v{number}" for number in range(RECORDS)]
    expected = values if program.output else [value.upper() for value in values]
    assert sorted(copied(program, broker, postgres, tmp_path)) == sorted(expected)


def test_each_program_is_tried():
    tried = {
        str(BEYOND / program.framework / program.name) for program in PROGRAMS if program.framework != "spark"
    }
    folders = [BEYOND / folder for folder in ("connect", "debezium", "flink", "spring")]
    sources = {
        str(each) for folder in folders for each in folder.glob("*/*.*") if each.suffix != ".properties"
    }
    assert sources == tried
