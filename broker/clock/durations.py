"""Lengths of time as people write them: ``7d``, ``36h``, ``90s``, ``500ms``, ``1d12h``."""

from __future__ import annotations

import re
from typing import Final

UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
DURATION_MS_MAX: Final = 36_525 * UNITS_MS["d"]
"""A century: times stay such as every client can read."""

_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")


class BadDuration(ValueError):
    """Not a duration; the text is an error message for the user."""


def parse_duration_ms(text: str) -> int:
    """
    >>> parse_duration_ms("1d12h")
    129600000
    """
    compact = text.replace(" ", "").lower()
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        units = ", ".join(UNITS_MS)
        raise BadDuration(f"{text!r} is no duration: write a number and a unit ({units}), as in 7d or 1h30m")
    return checked_duration_ms(round(sum(float(number) * UNITS_MS[unit] for number, unit in parts)))


def duration_text(duration_ms: int) -> str:
    """The text that ``parse_duration_ms`` reads as the same duration.

    >>> duration_text(1500), duration_text(129_600_000), duration_text(250)
    ('1.5s', '1d12h', '250ms')
    """
    if duration_ms < UNITS_MS["s"]:
        return f"{duration_ms}ms"
    parts, left_ms = [], duration_ms
    for unit in ("d", "h", "m"):
        count, left_ms = divmod(left_ms, UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    seconds, ms = divmod(left_ms, UNITS_MS["s"])
    if ms:
        parts.append(f"{seconds}.{ms:03}".rstrip("0") + "s")
    elif seconds:
        parts.append(f"{seconds}s")
    return "".join(parts)


def checked_duration_ms(duration_ms: int) -> int:
    """The same duration, if time may be moved on by so much."""
    if duration_ms < 0:
        raise BadDuration(f"time cannot go back by {-duration_ms} ms: the broker's clock only moves on")
    if duration_ms > DURATION_MS_MAX:
        raise BadDuration(f"{duration_ms} ms is more than a century ({DURATION_MS_MAX} ms)")
    return duration_ms
