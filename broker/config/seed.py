"""Parses the file of --seed: records that a start writes into a new data directory, in the format of `odradek seed`.

    {"topic": "orders", "value": "paid", "key": "42", "partition": 0, "aborted": true}

Consecutive records that are committed form one transaction, and so do consecutive records that are aborted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from broker.config.settings import SeedRecord, TopicSpec
from storage.config_def import ConfigError

_TYPES: Final = {
    "topic": (str,),
    "value": (str, int, float, type(None)),
    "key": (str, int, float, type(None)),
    "partition": (int, type(None)),
    "aborted": (bool, type(None)),
}


def read_seed(path: Path, source: str) -> tuple[SeedRecord, ...]:
    """Parse the file of ``--seed``. Raises ``ConfigError`` with the number of the first invalid line."""
    try:
        with path.open(encoding="utf-8") as file:
            return parse_seed(file, f"{source} {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source} {path}: {getattr(error, 'strerror', None) or error}") from None


def parse_seed(lines: Iterable[str], where: str) -> tuple[SeedRecord, ...]:
    """Parse the lines of a seed file, skipping empty lines. Raises ``ConfigError`` for an invalid line."""
    return tuple(
        _record(line, f"{where}, line {number}") for number, line in enumerate(lines, 1) if line.strip()
    )


def _record(line: str, where: str) -> SeedRecord:
    try:
        found: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}, column {error.colno}: {error.msg}") from None
    if not isinstance(found, dict) or not {"topic", "value"} <= found.keys():
        raise ConfigError(f"{where}: expected a JSON object with topic and value")
    for name, value in found.items():
        if name not in _TYPES:
            raise ConfigError(f"{where}: unknown field {name} (known: {', '.join(_TYPES)})")
        # Exact types are compared, because True is also an int in Python.
        if type(value) not in _TYPES[name] or (name == "partition" and value is not None and value < 0):
            raise ConfigError(f"{where}: {name} cannot be {json.dumps(value)}")
    return SeedRecord(
        found["topic"],
        _bytes(found["value"]),
        _bytes(found.get("key")),
        found.get("partition"),
        bool(found.get("aborted")),
    )


def _bytes(value: object) -> bytes | None:
    return None if value is None else str(value).encode()


def seed_topics(
    records: Sequence[SeedRecord], known: Sequence[TopicSpec], partitions: int
) -> list[TopicSpec]:
    """Return the topics of the records that are not in ``known``, each with at least ``partitions`` partitions.

    Raises ``ConfigError`` if a record is for a partition that a known topic does not have.
    """
    counts = {each.name: each.partitions for each in known}
    wanted: dict[str, int] = {}
    for each in records:
        last = -1 if each.partition is None else each.partition
        if each.topic not in counts:
            wanted[each.topic] = max(wanted.get(each.topic, partitions), last + 1)
        elif last >= counts[each.topic]:
            raise ConfigError(
                f"--seed: {each.topic} has no partition {last}: the last is {counts[each.topic] - 1}"
            )
    return [TopicSpec(name, count, {}) for name, count in wanted.items()]
