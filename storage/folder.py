"""A partition's folder as a start finds it: its files, and the leftovers of unfinished deletions and compactions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from stat import S_ISREG

from protocol.slotted import slotted
from storage.descriptors import SPARES
from storage.files import AppendFile, StorageError, remove, rename
from storage.renaming import CLEANED, DELETED, SWAP, swap_in
from storage.segment import SEGMENT_SUFFIXES, Segment, file_name

OFFSET_DIGITS = 20
TEMPORARY = ".tmp"


@slotted
class Folder:
    """The files of a partition, from one listing of its directory."""

    path: Path
    sizes: dict[int, int] = field(default_factory=dict)
    """Sizes of the ``.log`` files, by base offset."""
    by_suffix: dict[str, set[int]] = field(default_factory=dict)
    """File suffix, such as ``index`` -> the offsets in the names of the files with that suffix."""
    temporary: list[str] = field(default_factory=list)
    """Names without an offset, of temporary files that were being written."""
    doomed: list[Path] = field(default_factory=list)
    """Files that do not belong to the log any more and may be big. The caller removes them in a thread."""

    def offsets(self, suffix: str) -> set[int]:
        return self.by_suffix.get(suffix, set())

    def look(self) -> None:
        """List the directory. Raises FileNotFoundError if it does not exist, StorageError if a ``.log`` is not a file."""
        self.sizes.clear()
        self.by_suffix.clear()
        self.temporary.clear()
        for entry in SPARES.entries(self.path):
            name = entry.name
            digits, _, suffix = name.partition(".")
            if len(digits) != OFFSET_DIGITS or not (digits.isascii() and digits.isdecimal()):
                if name.endswith(TEMPORARY):
                    self.temporary.append(name)
                continue
            offset = int(digits)
            self.by_suffix.setdefault(suffix, set()).add(offset)
            if suffix == "log":
                status = entry.stat()
                # A directory's size depends on the file system. A directory with a small size would pass for a torn tail.
                if not S_ISREG(status.st_mode):
                    raise StorageError(entry.path, "is not a regular file")
                self.sizes[offset] = status.st_size

    def names(self, ending: str) -> Iterator[tuple[int, str]]:
        """Yield (offset, suffix) for each file whose name ends with ``ending``: (0, "log.swap") for ".swap"."""
        for suffix in [suffix for suffix in self.by_suffix if f".{suffix}".endswith(ending)]:
            for offset in sorted(self.by_suffix[suffix]):
                yield offset, suffix

    def remove(self, ending: str) -> None:
        """Remove the files whose names end with ``ending``."""
        for offset, suffix in self.names(ending):
            self._take(offset, suffix)

    def _take(self, offset: int, suffix: str) -> None:
        """Remove a file from the folder. A ``.log`` file, which may be big, is only renamed to ``.deleted``; other files are
        removed at once.
        """
        path = self.path / file_name(offset, suffix)
        if not suffix.startswith("log"):
            remove(path)
        elif suffix.endswith(DELETED):
            self.doomed.append(path)
        else:
            self.doomed.append(path.with_name(path.name + DELETED))
            rename(path, self.doomed[-1])

    # -- unfinished deletions and compactions --------------------------------------------------------------------

    def finish(self) -> None:
        """Finish the deletion or compaction during which the last process ended, and remove indexes without a ``.log``."""
        if len(self.by_suffix) > sum(map(self.by_suffix.__contains__, (*SEGMENT_SUFFIXES, "snapshot"))):
            self._finish_changes()
            self.look()
        for name in self.temporary:
            remove(self.path / name)
        for suffix in SEGMENT_SUFFIXES[1:]:
            for offset in self.offsets(suffix) - self.sizes.keys():
                remove(self.path / file_name(offset, suffix))
                self.by_suffix[suffix].discard(offset)

    def _finish_changes(self) -> None:
        cleaned = {offset for offset, _ in self.names(CLEANED)}
        for ending in (DELETED, CLEANED, TEMPORARY):
            self.remove(ending)
        # A .swap file at or above the offset of a .cleaned file belongs to a compaction that had not finished.
        swaps = set()
        for offset, suffix in list(self.names(SWAP)):
            if cleaned and offset >= min(cleaned):
                self._take(offset, suffix)
            else:
                swaps.add(offset)
        if swaps:
            self._swap_in(swaps)

    def _swap_in(self, swaps: set[int]) -> None:
        """Finish the replacement of segments by compacted ones (``.swap`` files) during which the last process ended.

        The ``.log.swap`` file of a compacted segment is renamed first. If it still exists, no file has been renamed: all
        files of the replaced segments are removed. Otherwise the files without ``.swap`` belong to the compacted segment.
        """
        whole = self.offsets(f"log{SWAP}") & swaps
        if whole:
            end = max(max(self._end_of_swap(offset), offset + 1) for offset in whole)
            for suffix in SEGMENT_SUFFIXES:
                for offset in self.offsets(suffix):
                    if min(whole) <= offset < end:
                        self._take(offset, suffix)
        for offset in swaps:
            swap_in(Segment(self.path, offset, created_ms=0))

    def _end_of_swap(self, offset: int) -> int:
        """Offset after the last batch of a segment whose ``.log`` still ends in ``.swap``."""
        end = offset
        log = AppendFile(self.path / file_name(offset, f"log{SWAP}"))
        segment = Segment(self.path, offset, created_ms=0, log=log)
        for batch in segment.headers():
            end = batch.last_offset + 1
        segment.close()
        return end
