"""Parse durations that users write."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """Parse ``3s``, ``250ms``, ``10m`` or ``1h`` into seconds. Raises ``ValueError`` for anything else, and for 0."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text)
    if match is None or not float(match[1]):
        raise ValueError(f"{text!r}: expected a duration such as 3s, 250ms or 10m")
    return float(match[1]) * _UNITS[match[2]]
