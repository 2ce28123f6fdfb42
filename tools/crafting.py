"""Partition directories from a short description, with logs that programs rarely see.

    batches(words("commit 2, abort 1, gap 3, open 1"), now_ms)

Each word appends batches or skips offsets. The records contain the word that wrote them: `commit-0`, `commit-1`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct
from typing import Final
from uuid import uuid4

from protocol.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RecordBatch,
    build_batch,
    end_txn_marker,
    retain,
)
from storage.checkpoints import write_partition_metadata
from storage.config import LogConfig
from storage.recovery import OpenOptions, open_log
from tools.client.errors import ToolError
from tools.old_messages import build_message

COUNT_MAX: Final = 10_000
FIRST_PRODUCER_ID: Final = 1000
"""Producer id of the first transaction; each has its own id, with epoch 0."""
UNKNOWN_CONTROL_TYPE: Final = 99
_SEGMENT: Final = "00000000000000000000.log"
_CRC: Final = slice(17, 21)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the description, such as ``commit 2``: its name and its count."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Crafted:
    """The bytes that a word appended to the log; empty for skipped offsets."""

    word: Word
    first_offset: int
    last_offset: int
    data: bytes


def words(text: str) -> list[Word]:
    """Parse ``commit 2, gap, open 1``. Raises ``ToolError`` for an unknown word."""
    found = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([a-z-]+)(?:\s+(\d{1,9}))?", each)
        if match is None or match[1] not in WORDS:
            raise ToolError(f"unknown word: {each!r} (known: {', '.join(WORDS)}, each with a number)")
        count = int(match[2] or 1)
        if not 1 <= count <= COUNT_MAX:
            raise ToolError(f"{each!r}: expected a number from 1 to {COUNT_MAX}")
        found.append(Word(match[1], count))
    if not found:
        raise ToolError("the description is empty")
    return found


def batches(wanted: list[Word], now_ms: int) -> Iterator[Crafted]:
    """Yield for each word the bytes that it appends to the log, which begins at offset 0. Pure."""
    offset = 0
    for number, word in enumerate(wanted):
        data, end = WORDS[word.name](_At(word, offset, FIRST_PRODUCER_ID + number, now_ms))
        yield Crafted(word, offset, end - 1, data)
        offset = end


@dataclass(frozen=True, slots=True)
class _At:
    """The context of a word: its first offset, the producer of its transaction, the timestamp of its records."""

    word: Word
    offset: int
    producer_id: int
    now_ms: int

    @property
    def end(self) -> int:
        return self.offset + self.word.count

    def values(self) -> list[bytes]:
        return [f"{self.word.name}-{number}".encode() for number in range(self.word.count)]

    def batch(self, *, transactional: bool = False) -> bytes:
        return build_batch(
            [(self.now_ms, None, value) for value in self.values()],
            base_offset=self.offset,
            leader_epoch=0,
            producer_id=self.producer_id if transactional else NO_PRODUCER_ID,
            producer_epoch=0 if transactional else NO_PRODUCER_EPOCH,
            base_sequence=0 if transactional else NO_SEQUENCE,
            transactional=transactional,
        )


_Made = tuple[bytes, int]
"""(bytes that a word appends to the log, next offset)."""


def _plain(at: _At) -> _Made:
    return at.batch(), at.end


def _open(at: _At) -> _Made:
    return at.batch(transactional=True), at.end


def _ended(at: _At, *, committed: bool) -> _Made:
    marker = end_txn_marker(
        at.producer_id,
        0,
        committed=committed,
        coordinator_epoch=0,
        timestamp_ms=at.now_ms,
        base_offset=at.end,
        leader_epoch=0,
    )
    return at.batch(transactional=True) + marker, at.end + 1


def _gap(at: _At) -> _Made:
    return b"", at.end


def _empty(at: _At) -> _Made:
    return retain(RecordBatch.parse(at.batch()), []), at.end


def _control(at: _At) -> _Made:
    """Control batches without a producer: in Kafka, only markers have one. The record's type exists in no release."""
    key = Struct(">hh").pack(0, UNKNOWN_CONTROL_TYPE)
    made = [
        build_batch([(at.now_ms, key, b"")], base_offset=offset, leader_epoch=0, control=True)
        for offset in range(at.offset, at.end)
    ]
    return b"".join(made), at.end


def _bad_crc(at: _At) -> _Made:
    batch = bytearray(at.batch())
    batch[_CRC] = bytes(each ^ 0xFF for each in batch[_CRC])
    return bytes(batch), at.end


def _old_format(at: _At) -> _Made:
    """Messages of format 1, as brokers of Kafka 0.10 wrote them."""
    made = [build_message(at.offset + number, at.now_ms, value) for number, value in enumerate(at.values())]
    return b"".join(made), at.end


WORDS: Final[dict[str, Callable[[_At], _Made]]] = {
    "plain": _plain,
    "commit": lambda at: _ended(at, committed=True),
    "abort": lambda at: _ended(at, committed=False),
    "open": _open,
    "gap": _gap,
    "empty": _empty,
    "control": _control,
    "old-format": _old_format,
    "bad-crc": _bad_crc,
}


def write_partition(directory: Path, crafted: list[Crafted], now_ms: int) -> None:
    """Write a partition's directory, with the files that a clean shutdown leaves. Raises ``ToolError`` if it is not empty.

    A log with messages of format 1 gets no indexes; Kafka builds them at its start.
    """
    if directory.exists() and any(directory.iterdir()):
        raise ToolError(f"{directory} is not empty")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        names = {each.word.name for each in crafted}
        log = directory / _SEGMENT
        # Correct CRCs while the indexes are built; the crafted bytes are written afterwards.
        log.write_bytes(b"".join(sound(each).data for each in crafted))
        topic_id = uuid4()
        if "old-format" in names:
            write_partition_metadata(directory, topic_id)
        else:
            opened = open_log(directory, OpenOptions(topic_id, LogConfig(), now_ms, clean=False))
            opened.log.close(clean=True)
        with log.open("r+b") as file:
            file.write(b"".join(each.data for each in crafted))
    except OSError as error:
        raise ToolError(f"{directory}: {error.strerror}") from None


def sound(each: Crafted) -> Crafted:
    """The bytes of a word with a correct CRC: a changed copy for ``bad-crc``, else the object itself."""
    if each.word.name != "bad-crc":
        return each
    batch = bytearray(each.data)
    batch[_CRC] = bytes(byte ^ 0xFF for byte in batch[_CRC])
    return replace(each, data=bytes(batch))
