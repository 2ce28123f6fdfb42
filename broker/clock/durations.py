"""Durations in text form: ``7d``, ``36h``, ``90s``, ``500ms``, ``1d12h``."""

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
"""Maximum of an advance of the clock: a century, so that every client can represent the times."""
SKEW_MS_MAX: Final = 18_262 * UNITS_MS["d"]
"""Maximum skew of a node: half a century, so that a node whose clock is behind still writes times after 1970."""

_UNITS: Final = ", ".join(UNITS_MS)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")


class BadDuration(ValueError):
    """The text is not a duration. The exception's text is an error message for the user."""


def parse_duration_ms(text: str) -> int:
    """Parse a duration. Returns milliseconds, and raises `BadDuration` for other texts.

    >>> parse_duration_ms("1d12h")
    129600000
    """
    duration_ms = _read_ms(text)
    if duration_ms is None:
        raise BadDuration(
            f"{text!r} is not a duration: write a number and a unit ({_UNITS}), as in 7d or 1h30m"
        )
    return checked_duration_ms(duration_ms)


def parse_skew_ms(text: str) -> int:
    """Parse the skew of a node: by how many milliseconds its clock is ahead of the cluster's; negative if it is behind.

    >>> parse_skew_ms("5m"), parse_skew_ms("-30s"), parse_skew_ms("0")
    (300000, -30000, 0)
    """
    unsigned = text.strip()
    sign = -1 if unsigned.startswith("-") else 1
    unsigned = unsigned[1:] if unsigned[:1] in ("-", "+") else unsigned
    size_ms = 0 if unsigned == "0" else _read_ms(unsigned)
    if size_ms is None:
        raise BadDuration(
            f"{text!r} is not a skew: write how far the node's clock is ahead as a number and a unit ({_UNITS}), "
            "as in 5m; -30s for a clock that is behind; 0 for none"
        )
    return checked_skew_ms(sign * size_ms)


def checked_skew_ms(skew_ms: int) -> int:
    """Return the skew. Raises `BadDuration` if it is too large."""
    if abs(skew_ms) > SKEW_MS_MAX:
        raise BadDuration(f"a skew of {skew_ms} ms is more than half a century ({SKEW_MS_MAX} ms)")
    return skew_ms


def _read_ms(text: str) -> int | None:
    """Parse a duration; None if the text is not a duration."""
    compact = text.replace(" ", "").lower()
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        return None
    return round(sum(float(number) * UNITS_MS[unit] for number, unit in parts))


def duration_text(duration_ms: int) -> str:
    """Format a duration as text that ``parse_duration_ms`` reads.

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
    """Return the duration. Raises `BadDuration` if the clock cannot be advanced by it."""
    if duration_ms < 0:
        raise BadDuration(
            f"time cannot go back by {-duration_ms} ms: the broker's clock can only be advanced"
        )
    if duration_ms > DURATION_MS_MAX:
        raise BadDuration(f"{duration_ms} ms is more than a century ({DURATION_MS_MAX} ms)")
    return duration_ms
