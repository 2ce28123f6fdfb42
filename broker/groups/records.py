"""What coordinators of groups write: a record of ``__consumer_offsets``, or a tombstone. Pure."""

from __future__ import annotations

from typing import Final

from protocol.named_tuple import NamedTuple
from protocol.schema import Key, Value

GROUP_METADATA_VERSION: Final = 3
"""Of classic groups' records, as Kafka 4.3 writes them."""


class LogRecord(NamedTuple):
    """A record to write: a value of None is a tombstone."""

    key: Key
    value: Value | None = None
    version: int = 0
