"""Read a piece of a segment in bounded chunks of complete batches; damage becomes error messages.

Files are not mapped into memory: a broker may truncate a file while it is read, and access to a mapped page beyond the end
would kill the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odradek.spark.records import heads
from odradek.spark.records.heads import Bytes
from odradek.spark.segments import finding
from odradek.spark.segments.options import Options
from odradek.spark.segments.planning import Piece

CHUNK_BYTES = 8 << 20
_FOLLOWING_BYTES = 17
"""Number of bytes read of the batch after a chunk: enough for the base offset and for a check that it is a batch."""

_DISTANCE_MAX = (1 << 31) - 1
ZERO_TAIL = "zero bytes follow the last batch"
"""Part of the error message for zeros, by which the audit finds zeros that may be preallocated space, not damage."""


class Flaw(NamedTuple):
    """An error at a position (in bytes) of a segment file."""

    position: int
    error: str


class Chunk(NamedTuple):
    """Some consecutive batches of a segment file: the headers of the intact ones (``sound``), and errors (``flaws``).

    Positions in ``sound`` count from the start of ``buffer``, which begins at ``position`` of the file and is reused for the
    next chunk.
    """

    buffer: Bytes
    position: int
    sound: NDArray[Any]
    flaws: list[Flaw]


def chunks(piece: Piece, options: Options) -> Iterator[tuple[Piece, Chunk]]:
    """Read a piece in chunks, each with the piece as it was read.

    If compaction has replaced the segment since Spark planned the tasks, the piece's offsets are read from the segment
    that contains them now. Yields nothing if there is none.
    """
    opened = _open(piece)
    if opened is None:
        return
    piece, descriptor = opened
    try:
        yield from ((piece, chunk) for chunk in Reading(piece, descriptor, options).chunks())
    finally:
        os.close(descriptor)


def _open(piece: Piece) -> tuple[Piece, int] | None:
    """Open the piece's file; return the piece to read, and the file descriptor.

    If compaction has replaced the file, the piece to read is the whole of the file that has its offsets now. None
    if there is no such file.
    """
    segment = piece.segment
    try:
        descriptor = os.open(segment.path, os.O_RDONLY)
    except FileNotFoundError:
        return _elsewhere(piece)
    status = os.fstat(descriptor)
    if status.st_ino == segment.inode and status.st_size >= piece.start:
        return piece, descriptor
    # Compaction has written another file with this name, so the positions are invalid, but the offsets are not.
    segment = segment._replace(inode=status.st_ino, size=status.st_size)
    return piece._replace(segment=segment, start=0, end=status.st_size, last=True), descriptor


def _elsewhere(piece: Piece) -> tuple[Piece, int] | None:
    """Open the segment that now contains the piece's offsets, if there is one: compaction merges small segments."""
    there = finding.segments(piece.segment.partition)
    holders = [one for one in there if one.base_offset <= piece.first_offset]
    if not holders or holders[-1].file == piece.segment.file:
        return None
    holder = holders[-1]
    try:
        descriptor = os.open(holder.path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    return Piece(holder, 0, holder.size, piece.first_offset, piece.end_offset, True), descriptor


class Reading:
    """One pass over a piece (a part of a segment file)."""

    def __init__(self, piece: Piece, descriptor: int, options: Options) -> None:
        self._piece = piece
        self._descriptor = descriptor
        self._options = options
        self._end = min(piece.end, os.fstat(descriptor).st_size)
        self._last_offset = (piece.segment.base_offset if piece.start == 0 else piece.first_offset) - 1
        self._buffer: Bytes = np.empty(0, np.uint8)

    def chunks(self) -> Iterator[Chunk]:
        position, wanted = self._piece.start, CHUNK_BYTES
        while position < self._end:
            data = self._read(position, min(wanted, self._end - position))
            final = position + len(data) >= self._end
            found = heads.scan(data, 0, len(data), final)
            table, stop = found.heads, found.stop
            short = found.reason in (heads.CUT, heads.SHORT)
            if short and not final and stop == 0:
                if found.size > self._options.batch_bytes_max:
                    yield self._stopped(data, position, self._too_large(found.size, position))
                    return
                wanted = max(2 * wanted, found.size + _FOLLOWING_BYTES)
                continue
            following = self._following(data, found)
            if following is None and not final:
                # Either the last batch or the next one has a wrong offset, so the last one is read again with the next
                # chunk.
                if len(table) == 1:
                    wanted = 2 * wanted
                    continue
                table, stop = table[:-1], int(table["position"][-1])
                following = int(found.heads["base_offset"][-1])
            yield self._judged(data, position, table, -1 if following is None else following)
            position += stop
            wanted = CHUNK_BYTES
            if found.reason == heads.DONE or (short and not final):
                continue
            if short and self._grown(position, found.size):
                continue
            yield self._stopped(data, position, self._why(found, position))
            return

    def _read(self, position: int, size: int) -> Bytes:
        if size > len(self._buffer):
            self._buffer = np.empty(size, np.uint8)
        got = 0
        view = memoryview(self._buffer)  # type: ignore[arg-type]
        while got < size:
            more = os.preadv(self._descriptor, [view[got:size]], position + got)
            if more == 0:
                self._end = position + got  # the broker has truncated the file
                break
            got += more
        return self._buffer[:got]

    @staticmethod
    def _following(data: Bytes, found: heads.Scan) -> int | None:
        """The base offset of the batch after the last complete one; -1 if no batch follows, None if it is not read yet."""
        if found.reason == heads.DONE and found.stop == len(data):
            return None
        if len(data) - found.stop < _FOLLOWING_BYTES:
            return None
        if found.reason in (heads.LENGTH, heads.LOST) or data[found.stop + 16] != 2:
            return -1
        return int.from_bytes(data[found.stop : found.stop + 8].tobytes(), "big", signed=True)

    def _judged(self, data: Bytes, position: int, table: NDArray[Any], following: int) -> Chunk:
        """Return a chunk with the sound batches of ``table``, and an error for each other batch."""
        current = (table["magic"] == 2) & (table["size"] >= heads.HEADER_BYTES)
        good = heads.sound(data, table) if self._options.check_crcs else current
        # An index stores offsets relative to the segment's base, so no broker writes one that is further away.
        far = good & (table["last_offset"] - self._piece.segment.base_offset > _DISTANCE_MAX)
        disordered, self._last_offset = heads.out_of_order(table, good & ~far, self._last_offset, following)
        disordered |= far
        before = self._piece.first_offset
        flaws = list(self._flaws(position, table, good, disordered))
        good = good & ~disordered & (table["base_offset"] >= before)
        if self._piece.end_offset is not None:
            inside = table["last_offset"] < self._piece.end_offset
            flaws += self._strays(position, table[good & ~inside])
            good &= inside
        return Chunk(data, position, table[good], sorted(flaws))

    def _flaws(
        self,
        position: int,
        table: NDArray[Any],
        good: NDArray[np.bool_],
        disordered: NDArray[np.bool_],
    ) -> Iterator[Flaw]:
        bad = np.flatnonzero(~good | disordered).tolist()
        old: list[int] = []
        for at in bad:
            head = table[at]
            if head["magic"] in (0, 1):
                old.append(at)
            elif head["magic"] != 2 or head["size"] < heads.HEADER_BYTES:
                yield Flaw(position + int(head["position"]), _unknown_format(head))
            elif disordered[at]:
                yield Flaw(position + int(head["position"]), _disorder(head))
            else:
                yield Flaw(position + int(head["position"]), _wrong_crc(head))
        if old:
            first, last = table[old[0]], table[old[-1]]
            taken = int(last["position"] + last["size"] - first["position"])
            yield Flaw(
                position + int(first["position"]),
                f"{len(old)} messages of format {first['magic']}, from before Kafka 0.11, are not read"
                f" (the first has offset {first['base_offset']}; {taken} bytes)",
            )

    def _strays(self, position: int, table: NDArray[Any]) -> list[Flaw]:
        """Errors for batches with offsets that belong to the next segment.

        There are no errors if the next segment does not exist, because compaction has merged it into this segment.
        """
        if not len(table) or self._piece.segment.next_offset is None:
            return []
        table = table[table["last_offset"] >= self._piece.segment.next_offset]
        following = os.path.join(
            self._piece.segment.partition.directory, f"{self._piece.segment.next_offset:020d}.log"
        )
        if not len(table) or not os.path.exists(following):
            return []
        return [
            Flaw(
                position + int(head["position"]),
                f"the batch has the offsets {head['base_offset']} to {head['last_offset']}, which belong to the"
                f" segment that begins at {self._piece.segment.next_offset}",
            )
            for head in table
        ]

    def _grown(self, position: int, size: int) -> bool:
        """Whether the incomplete batch is complete now: the broker was writing it when the file was read."""
        there = os.fstat(self._descriptor).st_size
        if not self._piece.last or there <= self._end or not 0 < size <= there - position:
            return False
        self._end = position + size
        return True

    def _stopped(self, data: Bytes, position: int, error: str) -> Chunk:
        return Chunk(data, position, np.empty(0, heads.HEAD), [Flaw(position, error)])

    def _too_large(self, size: int, position: int) -> str:
        return (
            f"a batch of {size} bytes is more than batch.bytes.max allows;"
            f" {self._end - position} bytes are not read"
        )

    def _why(self, found: heads.Scan, position: int) -> str:
        left = self._end - position
        if found.reason == heads.SHORT:
            return f"torn tail: {left} bytes after the last batch are too few for another"
        if found.reason == heads.CUT:
            where = "the segment ends" if self._piece.last else "the next batch is known to begin"
            return f"torn tail: a batch of {found.size} bytes, but {where} after {left}, which are not read"
        if self._only_zeros(position):
            return f"{left} {ZERO_TAIL}: preallocated, or never written"
        if found.reason == heads.LENGTH:
            return f"a batch cannot have {found.size} bytes; {left} bytes are not read"
        return f"no batch begins here; {left} bytes are not read"

    def _only_zeros(self, position: int) -> bool:
        while position < self._end:
            data = self._read(position, min(CHUNK_BYTES, self._end - position))
            if not len(data) or data.any():
                return False
            position += len(data)
        return True


def _claims(head: Any) -> str:
    return (
        f"(it says: offsets {head['base_offset']} to {head['last_offset']},"
        f" producer {head['producer_id']} epoch {head['producer_epoch']}, {head['size']} bytes)"
    )


def _wrong_crc(head: Any) -> str:
    return f"the CRC of the batch does not match its bytes {_claims(head)}"


def _disorder(head: Any) -> str:
    return f"the offsets of the batch do not increase {_claims(head)}"


def _unknown_format(head: Any) -> str:
    if head["magic"] == 2:
        return f"a batch of {head['size']} bytes is smaller than its header"
    return f"record format {head['magic']} is unknown; a batch of {head['size']} bytes was skipped"
