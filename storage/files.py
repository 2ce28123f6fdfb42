"""The only module that touches the operating system's files: append, read, sync, cut, rename, replace, remove.

Every call that changes the disk goes through ``system``, so that a test can stop the process between any two of
them, let one fail, or forget what was never synced.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from storage.descriptors import NONE_LEFT, SPARES

Buffer = bytes | bytearray | memoryview
Name = Path | str
"""Of a file. To make a ``Path`` takes as long as a system call, and there are tens of thousands of files at a start."""


class System:
    """The system calls that change files, as in ``os``. Another one may be put in place with ``use_system``."""

    open = staticmethod(os.open)
    pwritev = staticmethod(os.pwritev)
    pwrite = staticmethod(os.pwrite)
    write = staticmethod(os.write)
    ftruncate = staticmethod(os.ftruncate)
    fsync = staticmethod(os.fsync)
    rename = staticmethod(os.rename)
    utime = staticmethod(os.utime)
    unlink = staticmethod(os.unlink)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)


READ_BYTES = 64 * 1024
"""How much of a small file is read at once; most are smaller."""
COPY_BYTES = 1024 * 1024
"""How much of a file is copied at once."""

system = System()


def use_system(other: System) -> System:
    """Let all file work of this process go through ``other`` from now on; returns what was used before."""
    global system
    before, system = system, other
    return before


class StorageError(Exception):
    """A file could not be read or written; clients see KAFKA_STORAGE_ERROR. Carries the file's name."""

    def __init__(self, path: Name, cause: OSError | str) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = str(path)


class DamagedFile(StorageError):
    """A file could be read, but its content is damaged."""


class Resting(Protocol):
    """Something that can give back what it holds, and take it again when it is needed."""

    used: bool
    """Since `Recent` last looked for something to rest; set by the thing itself, with one store."""

    def rest(self) -> None: ...


T = TypeVar("T", bound=Resting)


