"""A record to write to ``__consumer_offsets``. Pure."""

from __future__ import annotations

from typing import Final

from protocol.named_tuple import NamedTuple
from protocol.schema import Key, Value

GROUP_METADATA_VERSION: Final = 3
"""Version of the value in a classic group's record, as Kafka writes it."""


class LogRecord(NamedTuple):
    """A record to write. With the value None it is a tombstone."""

    key: Key
    value: Value | None = None
    version: int = 0
