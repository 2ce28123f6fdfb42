"""The lines that a command writes while it waits, which come on a busy machine wherever they like."""

from __future__ import annotations

import re


def without_notices(text: str) -> str:
    """What a command printed beside them."""
    return re.sub(r"^waiting for \d+ s: .*\n", "", text, flags=re.M)
