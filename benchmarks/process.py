"""CPU time and memory of a process, from ``/proc``, and the CPU time of all other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class Unsupported(Exception):
    """This system does not have the ``/proc`` files that are read here."""


def cpu_seconds(pid: int) -> float:
    """User and system seconds of all threads of the process, in steps of 10 ms: measure for a second or more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii")
    except FileNotFoundError as error:
        raise Unsupported("CPU times are read from /proc/PID/stat, which only Linux has") from error
    # The second field is the program's name in parentheses. The name may contain any character.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def _cpu_seconds_of(pid: int | None) -> float:
    return cpu_seconds(pid) if pid is not None else 0.0


def precise_cpu_seconds(pid: int) -> float:
    """CPU seconds of the living threads, exact to the nanosecond if the kernel counts them, else in steps of 10 ms."""
    try:
        of_threads = [path.read_text("ascii") for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    except FileNotFoundError:  # a thread has just ended
        return precise_cpu_seconds(pid)
    nanoseconds = sum(int(text.split()[0]) for text in of_threads)
    return nanoseconds / 1e9 if nanoseconds else cpu_seconds(pid)


def queued_seconds(pid: int) -> float:
    """Seconds for which the process's main thread and this thread, in sum, were runnable but waited for a free core."""
    threads = (Path(f"/proc/{pid}/schedstat"), Path("/proc/thread-self/schedstat"))
    try:
        return sum(int(each.read_text("ascii").split()[1]) for each in threads) / 1e9
    except FileNotFoundError as error:
        raise Unsupported(
            "the time without a core is read from /proc/PID/schedstat, which only Linux has"
        ) from error


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise Unsupported("the process has no VmRSS in /proc/PID/status: it has ended")


def machine_cpu_seconds() -> float:
    """Busy seconds of all cores, in sum, since the system's boot."""
    fields = Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, soft_irq, steal = (int(field) for field in fields[:8])
    return (user + nice + system + irq + soft_irq + steal) * TICK_S


class Usage:
    """CPU time used during a block, by the target and by others. Set at the end of the block, or by `end`."""

    def __init__(self, pid: int | None) -> None:
        self.wall_s = 0.0
        self.target_cpu_s = 0.0
        self.other_cpu = 0.0
        self._pid = pid
        self._ended = False
        self._before = machine_cpu_seconds(), _cpu_seconds_of(pid), time.process_time()
        self._start = time.perf_counter()

    def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self.wall_s = time.perf_counter() - self._start
        everybody, target, own = self._before
        own = time.process_time() - own
        self.target_cpu_s = _cpu_seconds_of(self._pid) - target
        others = machine_cpu_seconds() - everybody - self.target_cpu_s - own
        self.other_cpu = max(others, 0.0) / self.wall_s


@contextmanager
def used_by(pid: int | None) -> Iterator[Usage]:
    """Measure the CPU time of the process ``pid`` (None: only this process works) and of all others during the block."""
    usage = Usage(pid)
    yield usage
    usage.end()


@dataclass(frozen=True)
class Cost:
    """The target's cost of one request, as the median of several rounds, since other work on the machine varies."""

    cpu_s: float
    least_cpu_s: float
    most_cpu_s: float
    per_second: float
    other_cpu: float


def cost_of(
    pid: int,
    rounds: int,
    requests: int,
    work: Callable[[], object],
    before: Callable[[], object] = lambda: None,
) -> Cost:
    """Run ``before`` and ``work`` ``rounds`` times. ``work`` sends ``requests`` requests, and only ``work`` is measured."""
    usages: list[Usage] = []
    for _ in range(rounds):
        before()
        with used_by(pid) as usage:
            work()
        usages.append(usage)
    cpu = [usage.target_cpu_s / requests for usage in usages]
    return Cost(
        median(cpu),
        min(cpu),
        max(cpu),
        requests / median(usage.wall_s for usage in usages),
        median(usage.other_cpu for usage in usages),
    )


def others_at_rest(seconds: float = 1.0) -> float:
    """Cores that other processes use while this process is idle.

    For measures that start processes themselves, and cannot tell the CPU time of these from that of others.
    """
    with used_by(os.getpid()) as usage:
        time.sleep(seconds)
    return usage.other_cpu
