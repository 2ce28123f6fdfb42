"""The generated tables of record fields are up to date with the record classes."""

from pathlib import Path

from protocol.generators import records as generate

TABLES = Path(__file__).parents[2] / "odradek" / "spark" / "segments" / "coordinator_tables.py"


def test_the_tables_of_coordinator_records_are_up_to_date() -> None:
    assert TABLES.read_text("utf-8") == generate.render(), f"run {generate.__name__} with {TABLES.name} again"
