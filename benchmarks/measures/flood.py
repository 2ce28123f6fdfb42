"""The wait of a small Produce while another connection floods the broker with batches of 1 MiB.

The flood is a separate process, so that it does not compete with the probe for Python's interpreter. For comparison, one
minimal server gets the same flood and another the same probe: this is the wait when three processes compete for the cores.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from subprocess import PIPE, Popen
from typing import Final

from benchmarks.client import (
    SIZE,
    Client,
    check_produced,
    create_topic,
    large_batch,
    produce_frame,
)
from benchmarks.figures import Figure, Run
from benchmarks.measures.pauses import PROBE, probe
from benchmarks.plain import Plain
from benchmarks.targets import HOST, ROOT, Running

FLOOD: Final = "flood"
IN_FLIGHT: Final = 4
P99_LIMIT_MS: Final = 5.0
MIB: Final = 1 << 20
KEPT_FILES: Final = 4
"""Number of files for plain writes, which make the page cache as large as the broker's log of the flood."""
SETTINGS: Final = {
    # A flood of 1 GB/s must not fill the disk, nor the page cache with new pages all the time.
    "log.segment.bytes": str(64 * MIB),
    "log.retention.bytes": str(64 * MIB),
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "0",
}


class Sink(Plain):
    """A minimal server that discards what it receives, because the bytes of the flood would fill the disk."""

    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]:
        return [*super().command(port, data, settings)[:-1], os.devnull]


def measure(run: Run) -> Iterator[Figure]:
    seconds = run.scaled(20, 5)
    with Sink().running(run.scratch / "flood-sink") as sink:
        sink.connect().close()  # otherwise the other server finds the same port free
        with Sink().running(run.scratch / "flood-other") as other, _flood(sink, seconds, is_checked=False):
            plain = probe(other, seconds)
    with run.target.running(run.scratch / "flood", SETTINGS) as target:
        client = Client(target.connect())
        create_topic(client, PROBE)
        create_topic(client, FLOOD)
        client.close()
        rest = probe(target, seconds)
        with _flood(target, seconds, is_checked=True) as mib_per_s:
            waits = probe(target, seconds)
    written_ms = _plain_writes(run.scratch, seconds)
    note = f"{len(waits.all_ms):,} round trips, {waits}; flood of {mib_per_s[0]:,.0f} MiB/s"
    baseline = (
        f"at rest {_p99(rest.all_ms):.1f} ms, plain servers {_p99(plain.all_ms):.1f} ms, "
        f"a plain write of 1 MiB {_p99(written_ms):.1f} ms"
    )
    yield Figure(
        f"p99 of a small Produce beside a flood of 1 MiB, {IN_FLIGHT} in flight",
        _p99(waits.all_ms),
        "ms",
        limit=P99_LIMIT_MS,
        baseline=baseline,
        note=note,
        other_cpu=rest.other_cpu,
    )
    yield Figure(
        "longest wait of it",
        max(waits.all_ms),
        "ms",
        baseline=f"at rest {max(rest.all_ms):.1f} ms, plain servers {max(plain.all_ms):.1f} ms",
        other_cpu=rest.other_cpu,
    )


def _p99(times_ms: Sequence[float]) -> float:
    return quantiles(times_ms, n=100)[98]


def _plain_writes(directory: Path, seconds: float) -> list[float]:
    """Milliseconds of each plain write. Some wait because the host allocates memory only when the machine touches it."""
    data = os.urandom(MIB)
    took_ms: list[float] = []
    files = [directory / f"plain-{number}" for number in range(KEPT_FILES)]
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        file = files[len(took_ms) // 64 % KEPT_FILES]
        with file.open("wb", buffering=0) as target:
            for _ in range(64):
                begun = time.perf_counter()
                target.write(data)
                took_ms.append((time.perf_counter() - begun) * 1000)
                time.sleep(0.0005)
    for file in files:
        file.unlink(missing_ok=True)
    return took_ms


@contextmanager
def _flood(target: Running, seconds: float, is_checked: bool) -> Iterator[list[float]]:
    """Run the flood during the block. Afterwards the yielded list has the MiB per second that were acknowledged."""
    mib_per_s: list[float] = []
    options = [str(target.port), str(seconds + 1), "checked" if is_checked else "plain"]
    command = [sys.executable, "-m", "benchmarks.measures.flood", *options]
    with Popen(command, stdout=PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the flood has begun
        yield mib_per_s
        mib_per_s.append(float(process.stdout.readline()))


def main(port: int, seconds: float, is_checked: bool) -> None:
    """The flood: keep several batches in flight, sending a new one after each response.

    The process prints a line when the flood has begun, and the MiB per second at the end.
    """
    frame = produce_frame(FLOOD, large_batch())
    answered = 0
    with socket.create_connection((HOST, port)) as connection, connection.makefile("rb") as stream:
        connection.sendall(frame * (IN_FLIGHT - 1))
        print("begun", flush=True)
        began = time.perf_counter()
        while (passed_s := time.perf_counter() - began) < seconds:
            connection.sendall(frame)
            answer = stream.read(*SIZE.unpack(stream.read(SIZE.size)))
            if is_checked:
                check_produced([answer])
            answered += 1
    print(answered / passed_s, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "checked")
