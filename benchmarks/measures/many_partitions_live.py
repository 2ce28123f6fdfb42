"""Ten thousand partitions in a running broker: its memory, and the duration of a start, a first read and a stop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.client import (
    FETCH,
    Client,
    WrongResponse,
    check_produced,
    create_topic,
    frame,
    in_turn,
    parse,
    produce_frame,
    small_batch,
)
from benchmarks.figures import Figure, Run
from benchmarks.process import cpu_seconds, others_at_rest, resident_mib
from benchmarks.targets import Running
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

BATCHES_EACH: Final = 3
ANSWER_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True)
class Shape:
    """The topics and partitions in the broker."""

    topics: int
    partitions: int
    """Number of partitions of each topic."""

    @property
    def names(self) -> list[str]:
        return [f"many-{number}" for number in range(self.topics)]

    @property
    def count(self) -> int:
        return self.topics * self.partitions


def measure(run: Run) -> Iterator[Figure]:
    shape = Shape(100, 100) if not run.quick else Shape(10, 50)
    directory = run.scratch / "many-partitions-live"
    others = others_at_rest()
    text = f"{shape.count:,} partitions"
    with run.target.running(directory) as target:
        client = Client(target.connect())
        yield _timed(f"create {text}", target, lambda: _create(client, shape), others)
        yield _timed(
            f"first {BATCHES_EACH} batches into each of {text}", target, lambda: _fill(client, shape), others
        )
        yield _holds(f"resident memory with {text}", target, others)
        target.process.kill()
        target.process.wait()
    with run.target.running(directory) as target:
        client = _first_ack(target, shape)
        yield _since_start(f"start after a kill, {text}, to the first acknowledged record", target, others)
        client.close()
        yield _timed(f"clean stop, {text}", target, lambda: _stop(target), others)
    with run.target.running(directory) as target:
        client = _first_ack(target, shape)
        yield _since_start(
            f"start after a clean stop, {text}, to the first acknowledged record", target, others
        )
        yield _timed(f"first Fetch of each of {text}", target, lambda: _fetch(client, shape), others)
        client.close()
        yield _timed(f"clean stop, {text}, all read", target, lambda: _stop(target), others)


# -- the work -----------------------------------------------------------------------------------------------------


def _create(client: Client, shape: Shape) -> None:
    for name in shape.names:
        create_topic(client, name, shape.partitions)


def _fill(client: Client, shape: Shape) -> None:
    """Send one request per topic, with a batch of one record for each of its partitions."""
    batch = small_batch()
    frames = [produce_frame(name, batch, range(shape.partitions)) for name in shape.names]
    for _ in range(BATCHES_EACH):
        check_produced(in_turn(client, frames))


def _first_ack(target: Running, shape: Shape) -> Client:
    client = Client(target.connect())
    check_produced(in_turn(client, [produce_frame(shape.names[-1], small_batch(), [shape.partitions - 1])]))
    return client


def _fetch(client: Client, shape: Shape) -> None:
    """Read everything, topic by topic, and check that each partition has what was acknowledged."""
    for name in shape.names:
        asked = [
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=4096)
            for index in range(shape.partitions)
        ]
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=ANSWER_BYTES_MAX,
            topics=[FetchTopic(topic=name, partitions=asked)],
        )
        (answer,) = in_turn(client, [frame(FETCH, request)])
        (topic,) = parse(FETCH, answer).responses
        for partition in topic.partitions:
            if partition.error_code or partition.high_watermark < BATCHES_EACH or not partition.records:
                raise WrongResponse(f"Fetch of {name}-{partition.partition_index}: {partition}")


def _stop(target: Running) -> None:
    target.process.send_signal(signal.SIGTERM)
    # The process stays a zombie until it is waited for, and /proc still has a zombie's CPU time.
    os.waitid(os.P_PID, target.pid, os.WEXITED | os.WNOWAIT)


# -- the figures --------------------------------------------------------------------------------------------------


def _timed(name: str, target: Running, work: Callable[[], None], others: float) -> Figure:
    cpu_s, began = cpu_seconds(target.pid), time.perf_counter()
    work()
    taken_s = time.perf_counter() - began
    return _figure(name, taken_s, cpu_seconds(target.pid) - cpu_s, others)


def _since_start(name: str, target: Running, others: float) -> Figure:
    return _figure(name, time.perf_counter() - target.spawned_at, cpu_seconds(target.pid), others)


def _figure(name: str, taken_s: float, cpu_s: float, others: float) -> Figure:
    return Figure(name, taken_s, "s", note=f"CPU of the process {cpu_s:.1f} s", other_cpu=others)


def _holds(name: str, target: Running, others: float) -> Figure:
    open_files = len(os.listdir(f"/proc/{target.pid}/fd"))
    return Figure(
        name, resident_mib(target.pid), "MiB", note=f"{open_files:,} open descriptors", other_cpu=others
    )
