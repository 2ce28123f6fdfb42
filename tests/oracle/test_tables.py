"""The tables that are generated from Apache Kafka's jars, and the differences between two releases."""

from __future__ import annotations

import pytest

from broker.config.kafka_table import RELEASE
from tests.oracle.tables import differences, read_tables, render

pytestmark = pytest.mark.java


def test_the_tables_of_settings_are_what_the_generator_writes() -> None:
    for module, text in render(read_tables(RELEASE), RELEASE).items():
        assert module.read_text("utf-8") == text


def test_rows_that_are_added_removed_and_changed_are_differences() -> None:
    old = {"broker": {"a": {"default": 1}, "b": {"default": 2}, "c": {"default": 3}}}
    new = {"broker": {"a": {"default": 1}, "b": {"default": 4}, "d": {"default": 5}}}
    assert [*differences(old, new)] == [
        'broker: b {"default": 2} -> {"default": 4}',
        "broker: - c",
        'broker: + d {"default": 5}',
    ]
