"""Kafka's checkpoint files (a version line, a count, one row per line), and ``partition.metadata``."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from protocol.uuids import parse_uuid, uuid_text
from storage.files import DamagedFile, Name, StorageError, read_file, replace_file

VERSION = 0
PARTITION_METADATA = "partition.metadata"
DAMAGED_BYTES_MAX = 4
"""Largest number of wrong bytes with which a `partition.metadata` counts as damaged. If more bytes are wrong, the
file is that of another topic."""


def format_rows(rows: Iterable[tuple[object, ...]]) -> bytes:
    """Content of a checkpoint file with these rows.

    >>> format_rows([(0, 5)])
    b'0\\n1\\n0 5\\n'
    """
    lines = [" ".join(map(str, row)) for row in rows]
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode()


def parse_rows(path: Name, columns: int) -> list[list[str]]:
    """Rows of a checkpoint file; empty if the file is missing or blank (Kafka creates some of them empty)."""
    lines = (_text(path) or "").splitlines()
    if _is_blank(lines):
        return []
    if lines[0].strip() != str(VERSION):
        raise DamagedFile(path, f"this file has the unknown version {lines[0]!r}: only version 0 can be read")
    rows = [line.split(" ") for line in lines[2:] if line]
    if len(lines) < 2 or not lines[1].isdecimal() or int(lines[1]) != len(rows):
        raise DamagedFile(path, "the number of entries differs from the number in line 2")
    if any(len(row) != columns for row in rows):
        raise DamagedFile(path, f"a line does not have {columns} fields")
    return rows


def _text(path: Name) -> str | None:
    """Text of a file, None if the file does not exist."""
    content = read_file(path)
    try:
        return None if content is None else content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedFile(path, "this is not a text file") from error


def _is_blank(lines: list[str]) -> bool:
    """Whether the lines have no text: after a power cut a file may have its full length, but only zero bytes."""
    return not any(line.strip("\0") for line in lines)


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """Read ``recovery-point-offset-checkpoint``, or another file of this format: (topic, partition) -> offset."""
    rows = parse_rows(path, 3)
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except ValueError as error:
        raise StorageError(path, f"a line has a field that is not a number: {error}") from error


def write_offsets(path: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    replace_file(
        path, format_rows((topic, partition, offset) for (topic, partition), offset in offsets.items())
    )


class OffsetCheckpoint:
    """The rows of an offset checkpoint file in memory. Each row is kept as text, so that ten thousand rows can be written
    with one join.

    ``changed`` is true if an offset has changed since the last call of ``rows``.
    """

    __slots__ = ("_offsets", "_rows", "changed")

    def __init__(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self._offsets: dict[tuple[str, int], int] = {}
        self._rows: dict[tuple[str, int], bytes] = {}
        for key, offset in offsets.items():
            self.set(key, offset)
        self.changed = False

    def get(self, key: tuple[str, int]) -> int:
        """Offset of a partition, 0 if the checkpoint has none."""
        return self._offsets.get(key, 0)

    def set(self, key: tuple[str, int], offset: int) -> None:
        if self._offsets.get(key) != offset:
            self._offsets[key] = offset
            self._rows[key] = f"{key[0]} {key[1]} {offset}\n".encode()
            self.changed = True

    def drop(self, key: tuple[str, int]) -> None:
        if self._offsets.pop(key, None) is not None:
            del self._rows[key]
            self.changed = True

    def rows(self) -> list[bytes]:
        """Return the rows, to be written with ``write_rows``, and clear ``changed``."""
        self.changed = False
        return list(self._rows.values())


def write_rows(path: Path, rows: Sequence[bytes]) -> None:
    """Replace a checkpoint file by one with these rows."""
    replace_file(path, b"".join((f"{VERSION}\n{len(rows)}\n".encode(), *rows)))


def write_partition_metadata(directory: Path, topic_id: uuid.UUID) -> None:
    """Write ``partition.metadata``: 43 bytes, no newline at the end, as Kafka writes it.

    The file is not synced: the cluster metadata contains the topic id, and a file that is empty after a power cut is
    written again.
    """
    replace_file(directory / PARTITION_METADATA, _partition_metadata(topic_id), durable=False)


def _partition_metadata(topic_id: uuid.UUID) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def is_damaged_partition_metadata(directory: Path, topic_id: uuid.UUID) -> bool:
    """Whether 1 to ``DAMAGED_BYTES_MAX`` bytes of ``partition.metadata`` differ from the content for ``topic_id``.

    With another topic's id, nearly all bytes of the id would differ.
    """
    content = (read_file(directory / PARTITION_METADATA) or b"").rstrip(b"\n")
    expected = _partition_metadata(topic_id)
    differing = sum(one != other for one, other in zip(content, expected, strict=False))
    return len(content) == len(expected) and 0 < differing <= DAMAGED_BYTES_MAX


def read_partition_metadata(directory: Path) -> uuid.UUID | None:
    """Topic id of a partition directory, or None if the file is missing or blank."""
    path = directory / PARTITION_METADATA
    text = _text(path)
    if text is None or _is_blank(text.splitlines()):
        return None
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise StorageError(path, "this is not a partition.metadata of version 0")
    try:
        return parse_uuid(fields["topic_id"])
    except ValueError as error:
        raise StorageError(path, f"{fields['topic_id']!r} is not a topic id") from error
