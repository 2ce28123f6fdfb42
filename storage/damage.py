"""Damages the files of a closed log as a failing disk would, for tests of the code that reads them next."""

from __future__ import annotations

from pathlib import Path

from protocol.batch import HEADER_BYTES, CorruptBatch
from protocol.named_tuple import NamedTuple
from storage import files
from storage.files import AppendFile, StorageError
from storage.segment import Segment, file_name


class FoundBatch(NamedTuple):
    """Position of a batch in the files of a log."""

    path: Path
    position: int
    size: int
    first_offset: int
    last_offset: int


def find_batch(directory: Path, offset: int) -> FoundBatch | None:
    """Find the batch that contains an offset; None if there is none.

    Raises ``StorageError`` if an earlier batch is damaged.
    """
    bases = [int(path.stem) for path in directory.glob("*.log") if path.stem.isdecimal()]
    base = max((each for each in bases if each <= offset), default=None)
    if base is None:
        return None
    segment = Segment(directory, base, created_ms=0)
    position = 0
    try:
        for batch in segment.headers():
            if batch.last_offset >= offset:
                if batch.base_offset > offset:
                    return None  # compacted away
                path = directory / file_name(base, "log")
                return FoundBatch(path, position, batch.size, batch.base_offset, batch.last_offset)
            position += batch.size
    except CorruptBatch as error:
        raise StorageError(segment.log.name, str(error)) from error
    finally:
        segment.close()
    return None


def flip(batch: FoundBatch) -> None:
    """Change one byte in the middle of the batch's records, so that its CRC no longer matches."""
    position = batch.position + min(HEADER_BYTES + (batch.size - HEADER_BYTES) // 2, batch.size - 1)
    file = AppendFile(batch.path)
    try:
        file.unshare()
        [byte] = file.read(position, 1)
        try:
            files.system.pwrite(file.fileno(), bytes([byte ^ 0xFF]), position)
        except OSError as error:
            raise StorageError(batch.path, error) from error
    finally:
        file.close()


def tear(batch: FoundBatch) -> None:
    """Cut the file in the middle of the batch. Later batches of the file are lost."""
    file = AppendFile(batch.path)
    try:
        file.truncate(batch.position + batch.size // 2)
    finally:
        file.close()
