"""What a coordinator could not read of its partition when it loaded it, and whom that may concern.

Kafka stops at the first damaged batch: its transaction coordinator goes on with what came before it
(``TransactionStateManager.loadTransactionMetadata``), its group coordinator refuses every group of the partition
(``CoordinatorRuntime``, state FAILED). Here the rest is loaded, and one line says what is missing (docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
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

NameOf = Callable[[bytes], str | None]
"""The transactional id, or the group, that the key of a record belongs to; None if it names none."""

log_events = get_logger()


class DamagedRecords:
    """The damaged stretches of one partition, in the order in which it is read."""

    def __init__(self, topic: str, index: int, of: str, name_of: NameOf) -> None:
        """``of`` is what the names are: ``transactional_ids`` or ``groups``."""
        self._topic = topic
        self._index = index
        self._of = of
        self._name_of = name_of
        self._stretches: list[Damaged] = []
        self._further = 0
        # By name: how many stretches had been met when its last record was read.
        self._last_seen: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._stretches)

    def note(self, damaged: Damaged, known: Collection[str]) -> None:
        """A stretch could not be read; ``known`` are the names that have a state from records before it."""
        if not self._stretches:
            self._last_seen = dict.fromkeys(known, 0)
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
        names |= {name for name in self._last_seen if name.encode() in damaged.content}
        return sorted(names or (name for name, met in self._last_seen.items() if met <= number))


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
