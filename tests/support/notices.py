"""The progress lines of a waiting command, which on a slow machine come at any place in its output."""

from __future__ import annotations

import re


def without_notices(text: str) -> str:
    """Output of a command without its progress lines."""
    return re.sub(r"^waiting for \d+ s: .*\n", "", text, flags=re.M)
