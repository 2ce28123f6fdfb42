"""A fake disk with injected I/O errors and simulated power cuts.

    disk = Disk(tmp_path)
    with disk.in_use():
        disk.fail("fsync", path="*/orders-0/*")          # EIO from now on, in that partition
        disk.fail("pwritev", code=errno.ENOSPC, after=3, times=1)
        disk.room = 4096                                 # 4096 more bytes fit, then ENOSPC
        disk.read_only = True                            # EROFS
        ...
        disk.power_cut(other_path, seed=7)               # write a possible state of tmp_path after a power cut to other_path

`Disk` replaces `storage.files.System`, so it sees every change that the broker makes. Reads do not pass through `Disk`.

A power cut leaves one of the states that POSIX allows, chosen by the seed:

- File content that was synced by the last fsync survives. Of later changes each 4 KiB page is written or not; an
  unwritten page has its old content, or zeros. The file's size is the old or the new size, or a multiple of the page
  size between these two.
- Directory entries that were synced by the last fsync of the directory survive. Of later changes (create, rename,
  remove, mkdir) the first n survive, with a random n. Directories are independent of each other, and fsync of
  a file does not sync the file's name.

No real fsync is called, as the machine that runs the tests does not lose power.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from random import Random

from storage import files

PAGE_BYTES = 4096
WRITES = ("pwritev", "pwrite", "write")
CALLS = ("open", *WRITES, "ftruncate", "fsync", "rename", "unlink", "mkdir")
WRITABLE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(slots=True)
class Fault:
    """An injected error: the system calls named in ``calls`` fail with ``code`` on paths that match ``path``.

    The first ``after`` matching calls succeed, the next ``times`` calls fail (None: all later calls).
    """

    calls: tuple[str, ...]
    code: int
    path: str
    after: int
    times: int | None
    hits: int = 0
    """Number of calls that this fault has failed."""

    def check(self, call: str, path: str) -> None:
        if call not in self.calls or not fnmatch(path, self.path):
            return
        if self.after > 0:
            self.after -= 1
        elif self.times is None or self.hits < self.times:
            self.hits += 1
            raise OSError(self.code, os.strerror(self.code), path)


@dataclass(eq=False, slots=True)
class _File:
    durable: bytes = b""
    last: bytes | None = None
    """Content when the last name of the file was removed; None while the real file still has the content."""


@dataclass(eq=False, slots=True)
class _Directory:
    durable: dict[str, _Node] = field(default_factory=dict)
    names: dict[str, _Node] = field(default_factory=dict)
    changes: list[tuple[str | None, str | None, _Node | None]] = field(default_factory=list)
    """Changes since the last fsync: (removed name or None, added name or None, node of the added name)."""

    def change(self, gone: str | None, come: str | None, node: _Node | None) -> None:
        self.changes.append((gone, come, node))
        _apply(self.names, gone, come, node)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes.clear()


_Node = _File | _Directory


def _apply(names: dict[str, _Node], gone: str | None, come: str | None, node: _Node | None) -> None:
    if gone is not None:
        names.pop(gone, None)
    if come is not None and node is not None:
        names[come] = node


class Unsynced(files.System):
    """System calls of which fsync does nothing, for tests without power cuts."""

    def fsync(self, fd: int) -> None:
        pass


class Disk(files.System):
    """System calls that apply faults below ``root``, whose initial content counts as synced.

    Other paths are not affected.
    """

    def __init__(self, root: Path, rng: Random | None = None) -> None:
        self.root = root
        # The path of a descriptor is resolved; a caller's path starts with ``root`` as it was passed.
        self._roots = (f"{root}/", f"{root.resolve()}/")
        self.faults: list[Fault] = []
        self.room: int | None = None
        """Free bytes, None for no limit. The write that does not fit is short, the next one raises ENOSPC."""
        self.read_only = False
        self.short_writes = 0.0
        """Probability that a write is short, from 0 to 1."""
        self.before: Callable[[str, str], object] | None = None
        """A function that is called before each system call, with the name and the path of the call. It may block, like
        a slow disk, or raise."""
        self._rng = rng or Random(0)
        self._lock = threading.RLock()
        self._top = _found(root)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[Disk]:
        before = files.use_system(self)
        try:
            yield self
        finally:
            files.use_system(before)

    def fail(
        self, *calls: str, code: int = errno.EIO, path: str = "*", after: int = 0, times: int | None = None
    ) -> Fault:
        """Make calls fail, all kinds if none is named. ``path`` is a shell pattern for the whole path."""
        assert set(calls) <= set(CALLS), calls
        fault = Fault(calls or CALLS, code, path, after, times)
        self.faults.append(fault)
        return fault

    def mend(self) -> None:
        """Remove all faults."""
        self.faults.clear()
        self.room, self.read_only, self.short_writes, self.before = None, False, 0.0, None

    # -- the system calls ---------------------------------------------------------------------------------------

    def open(self, path: str | Path, flags: int, mode: int = 0o777) -> int:
        if not self._is_here(path) or not flags & WRITABLE:
            return os.open(path, flags, mode)
        self._check("open", str(path))
        with self._lock:
            fd = os.open(path, flags, mode)
            self._file(Path(path))
            return fd

    def pwritev(self, fd: int, buffers: Sequence[bytes], offset: int) -> int:
        return self.pwrite(fd, b"".join(buffers), offset, "pwritev")

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int, call: str = "pwrite") -> int:
        return os.pwrite(fd, self._fitting(call, fd, data), offset)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, self._fitting("write", fd, data))

    def ftruncate(self, fd: int, length: int) -> None:
        path = _path_of(fd)
        if self._is_here(path):
            self._check("ftruncate", path)
        os.ftruncate(fd, length)

    def fsync(self, fd: int) -> None:
        path = _path_of(fd)
        if not self._is_here(path):
            return
        # Data written while the fsync runs may be lost.
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        content = b"" if is_directory else _content_of(fd)
        self._check("fsync", path, changes=False)
        with self._lock:
            if is_directory:
                directory = self._directory(Path(path))
                self._adopt(directory, Path(path))
                directory.sync()
            elif Path(path).exists():
                self._file(Path(path)).durable = content

    def rename(self, source: str | Path, target: str | Path) -> None:
        if not self._is_here(source):
            os.rename(source, target)
            return
        self._check("rename", str(source))
        source, target = Path(source), Path(target)
        assert source.parent == target.parent, "a rename between directories is not supported"
        with self._lock:
            node = self._directory(source) if source.is_dir() else self._file(source)
            self._keep_content(target)
            os.rename(source, target)
            self._directory(source.parent).change(source.name, target.name, node)

    def unlink(self, path: str | Path) -> None:
        if not self._is_here(path):
            os.unlink(path)
            return
        self._check("unlink", str(path))
        path = Path(path)
        with self._lock:
            self._keep_content(path)
            os.unlink(path)
            self._directory(path.parent).change(path.name, None, None)

    def mkdir(self, path: str | Path, mode: int = 0o777) -> None:
        if not self._is_here(path):
            os.mkdir(path, mode)
            return
        self._check("mkdir", str(path))
        with self._lock:
            os.mkdir(path, mode)
            self._directory(Path(path))

    def _is_here(self, path: str | Path) -> bool:
        return f"{path}/".startswith(self._roots)

    # -- faults -------------------------------------------------------------------------------------------------

    def _check(self, call: str, path: str, *, changes: bool = True) -> None:
        if self.before is not None:
            self.before(call, path)
        if changes and self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        for fault in self.faults:
            fault.check(call, path)

    def _fitting(self, call: str, fd: int, data: bytes | memoryview) -> bytes | memoryview:
        """The prefix of ``data`` that this write writes. Raises ENOSPC if the disk is full."""
        path, length = _path_of(fd), len(data)
        if not self._is_here(path):
            return data
        self._check(call, path)
        if length > 1 and self.short_writes and self._rng.random() < self.short_writes:
            length = self._rng.randrange(1, length)
        if self.room is not None:
            if self.room == 0 and length:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            length = min(length, self.room)
            self.room -= length
        return data[:length]

    # -- what is durable ----------------------------------------------------------------------------------------

    def _directory(self, path: Path) -> _Directory:
        """Return the record of the directory ``path``. Add an unsynced record for a new directory."""
        node = self._top
        root = next(root for root in self._roots if f"{path}/".startswith(root))
        for name in filter(None, str(path)[len(root) :].split("/")):
            below = node.names.get(name)
            if not isinstance(below, _Directory):
                below = _Directory()
                node.change(None, name, below)
            node = below
        return node

    def _file(self, path: Path) -> _File:
        directory = self._directory(path.parent)
        node = directory.names.get(path.name)
        if not isinstance(node, _File):
            node = _File()
            directory.change(None, path.name, node)
        return node

    def _keep_content(self, path: Path) -> None:
        """Remember the content of a file that is about to lose its name: a power cut may bring the name back."""
        node = self._directory(path.parent).names.get(path.name)
        if isinstance(node, _File) and path.exists():
            node.last = path.read_bytes()

    def _adopt(self, directory: _Directory, path: Path) -> None:
        """Add changes for names that were made or removed by code that bypasses this class."""
        found = {entry.name: entry for entry in path.iterdir()}
        for name in [name for name in directory.names if name not in found]:
            directory.change(name, None, None)
        for name, entry in found.items():
            if name not in directory.names:
                directory.change(None, name, _Directory() if entry.is_dir() else _File())

    def synced(self, path: Path) -> bytes:
        """Content of the file at its last fsync."""
        return self._file(path).durable

    # -- power --------------------------------------------------------------------------------------------------

    def power_cut(self, target: Path, seed: int) -> None:
        """Write a possible state after a power cut into ``target``. The disk itself is not changed."""
        rng = Random(seed)
        # The share of unsynced changes that survive is drawn for each cut: none, all, or anything between.
        luck = rng.choice((0.0, 0.0, 1.0, 0.5, rng.random()))
        with self._lock:
            written: dict[_File, bytes] = {}
            self._collect(self._top, self.root, written)
            _restore(self._top, target, written, rng, luck)

    def _collect(self, directory: _Directory, path: Path, written: dict[_File, bytes]) -> None:
        for name, node in directory.names.items():
            below = path / name
            if isinstance(node, _Directory):
                self._collect(node, below, written)
            else:
                written[node] = below.read_bytes() if below.exists() else node.durable


def _found(path: Path) -> _Directory:
    """Record of an existing directory whose whole content counts as synced."""
    directory = _Directory()
    for entry in path.iterdir():
        directory.names[entry.name] = _found(entry) if entry.is_dir() else _File(entry.read_bytes())
    directory.sync()
    return directory


def _restore(
    directory: _Directory, target: Path, written: dict[_File, bytes], rng: Random, luck: float
) -> None:
    names = dict(directory.durable)
    for change in directory.changes[: _part(len(directory.changes), rng, luck)]:
        _apply(names, *change)
    target.mkdir(parents=True, exist_ok=True)
    for name, node in names.items():
        if isinstance(node, _Directory):
            _restore(node, target / name, written, rng, luck)
        else:
            last = node.last if node.last is not None else written.get(node, node.durable)
            (target / name).write_bytes(_torn(node.durable, last, rng, luck))


def _part(count: int, rng: Random, luck: float) -> int:
    """Number of the ``count`` changes, in their order, that have reached the disk: none if ``luck`` is 0, all if it is 1,
    else random."""
    if luck in (0.0, 1.0):
        return round(count * luck)
    return rng.choice((0, count, rng.randint(0, count)))


def _torn(durable: bytes, last: bytes, rng: Random, luck: float) -> bytes:
    """Content of a file after a power cut, with ``durable`` as synced and ``last`` as written content."""
    if luck == 0.0 or durable == last:
        return durable
    if luck == 1.0:
        return last
    shorter, longer = sorted((len(durable), len(last)))
    between = rng.randint(shorter, longer) // PAGE_BYTES * PAGE_BYTES
    size = rng.choice((len(durable), len(last), max(between, shorter)))
    pages = []
    for start in range(0, size, PAGE_BYTES):
        page = (last if rng.random() < luck else durable)[start : start + PAGE_BYTES]
        pages.append(page.ljust(min(PAGE_BYTES, size - start), b"\0"))
    return b"".join(pages)[:size]


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


def _content_of(fd: int) -> bytes:
    """All content of an open file, even if it is open for writing only."""
    return Path(f"/proc/self/fd/{fd}").read_bytes()
