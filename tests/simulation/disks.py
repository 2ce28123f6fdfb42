"""Disks of simulated nodes: injected I/O errors, and power cuts that lose unsynced bytes."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from broker.replicas.partition import Partition
from storage import files
from storage.segment import Segment
from tests.simulation.consumers import batch_size

METADATA_LOG: Final = "__cluster_metadata"
"""Name of the metadata log, which all nodes share. Its writes never fail, as no node can run without this log."""

CRC_COVERS_FROM: Final = 21
"""Position in a batch of the first byte that its CRC covers: the attributes."""


class SimDisk(files.System):
    """The disk of all nodes, whose system calls can be made to fail. fsync does nothing, as no real power is lost."""

    def __init__(self) -> None:
        self._failing: dict[str, str] = {}
        """The failing system call, by directory of the node that has the fault."""
        self.hits = 0

    def fail(self, directory: Path, call: str) -> None:
        """Make ``fsync`` or ``pwritev`` fail in this directory until ``mend`` is called."""
        self._failing[f"{directory.resolve()}/"] = call

    def mend(self, directory: Path) -> None:
        self._failing.pop(f"{directory.resolve()}/", None)

    def mend_all(self) -> None:
        self._failing.clear()

    def fsync(self, fd: int) -> None:
        self._check("fsync", fd)

    def pwritev(self, fd: int, buffers: Sequence[bytes], offset: int) -> int:
        self._check("pwritev", fd)
        return os.pwritev(fd, buffers, offset)

    def _check(self, call: str, fd: int) -> None:
        if call not in self._failing.values():
            return
        path = os.readlink(f"/proc/self/fd/{fd}")
        for directory, failing in self._failing.items():
            if failing == call and path.startswith(directory) and METADATA_LOG not in path:
                self.hits += 1
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)


class Unsynced:
    """The bytes of a partition's last segment after its last fsync: recorded before the node dies, then damaged."""

    def __init__(self, partition: Partition) -> None:
        log = partition.log
        segment: Segment = log.segments[-1]
        self.path = segment.path("log")
        self.first = 0
        self.end = segment.size
        if log.flushed_offset > segment.base_offset:
            for batch in segment.batches(0):
                if batch.next_offset > log.flushed_offset:
                    break
                self.first += batch.size

    def lose(self, rng: Random) -> str:
        """Cut, zero or flip some of the unsynced bytes; return a description for the trace."""
        if self.first >= self.end or not self.path.exists():
            return "nothing"
        at = rng.randint(self.first, self.end - 1)
        what = rng.choice(("cut", "zeroed", "flipped", "kept"))
        with suppress(OSError), self.path.open("r+b") as file:
            if what == "cut":
                file.truncate(at)
            elif what == "zeroed":
                file.seek(at)
                file.write(bytes(self.end - at))
            elif what == "flipped":
                at = _flip(file, self.first, self.end, rng)
        return f"{what} at {at} of {self.first}..{self.end}"


def _flip(file: Any, first: int, end: int, rng: Random) -> int:
    """Flip one bit of a batch, among the bytes that the CRC covers, and return the byte's position in the file.

    A change of the base offset or the leader epoch could not be detected.
    """
    file.seek(first)
    starts, at, rest = [], 0, file.read(end - first)
    while at + CRC_COVERS_FROM < len(rest):
        starts.append(at)
        at += batch_size(rest, at)
    start = rng.choice(starts)
    stop = min(start + batch_size(rest, start), len(rest))
    at = first + rng.randrange(start + CRC_COVERS_FROM, stop)
    file.seek(at)
    byte = file.read(1)[0]
    file.seek(at)
    file.write(bytes([byte ^ 1 << rng.randrange(8)]))
    return at
