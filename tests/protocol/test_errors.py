"""The enum of error codes is up to date."""

from __future__ import annotations

from pathlib import Path

from protocol import errors
from protocol.generators.errors import text


def test_it_is_what_kio_says() -> None:
    """protocol/errors.py has kio's error codes. If it is out of date, run ``python -m protocol.generators.errors >
    protocol/errors.py``."""
    assert Path(errors.__file__).read_text() == text()
    assert errors.ErrorCode(16) is errors.ErrorCode.not_coordinator
