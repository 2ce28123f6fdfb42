"""``--until``: the end of a run, as users specify it."""

from __future__ import annotations

import pytest

from odradek.certify.runs.until import Until


@pytest.mark.parametrize("text", ["lag=0", "exit", "records=7", "idle=2.5s", "check", "auto"])
def test_until_is_written_as_it_is_read(text: str) -> None:
    assert str(Until.parse(text)) == text
    assert str(Until.parse(str(Until.parse(text)))) == text
    assert Until.parse(text).words


@pytest.mark.parametrize(
    "text", ["lag=1", "exit=1", "records", "records=x", "idle", "idle=0s", "check=1", ""]
)
def test_an_invalid_end_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected lag=0, exit, records=NUMBER, idle=TIME, check or auto"):
        Until.parse(text)