class Recent(Generic[T]):
    """The things that hold something now, at most ``limit``: one more rests one that was not used lately (second chance).

    They belong to one thread, that of the loop.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: OrderedDict[T, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, thing: T) -> None:
        self._held[thing] = None
        self.rest(len(self._held) - self.limit)

    def rest(self, count: int) -> None:
        """Let so many of them rest."""
        while count > 0 and self._held:
            thing, _ = self._held.popitem(last=False)
            if thing.used:
                thing.used = False
                self._held[thing] = None
            else:
                thing.rest()
                count -= 1

    def forget(self, thing: T) -> None:
        """It holds nothing any more."""
        self._held.pop(thing, None)


class Descriptors(Recent["AppendFile"]):
    """The append files that are open now. One that was closed for others opens again when it is needed.

    The files belong to one thread, that of the loop; other threads open what they need by its path.
    """

    def open(self, file: AppendFile) -> int:
        """Open a file for reading and writing, created when it is not there."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            try:
                fd = system.open(file.name, flags, 0o666)
            except OSError as error:
                if error.errno not in NONE_LEFT:
                    raise
                self.rest(len(self) // 2 + 1)
                fd = SPARES.open(system.open, file.name, flags, 0o666)
        except OSError as error:
            raise StorageError(file.name, error) from error
        self.add(file)
        return fd


DESCRIPTORS = Descriptors(limit=1024)
"""Of this process, whose descriptors are limited as a whole (RLIMIT_NOFILE); the broker sets the limit at its start."""


class AppendFile:
    """An append-only file, opened when needed. ``size`` is what is known to be whole.

    A write that fails half-way is cut off again, so that the file always ends with a whole batch.
    """

    __slots__ = ("_cuts", "_failed", "_fd", "_synced", "name", "size", "used")

    def __init__(self, path: Name, size: int | None = None) -> None:
        self.name = str(path)
        self._fd = -1
        # What the last fsync covered: how often the file had been cut, and its size.
        self._cuts = 0
        self._synced = (-1, -1)
        self._failed: StorageError | None = None
        self.used = False
        self.size = (file_size(self.name) or 0) if size is None else size

    @property
    def path(self) -> Path:
        return Path(self.name)

    def fileno(self) -> int:
        """The open descriptor; the file is created when it is not there."""
        self.used = True
        if self._fd < 0:
            self._fd = DESCRIPTORS.open(self)
        return self._fd

    def append(self, chunks: Sequence[Buffer], length: int) -> int:
        """Write ``chunks`` (``length`` bytes in all) at the end and return the position where they start."""
        fd = self._fd if self._fd >= 0 else self.fileno()
        self.used = True
        position = self.size
        try:
            written = system.pwritev(fd, chunks, position)
            if written != length:
                self._write_rest(fd, b"".join(chunks), position, written)
        except OSError as error:
            self._cut_back(fd, position)
            raise StorageError(self.name, error) from error
        self.size = position + length
        return position

    @staticmethod
    def _write_rest(fd: int, data: bytes, position: int, written: int) -> None:
        while written < len(data):
            written += system.pwrite(fd, memoryview(data)[written:], position + written)

    @staticmethod
    def _cut_back(fd: int, position: int) -> None:
        try:
            system.ftruncate(fd, position)
        except OSError:  # the disk is beyond help: the caller reports the first error, recovery cuts the tail
            return

    def read(self, position: int, length: int) -> bytes:
        """At most ``length`` bytes from ``position``; fewer at the end of the file."""
        length = min(length, self.size - position)
        if length <= 0:
            return b""
        fd = self._fd if self._fd >= 0 else self.fileno()
        self.used = True
        try:
            data = os.pread(fd, length, position)
            while len(data) < length:
                more = os.pread(fd, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise StorageError(self.name, error) from error
        return data

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        self.unshare()
        try:
            system.ftruncate(self.fileno(), size)
        except OSError as error:
            raise StorageError(self.name, error) from error
        self.size = size
        self._cuts += 1

    def unshare(self) -> None:
        """Give the name a file of its own where the file has other names too: those of snapshots, which must not change."""
        try:
            if os.fstat(self.fileno()).st_nlink < 2:
                return
            copy = self.name + ".tmp"
            copy_file(self.name, copy, self.size)
            system.rename(copy, self.name)
        except OSError as error:
            raise StorageError(self.name, error) from error
        self.close()
        self._cuts += 1  # what was synced is the other file

    def sync(self) -> None:
        """fsync: what was written survives a power cut once this has returned. Nothing new: nothing to do.

        Any thread may call it, so it opens the file anew: the descriptor of the loop may be closed meanwhile. The
        loop may append and cut at the same time: what was covered is noted as it was before the fsync, and a file
        that was cut and has grown again to the same size is another one.

        A failed write-back is told by Linux to one fsync of those who open the file later, and the pages count as
        written from then on: the next fsync would succeed. So a file that has failed stays
        failed, until the process ends and recovery looks at what is really there.
        """
        covered = (self._cuts, self.size)
        if self._failed is not None:
            raise self._failed
        if covered != self._synced:
            try:
                sync_file(self.name)
            except StorageError as error:
                self._failed = error
                raise
            self._synced = covered

    @property
    def synced_size(self) -> int:
        """How many bytes are known to be on the disk: 0 if none was synced since the file was opened, or cut."""
        cuts, size = self._synced
        return size if cuts == self._cuts else 0

    def note_synced(self, size: int) -> None:
        """So many bytes were synced before the file was opened."""
        if self._synced == (-1, -1):
            self._synced = (self._cuts, min(size, self.size))

    @property
    def can_be_forgotten(self) -> bool:
        """Whether a new object for the same file would know as much."""
        return self._failed is None

    def rest(self) -> None:
        """Give the descriptor back until the file is needed again."""
        if self._fd >= 0:
            SPARES.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        if self._fd >= 0:
            DESCRIPTORS.forget(self)
            self.rest()


def file_size(path: Name) -> int | None:
    """The size of a file, None for one that is not there."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(path, error) from error


def read_file(path: Name) -> bytes | None:
    """All of a small file; None for one that is not there."""
    try:
        fd = SPARES.open(os.open, path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = b""
            while piece := os.read(fd, READ_BYTES):
                content += piece
                if len(piece) < READ_BYTES:
                    break
            return content
        finally:
            SPARES.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(path, error) from error


def end_of_file(path: Name, length: int) -> bytes:
    """The last bytes of a file that ends with a whole number of so many; nothing of any other, or of none."""
    try:
        fd = SPARES.open(os.open, path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.lseek(fd, 0, os.SEEK_END)
            return os.pread(fd, length, size - length) if size >= length and size % length == 0 else b""
        finally:
            SPARES.close(fd)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageError(path, error) from error


def rename(source: Path, target: Path) -> None:
    try:
        system.rename(source, target)
    except OSError as error:
        raise StorageError(source, error) from error


def remove(path: Name) -> None:
    """Remove a file; one that is gone already is as good."""
    try:
        system.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(path, error) from error


def remove_all(paths: Iterable[Path]) -> list[StorageError]:
    """Remove files (big ones take long, 0.2 s per GiB: call it in a thread); returns what could not be done."""
    errors = []
    for path in paths:
        try:
            remove(path)
        except StorageError as error:
            errors.append(error)
    return errors


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it, as far as that goes (call it in a thread)."""
    try:
        for entry in SPARES.entries(path):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(Path(entry.path))
            else:
                remove(Path(entry.path))
        system.rmdir(path)
    except (OSError, StorageError):
        return  # what is left is found, and removed, at the next start


def make_directory(path: Path) -> None:
    """Make a folder, and those that it lies in, unless it is there."""
    if path.is_dir():
        return
    try:
        system.mkdir(path, 0o777)
    except FileNotFoundError as error:
        if path.parent.is_dir():  # a file system like /proc, in which nothing can be made
            raise StorageError(path, error) from error
        make_directory(path.parent)
        make_directory(path)
    except FileExistsError as error:
        if not path.is_dir():
            raise StorageError(path, "is not a directory") from error
    except OSError as error:
        if not path.is_dir():
            raise StorageError(path, error) from error


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a small file so that a crash leaves the old content or the new (temporary file, fsync, rename).

    Not ``durable`` is a hundred times quicker: a killed process still leaves the old or the new, but after a power
    cut the file may be missing or empty. It is for what can be written again from elsewhere.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        _write_whole(temporary, content, durable=durable)
        system.rename(temporary, path)
        if durable:
            sync_directory(path.parent)
    except OSError as error:
        raise StorageError(path, error) from error


def copy_file(source: Name, target: Name, length: int | None = None) -> None:
    """Copy a file, or its first ``length`` bytes, in place and without a sync. ``OSError`` as it comes."""
    left = length
    read_fd = SPARES.open(os.open, source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        write_fd = SPARES.open(
            system.open, target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666
        )
        try:
            piece = b"-"
            while piece and left != 0:
                piece = os.read(read_fd, COPY_BYTES if left is None else min(left, COPY_BYTES))
                view = memoryview(piece)
                while view:
                    view = view[system.write(write_fd, view) :]
                left = None if left is None else left - len(piece)
        finally:
            SPARES.close(write_fd)
    finally:
        SPARES.close(read_fd)


def write_file(path: Name, content: bytes) -> None:
    """Write a whole file: quick and not atomic, for what is rebuilt when it does not fit.

    It is a new file: one that was there may have another name, in a snapshot.
    """
    try:
        try:
            _write_whole(path, content, durable=False, flags=os.O_EXCL)
        except FileExistsError:
            system.unlink(path)
            _write_whole(path, content, durable=False, flags=os.O_EXCL)
    except OSError as error:
        raise StorageError(path, error) from error


def _write_whole(path: Name, content: bytes, *, durable: bool, flags: int = os.O_TRUNC) -> None:
    fd = SPARES.open(system.open, path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o666)
    try:
        view = memoryview(content)
        while view:
            view = view[system.write(fd, view) :]
        if durable:
            system.fsync(fd)
    finally:
        SPARES.close(fd)


def sync_file(path: Name) -> None:
    """Make the content of a file (or the names in a directory) durable; one that is gone needs it no more."""
    try:
        fd = SPARES.open(os.open, path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(path, error) from error
    try:
        system.fsync(fd)
    except OSError as error:
        raise StorageError(path, error) from error
    finally:
        SPARES.close(fd)


def sync_directory(path: Path) -> None:
    """Make renames, creations and removals in a directory durable."""
    fd = SPARES.open(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        system.fsync(fd)
    finally:
        SPARES.close(fd)
