"""Deadlines after which something counts as hung: generous, and longer on slow or busy machines.

    ODRADEK_DEADLINE_FACTOR=4 pytest        # each deadline four times as long

A deadline detects a hang. It does not measure speed.
"""

from __future__ import annotations

import os
from typing import Final

from odradek.errors import OdradekError

VARIABLE: Final = "ODRADEK_DEADLINE_FACTOR"


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise OdradekError(f"{VARIABLE}={text!r}: a number above 0 is needed")
    return factor


FACTOR: Final = _factor(os.environ.get(VARIABLE, "1"))


def stretched(seconds: float) -> float:
    """The deadline ``seconds``, multiplied by the factor for this machine."""
    return seconds * FACTOR
