"""The time from starting the process to the first acknowledged record, with an empty data directory."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.client import Client, check_produced, create_topic, produce_frame, small_batch
from benchmarks.figures import Figure, Run
from benchmarks.process import cpu_seconds, others_at_rest


def measure(run: Run) -> Iterator[Figure]:
    # Only the first start of a checkout compiles its modules.
    first_ack_ms(run, 0)
    others = others_at_rest()
    starts = [first_ack_ms(run, number) for number in range(1, run.scaled(11, 3) + 1)]
    times, cpu = zip(*starts, strict=True)
    bare = [bare_interpreter_ms() for _ in range(run.scaled(5, 2))]
    yield Figure(
        "process start to first acknowledged record",
        statistics.median(times),
        "ms",
        limit=400,
        baseline=f"bare interpreter {statistics.median(bare):.0f} ms",
        note=f"median of {len(times)}, {min(times):.0f} to {max(times):.0f}; with CreateTopics and Produce acks=all;"
        f" CPU of the process {statistics.median(cpu):.0f} ms",
        other_cpu=others,
    )


def first_ack_ms(run: Run, number: int) -> tuple[float, float]:
    """(ms from starting the process to the first acknowledged record, CPU ms of the process until then)"""
    request = produce_frame("first", small_batch())
    with run.target.running(run.scratch / f"start-{number}") as target:
        client = Client(target.connect())
        create_topic(client, "first")
        client.send(request)
        answer = bytes(client.receive())
        elapsed_ms = (time.perf_counter() - target.spawned_at) * 1000
        cpu_ms = cpu_seconds(target.pid) * 1000
        check_produced([answer])
        client.close()
    return elapsed_ms, cpu_ms


def bare_interpreter_ms() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return (time.perf_counter() - start) * 1000
