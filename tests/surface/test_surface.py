"""The names that users import, call, type and configure are those in `recorded.txt`."""

from __future__ import annotations

from tests.surface.surface import difference, recorded, surface


def test_the_public_surface_is_the_recorded_one() -> None:
    """The public surface of the sources equals `recorded.txt`.

    After an intended change run ``python -m tests.surface.surface --write``, and add a line to CHANGELOG.md.
    """
    assert difference(recorded(), surface()) == []


def test_every_section_has_names() -> None:
    """Every section has names, because the comparison would not protect an empty section."""
    assert {title: len(lines) for title, lines in surface().items() if len(lines) < 2} == {}


def test_a_difference_names_what_is_gone_and_what_is_new() -> None:
    before = {"commands": ["odradek serve", "odradek serve --port INTEGER"], "metrics": ["kafka_brokers"]}
    now = {"commands": ["odradek serve", "odradek serve --ports INTEGER"]}
    assert difference(before, now) == [
        "commands: gone: odradek serve --port INTEGER",
        "commands: new: odradek serve --ports INTEGER",
        "metrics: gone: kafka_brokers",
    ]
