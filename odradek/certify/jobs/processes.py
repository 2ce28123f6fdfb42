"""All processes of an instance, wherever they went: found, signalled, and killed until none is left.

A process belongs to a tree by a mark in its environment, which children inherit, by its process group, or as a child of one
that belongs to it. The mark finds what has called setsid and lost its parent; the others what has cleared its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from odradek.deadlines import stretched
from odradek.errors import OdradekError

MARK: Final = "ODRADEK_PROCESS"
"""The variable of the environment with the mark."""
KILLED_S: Final = stretched(10.0)
"""How long processes may take to end after SIGKILL."""
_PROC: Final = Path("/proc")
_ENDED: Final = frozenset({"Z", "X", psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})
_PAUSE_S: Final = 0.002
_PR_SET_CHILD_SUBREAPER: Final = 36


class StillAlive(OdradekError):
    """Processes of the job that cannot be killed: they may write to the broker of the next run."""


@dataclass(frozen=True, slots=True)
class Process:
    """A row of the system's table of processes."""

    pid: int
    parent: int
    group: int
    session: int
    started: float
    """With the process id it names a process for good. In units of the system."""
    has_ended: bool
    """It waits for its parent to ask for its exit code."""
    is_marked: bool


class Tree:
    """The processes that carry a mark, or come from the roots."""

    def __init__(self, mark: str, roots: Iterable[int] = ()) -> None:
        """``mark`` is the begin of the variable's value: several trees may be parts of a larger one."""
        self._mark = f"{MARK}={mark}".encode()
        self._roots = frozenset(roots)
        self._groups = set(roots)
        self._known: set[tuple[int, float]] = set()
        self._lock = threading.Lock()

    def processes(self) -> list[Process]:
        """Those that are alive, in the order of their process ids."""
        with self._lock:
            rows = list(table(self._mark))
            inside = members(rows, self._groups, self._known)
            self._known = {(each.pid, each.started) for each in inside}
            # The number of a group that has ended may be another one's later. One that exists though nothing was seen of it
            # is of processes that come and go faster than a look at the table takes.
            seen = {each.group for each in inside if each.group > 1}
            self._groups = seen | {each for each in self._groups - seen if _exists(each)}
        _reap(each for each in rows if each.pid not in self._roots and (each in inside or _is_adopted(each)))
        return sorted((each for each in inside if not each.has_ended), key=lambda each: each.pid)

    def tell(self, *numbers: signal.Signals) -> list[Process]:
        """Signals to all of it, in this order; gives those that were there."""
        told = self.processes()
        for number in numbers:
            _send(self._groups, number)
        return told

    def freeze(self) -> None:
        """Also what is started meanwhile."""
        frozen: set[object] = set()
        while new := {*((each.pid, each.started) for each in self.processes()), *self._groups} - frozen:
            _send(self._groups, signal.SIGSTOP)
            frozen |= new

    def kill(self) -> int:
        """Until none is left; gives how many were seen. `StillAlive` if some do not end."""
        deadline = time.monotonic() + KILLED_S
        killed: set[tuple[int, float]] = set()
        groups: set[int] = set()
        while (alive := self.processes()) or self._groups - groups:
            _send(self._groups, signal.SIGKILL)
            groups |= self._groups
            killed |= {(each.pid, each.started) for each in alive}
            left_s = deadline - time.monotonic()
            if left_s < 0:
                raise StillAlive(f"processes of the job cannot be killed: {', '.join(map(_named, alive))}")
            await_ends([each.pid for each in alive], left_s)
        return len(killed)


def _send(groups: Iterable[int], number: signal.Signals) -> None:
    """The system forks nothing in a group while it signals it. All of a group is in the same tree."""
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def members(
    rows: Iterable[Process], groups: Collection[int], known: Collection[tuple[int, float]] = ()
) -> list[Process]:
    """Of a table of processes those that are marked, or known, in one of the groups, or children of these."""
    rows = [each for each in rows if each.pid != os.getpid()]
    inside = {
        each.pid: each
        for each in rows
        if each.is_marked or each.group in groups or (each.pid, each.started) in known
    }
    while more := [each for each in rows if each.parent in inside and each.pid not in inside]:
        inside.update((each.pid, each) for each in more)
    return list(inside.values())


def table(mark: bytes) -> Iterator[Process]:
    """All processes that this one may see; those are marked whose environment has a variable that begins so."""
    return table_by_proc(mark) if sys.platform == "linux" else table_by_psutil(mark)


def table_by_proc(mark: bytes) -> Iterator[Process]:
    """70 us for each process: a third of what psutil takes."""
    inner = b"\0" + mark
    for name in os.listdir(_PROC):
        if not name.isdecimal():
            continue
        try:
            stat = _read(f"/proc/{name}/stat")
        except OSError:
            continue  # it has ended since
        # The name stands in parentheses, and may hold any character.
        state, parent, group, session, *more = stat[stat.rindex(b")") + 2 :].split()
        has_ended = state.decode() in _ENDED
        environment = b""
        if not has_ended:
            with contextlib.suppress(OSError):  # another user's
                environment = _read(f"/proc/{name}/environ")
        yield Process(
            int(name),
            int(parent),
            int(group),
            int(session),
            float(more[15]),
            has_ended,
            environment.startswith(mark) or inner in environment,
        )


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def table_by_psutil(mark: bytes) -> Iterator[Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError), process.oneshot():
            environment: dict[str, str] = {}
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
            yield Process(
                process.pid,
                process.ppid() or 0,
                os.getpgid(process.pid),
                os.getsid(process.pid),
                process.create_time(),
                process.status() in _ENDED,
                any(f"{name}={value}".encode().startswith(mark) for name, value in environment.items()),
            )


def _exists(group: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
    return True


def _named(process: Process) -> str:
    name = "?"
    with contextlib.suppress(psutil.Error):
        name = psutil.Process(process.pid).name()
    return f"{process.pid} ({name})"


def await_ends(pids: Iterable[int], timeout_s: float) -> bool:
    """Whether all these processes have ended in time."""
    deadline = time.monotonic() + timeout_s
    return all([_has_ended_by(deadline, pid) for pid in pids])


def _has_ended_by(deadline: float, pid: int) -> bool:
    if hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # the kernel is older than 5.3
        else:
            with contextlib.closing(_Descriptor(descriptor)):
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
    while not _has_ended(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True


@dataclass(frozen=True, slots=True)
class _Descriptor:
    number: int

    def close(self) -> None:
        os.close(self.number)


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in _ENDED
    except psutil.Error:
        return True


# -- orphans ---------------------------------------------------------------------------------------------------------


def _is_adopted(process: Process) -> bool:
    """A child that this process has started has its session, or one of its own."""
    return process.session not in (os.getsid(0), process.pid)


def _reap(orphans: Iterable[Process]) -> None:
    """Ask for the exit codes of those that have come to this process. Those of its own children are `Popen`'s to ask for."""
    for each in orphans:
        if each.has_ended and each.parent == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(each.pid, os.WNOHANG)


class _Orphans:
    """Where Linux has it, orphans below this process become its children while a job runs: the first process of a container
    often asks for no exit code, and each run would leave its dead there."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()

    def adopt(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                _be_subreaper(True)

    def leave(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                _be_subreaper(False)


ORPHANS: Final = _Orphans()


def _be_subreaper(is_one: bool) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(is_one), 0, 0, 0)
