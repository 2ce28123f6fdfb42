"""Suggest the known name that a mistyped name most likely means."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from odradek.printable import printable

NEAR: Final = 0.82
"""Similarity cutoff for names in a cluster that differ by one or two letters."""
LISTED_MAX: Final = 10


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar known name; None if none is similar enough. ``cutoff`` is difflib's.

    >>> nearest("orderz", ["orders", "payments"]), nearest("x", ["orders"])
    ('orders', None)
    """
    from difflib import get_close_matches  # imported only after a mistake, as the import is slow

    found = get_close_matches(name, list(known), 1, cutoff)
    return found[0] if found else None


def listed(names: Collection[str]) -> str:
    """The first 10 names, joined for an error message; "none" if there are no names.

    >>> listed(["orders", "payments"]), listed([])
    ('orders, payments', 'none')
    """
    more = len(names) - LISTED_MAX
    first = ", ".join(printable(name) for name in islice(names, LISTED_MAX)) or "none"
    return f"{first} and {more} more" if more > 0 else first


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name, with the most similar known name; empty if none is similar.

    >>> did_you_mean("orderz", ["orders", "payments"]), did_you_mean("orders", ["orders"])
    ('; did you mean orders?', '')
    """
    near = nearest(name, known, NEAR)
    # Any client may have created a topic or a transactional id of this name.
    return f"; did you mean {printable(near)}?" if near is not None and near != name else ""
