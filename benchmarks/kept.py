"""Results in the repository, from which pages are generated: JSON with one entry per line.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def text_of(kept: Mapping[str, Any]) -> str:
    """JSON in which each entry of an object within ``kept`` has its own line."""
    parts = []
    for key, value in kept.items():
        text = json.dumps(value)
        if isinstance(value, Mapping) and value:
            entries = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items()]
            text = "{\n" + ",\n".join(entries) + "\n }"
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
