"""Which known name a mistyped one most likely meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from odradek.printable import printable

NEAR: Final = 0.82
"""Names of a cluster that differ by one letter or two."""
LISTED_MAX: Final = 10


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is nearest; None if none is near. ``cutoff`` is difflib's.

    >>> nearest("orderz", ["orders", "payments"]), nearest("x", ["orders"])
    ('orders', None)
    """
    from difflib import get_close_matches  # only a mistake pays for the import

    found = get_close_matches(name, list(known), 1, cutoff)
    return found[0] if found else None


def listed(names: Collection[str]) -> str:
    """The names in an error message, the first 10 of them; "none" without any.

    >>> listed(["orders", "payments"]), listed([])
    ('orders, payments', 'none')
    """
    more = len(names) - LISTED_MAX
    first = ", ".join(printable(name) for name in islice(names, LISTED_MAX)) or "none"
    return f"{first} and {more} more" if more > 0 else first


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message about a name that a cluster does not know; empty if no other name is near.

    >>> did_you_mean("orderz", ["orders", "payments"]), did_you_mean("orders", ["orders"])
    ('; did you mean orders?', '')
    """
    near = nearest(name, known, NEAR)
    # Any client may have made a topic or an id of this name.
    return f"; did you mean {printable(near)}?" if near is not None and near != name else ""
