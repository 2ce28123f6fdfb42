"""File operations: append, read, sync, truncate, rename, replace, remove. Only this module changes files.

Every call that changes the disk goes through ``system``, so that a test can stop the process between any two calls, make a
call fail, or drop data that was never synced.
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
"""A file name: a string where there may be many files, because creating a ``Path`` takes as long as a system call, and
a start of the broker handles tens of thousands of files."""


class System:
    """The system calls that change files, as in ``os``. ``use_system`` replaces the instance that this module uses."""

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
"""Bytes per read of a small file. Most small files are shorter, so one read returns all of the file."""
COPY_BYTES = 1024 * 1024
"""Bytes per write when a file is copied."""

system = System()


def use_system(other: System) -> System:
    """Send all file operations of this process through ``other``. Returns the previous instance."""
    global system
    before, system = system, other
    return before


class StorageError(Exception):
    """A file could not be read or written. The message has the file's name; clients get KAFKA_STORAGE_ERROR."""

    def __init__(self, path: Name, cause: OSError | str) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = str(path)


class DamagedFile(StorageError):
    """A file could be read, but its content is damaged."""


class Resting(Protocol):
    """An object that can release its resources, and acquires them again when they are needed."""

    used: bool
    """Whether the object was used since `Recent` last examined it. The object itself sets this, in one assignment."""

    def rest(self) -> None: ...


T = TypeVar("T", bound=Resting)


class Recent(Generic[T]):
    """The objects that have their resources now, at most ``limit``. If one is added beyond the limit, another one releases
    its resources.

    The second-chance algorithm selects an object that was not used lately. All objects belong to the thread of the event
    loop.
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
        """Make ``count`` of the objects release their resources, such as file descriptors."""
        while count > 0 and self._held:
            thing, _ = self._held.popitem(last=False)
            if thing.used:
                thing.used = False
                self._held[thing] = None
            else:
                thing.rest()
                count -= 1

    def forget(self, thing: T) -> None:
        """Remove an object that has released its resources itself."""
        self._held.pop(thing, None)


class Descriptors(Recent["AppendFile"]):
    """The append files that are open now. At the limit, opening a file closes another one, which is opened again when it is
    needed.

    The files belong to one thread, that of the event loop. Other threads open files by path themselves.
    """

    def open(self, file: AppendFile) -> int:
        """Open a file for reading and writing. Creates a missing file."""
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
"""The open files of this process. RLIMIT_NOFILE limits the whole process, so the broker sets ``limit`` at its start."""


class AppendFile:
    """An append-only file, opened when needed. The first ``size`` bytes are whole batches.

    A write that fails half-way is cut off again, so that the file always ends with a whole batch.
    """

    __slots__ = ("_cuts", "_failed", "_fd", "_synced", "name", "size", "used")

    def __init__(self, path: Name, size: int | None = None) -> None:
        self.name = str(path)
        self._fd = -1
        # What the last fsync covered: (number of truncations, size).
        self._cuts = 0
        self._synced = (-1, -1)
        self._failed: StorageError | None = None
        self.used = False
        self.size = (file_size(self.name) or 0) if size is None else size

    @property
    def path(self) -> Path:
        return Path(self.name)

    def fileno(self) -> int:
        """The open descriptor. Creates a missing file."""
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
        except OSError:  # the caller raises the first error, and recovery cuts the file
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
        """Replace the file by a copy if a snapshot of the broker has a hard link to it: a snapshot must not change."""
        try:
            if os.fstat(self.fileno()).st_nlink < 2:
                return
            copy = self.name + ".tmp"
            copy_file(self.name, copy, self.size)
            system.rename(copy, self.name)
        except OSError as error:
            raise StorageError(self.name, error) from error
        self.close()
        self._cuts += 1  # the last fsync covered the file that was replaced

    def sync(self) -> None:
        """fsync the file, unless nothing changed since the last fsync. After the return, a power cut loses no byte.

        Any thread may call this, so it opens the file again: the event loop may close its descriptor meanwhile. The event
        loop may also append and truncate meanwhile. So the size and the number of truncations are read before the fsync: a
        file that was truncated and has grown to the same size again has other content.

        Linux reports a failed write-back only once to descriptors that are opened later, and then counts the pages as
        written, so the next fsync would succeed. So a file whose fsync has failed counts as failed until the process ends,
        and recovery reads the bytes that are really on the disk.
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
        """Number of bytes known to be on the disk: 0 if there was no fsync since the file was opened or truncated."""
        cuts, size = self._synced
        return size if cuts == self._cuts else 0

    def note_synced(self, size: int) -> None:
        """Note that ``size`` bytes were synced before the file was opened."""
        if self._synced == (-1, -1):
            self._synced = (self._cuts, min(size, self.size))

    @property
    def can_be_forgotten(self) -> bool:
        """Whether this object may be replaced by a new one for the same file without losing information."""
        return self._failed is None

    def rest(self) -> None:
        """Close the descriptor. It is opened again when the file is needed."""
        if self._fd >= 0:
            SPARES.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        if self._fd >= 0:
            DESCRIPTORS.forget(self)
            self.rest()


def file_size(path: Name) -> int | None:
    """Size of a file, None if the file does not exist."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(path, error) from error


def read_file(path: Name) -> bytes | None:
    """Content of a small file, None if the file does not exist."""
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
    """Last ``length`` bytes of a file whose size is a multiple of ``length``; empty for any other file, or if there is no
    file.
    """
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
    """Remove a file. A missing file is no error."""
    try:
        system.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(path, error) from error


def remove_all(paths: Iterable[Path]) -> list[StorageError]:
    """Remove files, and return the errors. Large files take long (0.2 s per GiB): call it in a thread."""
    errors = []
    for path in paths:
        try:
            remove(path)
        except StorageError as error:
            errors.append(error)
    return errors


def remove_tree(path: Path) -> None:
    """Remove a folder and its content. After an error the rest of the folder is left for the next start. Call it in a
    thread.
    """
    try:
        for entry in SPARES.entries(path):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(Path(entry.path))
            else:
                remove(Path(entry.path))
        system.rmdir(path)
    except (OSError, StorageError):
        return  # the next start finds the rest and removes it


def make_directory(path: Path) -> None:
    """Create a folder and its parents, unless they exist."""
    if path.is_dir():
        return
    try:
        system.mkdir(path, 0o777)
    except FileNotFoundError as error:
        if path.parent.is_dir():  # a file system like /proc, where no folder can be created
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

    Without ``durable`` this is a hundred times faster: after a kill the file has the old content or the new, but after a
    power cut it may be missing or empty. Use that for content that can be restored from elsewhere.
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
    """Copy a file, or its first ``length`` bytes, neither atomically nor with a sync. Raises ``OSError``."""
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
    """Write a whole file, fast and not atomically, for content that is rebuilt if it is damaged.

    An existing file is replaced, not overwritten, because a snapshot of the broker may have a hard link to it.
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
    """fsync a file's content, or the names in a directory. A missing file is no error."""
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
    """fsync a directory: its renames, creations and removals become durable."""
    fd = SPARES.open(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        system.fsync(fd)
    finally:
        SPARES.close(fd)
