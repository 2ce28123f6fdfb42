"""What a coordinator could not read of its partition when it loaded it, and the ids or groups that it may affect.

Kafka stops at the first damaged batch: its transaction coordinator goes on with what came before it
(``TransactionStateManager.loadTransactionMetadata``), its group coordinator refuses every group of the partition
(``CoordinatorRuntime``, state FAILED). Here the rest is loaded, and one line says what is missing (docs/differences.md).
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
"""Of the names that may be affected, how many a line lists."""
LINES_MAX: Final = 10
"""For how many damaged stretches of one partition there is a line; the rest are counted."""
DAMAGED_RECORDS_MAX: Final = 1_000_000
_ATTRIBUTES_AT: Final = 22
_LENGTH: Final = Struct(">h")
_LENGTH_MAX: Final = 2**15 - 1

NameOf = Callable[[bytes], str | None]
"""The transactional id, or the group, that the key of a record belongs to; None if it names none."""
Known = Callable[[], Iterable[str]]
"""The names that have a state from the records read so far."""

log_events = get_logger()


class DamagedRecords:
    """The damaged stretches of one partition, in the order in which it is read."""

    def __init__(self, topic: str, index: int, of: str, name_of: NameOf, known: Known) -> None:
        """``of`` is what the names are: ``transactional_ids`` or ``groups``. ``known`` is called at the first damage."""
        self._topic = topic
        self._index = index
        self._of = of
        self._name_of = name_of
        self._known = known
        self._stretches: list[Damaged] = []
        self._further = 0
        # By name: how many stretches had been met when its last record was read.
        self._last_seen: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._stretches)

    def note(self, damaged: Damaged) -> None:
        """A stretch could not be read."""
        if not self._stretches:
            self._last_seen = dict.fromkeys(self._known(), 0)
        if len(self._stretches) < LINES_MAX:
            self._stretches.append(damaged)
        else:
            self._further += 1

    def seen(self, key: bytes | None) -> None:
        """A record was read. To be called once there is damage."""
        name = self._name_of(key) if key is not None else None
        if name is not None:
            self._last_seen[name] = len(self._stretches)

    def report(self) -> None:
        """The partition has been read to its end: one line for each stretch."""
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
        """The names that can be read in the damaged bytes; if none can, those without a record after them."""
        names = {name for key in readable_keys(damaged.content) if (name := self._name_of(key)) is not None}
        names |= names_in(damaged.content, self._last_seen)
        return sorted(names or (name for name, met in self._last_seen.items() if met <= number))


def names_in(content: bytes, names: Iterable[str]) -> set[str]:
    """Those of the names that stand in damaged bytes behind their length, as every string of a key does.

    In one way through the bytes: to look for each of 100,000 names in a megabyte holds the loop up for 20 s.
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
    """The keys of the records of a damaged batch, up to the first record that is none. Its header may be damaged, too."""
    if len(content) <= HEADER_BYTES:
        return
    try:
        body = decompress(content[_ATTRIBUTES_AT] & CODEC_MASK, content[HEADER_BYTES:])
        for record in decode_records(body, DAMAGED_RECORDS_MAX):
            if record.key is not None:
                yield record.key
    except (CompressionError, CorruptBatch):
        return
