"""Reports the damaged records of a partition that a coordinator loads, and the transactional ids or groups concerned.

Kafka stops at the first damaged batch: its transaction coordinator serves with the records before that batch
(``TransactionStateManager.loadTransactionMetadata``), its group coordinator refuses every group of the partition
(``CoordinatorRuntime``, state FAILED). This broker loads the other batches, and logs what is missing (docs/differences.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct
from typing import Final

from broker.logging import get_logger
from protocol.batch import CODEC_MASK, HEADER_BYTES, CorruptBatch, decode_records
from protocol.compression import CompressionError, decompress
from storage.salvage import Damaged

NAMED_MAX: Final = 100
"""Maximum number of transactional ids or group ids in a log line."""
LINES_MAX: Final = 10
"""Maximum number of log lines for one partition; further damaged ranges are counted."""
DAMAGED_RECORDS_MAX: Final = 1_000_000
_ATTRIBUTES_AT: Final = 22
_LENGTH: Final = Struct(">h")
_LENGTH_MAX: Final = 2**15 - 1

NameOf = Callable[[bytes], str | None]
"""Record key -> transactional id or group id; None if the key has neither."""
Known = Callable[[], Iterable[str]]
"""Returns the transactional ids or group ids that have a state after the records read so far."""

log_events = get_logger()


class DamagedRecords:
    """The damaged ranges of one partition, in log order, and the ids that may be affected."""

    def __init__(self, topic: str, index: int, of: str, name_of: NameOf, known: Known) -> None:
        """``of``: name of the log field with the ids (``transactional_ids``, ``groups``).

        ``known`` is called when the first damaged range is found.
        """
        self._topic = topic
        self._index = index
        self._of = of
        self._name_of = name_of
        self._known = known
        self._stretches: list[Damaged] = []
        self._further = 0
        # Transactional id or group id -> number of damaged ranges before its last record.
        self._last_seen: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._stretches)

    def note(self, damaged: Damaged) -> None:
        """Add the next damaged range of the partition."""
        if not self._stretches:
            self._last_seen = dict.fromkeys(self._known(), 0)
        if len(self._stretches) < LINES_MAX:
            self._stretches.append(damaged)
        else:
            self._further += 1

    def note_read(self, key: bytes | None) -> None:
        """Note the key of a record that was read. Must be called for each record after the first damaged range."""
        name = self._name_of(key) if key is not None else None
        if name is not None:
            self._last_seen[name] = len(self._stretches)

    def report(self) -> None:
        """Log one line for each damaged range. Must be called after the partition was read to its end."""
        for number, damaged in enumerate(self._stretches):
            names = self._affected(number, damaged)
            named: Mapping[str, object] = {self._of: names[:NAMED_MAX], f"{self._of}_affected": len(names)}
            log_events.error(
                "damaged records skipped",
                topic=self._topic,
                partition=self._index,
                file=damaged.file,
                position=damaged.position,
                bytes=damaged.length,
                offset=damaged.offset,
                next_offset=damaged.next_offset,
                reason=damaged.reason,
                **named,
            )
        if self._further:
            log_events.error(
                "more damaged records skipped",
                topic=self._topic,
                partition=self._index,
                stretches=self._further,
            )

    def _affected(self, number: int, damaged: Damaged) -> list[str]:
        """Return the ids in the damaged bytes; if none can be read, all ids that have no record after the damaged range."""
        names = {name for key in readable_keys(damaged.content) if (name := self._name_of(key)) is not None}
        names |= names_in(damaged.content, self._last_seen)
        return sorted(names or (name for name, met in self._last_seen.items() if met <= number))


def names_in(content: bytes, names: Iterable[str]) -> set[str]:
    """Return the names that occur in the damaged bytes, with their length in front of them as in the encoded key.

    One pass through the bytes finds all names: searching a megabyte for each of 100,000 names would block the event loop
    for 20 s.
    """
    by_bytes = {name.encode(): name for name in names if name}
    lengths = {_LENGTH.pack(length) for length in set(map(len, by_bytes)) if length <= _LENGTH_MAX}
    if not lengths:
        return set()
    found = set()
    for match in re.finditer(b"(?=(%b))" % b"|".join(map(re.escape, sorted(lengths))), content, re.DOTALL):
        start = match.end(1)
        name = by_bytes.get(content[start : start + _LENGTH.unpack(match[1])[0]])
        if name is not None:
            found.add(name)
    return found


def readable_keys(content: bytes) -> Iterator[bytes]:
    """Yield the record keys of a damaged batch up to the first invalid record. The batch header may be damaged, too."""
    if len(content) <= HEADER_BYTES:
        return
    try:
        body = decompress(content[_ATTRIBUTES_AT] & CODEC_MASK, content[HEADER_BYTES:])
        for record in decode_records(body, DAMAGED_RECORDS_MAX):
            if record.key is not None:
                yield record.key
    except (CompressionError, CorruptBatch):
        return
