"""Which known name a mistyped one most likely meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is nearest; None if none is near. ``cutoff`` is difflib's.

    >>> nearest("orderz", ["orders", "payments"]), nearest("x", ["orders"])
    ('orders', None)
    """
    from difflib import get_close_matches  # only a mistake pays for the import

    found = get_close_matches(name, list(known), 1, cutoff)
    return found[0] if found else None
