"""Rows as records: equal values have equal text."""

from __future__ import annotations

import pytest

from odradek.certify.services.values import number, parsed_row, row


@pytest.mark.parametrize(
    ("texts", "value"),
    [
        (("12.5", "12.50", "1.25e1"), 12.5),
        (("3", "3.00", "3.0"), 3),
        (("1e300",), 1e300),
        (("-0.5",), -0.5),
        (("12345678901234567890123", "12345678901234567890123.0"), 12345678901234567890123),
        (("0.12345678901234567890", "0.1234567890123456789"), "0.1234567890123456789"),
        (("NaN",), "NaN"),
        (("-Infinity",), "-Infinity"),
    ],
)
def test_a_number_has_one_form(texts: tuple[str, ...], value: object) -> None:
    for text in texts:
        found = number(text)
        assert (found, type(found)) == (value, type(value))


def test_a_row_that_is_expected_is_the_row_that_is_read() -> None:
    expected = parsed_row("files:a.csv", '{"id": "1", "n": {"b": 1.0, "a": null}, "x": 0.50}')
    found = row("files:a.csv", -1, {"x": 0.5, "n": {"a": None, "b": 1}, "id": "1"}, "1")
    assert expected == found
    assert parsed_row("files:a.txt", "a line") == row("files:a.txt", -1, "a line", "a line")
