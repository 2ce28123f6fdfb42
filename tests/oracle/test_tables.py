"""The tables that are generated from Apache Kafka's jars, and the differences between two releases."""

from __future__ import annotations

import pytest

from tests.oracle.tables import BROKER_SETTINGS, differences, read_tables, render_broker_settings
from tests.support.java import KAFKA_VERSION

pytestmark = pytest.mark.java


def test_the_table_of_broker_settings_is_what_the_generator_writes() -> None:
    assert BROKER_SETTINGS.read_text("utf-8") == render_broker_settings(
        read_tables(KAFKA_VERSION), KAFKA_VERSION
    )


def test_rows_that_are_added_removed_and_changed_are_differences() -> None:
    old = {"broker": {"a": {"default": 1}, "b": {"default": 2}, "c": {"default": 3}}}
    new = {"broker": {"a": {"default": 1}, "b": {"default": 4}, "d": {"default": 5}}}
    assert [*differences(old, new)] == [
        'broker: b {"default": 2} -> {"default": 4}',
        "broker: - c",
        'broker: + d {"default": 5}',
    ]
