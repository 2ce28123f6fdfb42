"""The longest wait of a client while the broker deletes, compacts and flushes logs in the background."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Final

from benchmarks.client import (
    CREATE_TOPICS,
    Client,
    WrongResponse,
    check_produced,
    create_topic,
    in_turn,
    now_ms,
    produce_frame,
    small_batch,
)
from benchmarks.figures import Figure, Run
from benchmarks.process import queued_seconds, used_by
from benchmarks.targets import Running
from protocol.batch import build_batch
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

PROBE: Final = "probe"
MIB: Final = 1 << 20
RETENTION_MS: Final = 8_000
SETTINGS: Final = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
}
EVERY_S: Final = 0.001


@dataclass
class Waits:
    """Round trips of a small Produce, in milliseconds."""

    all_ms: list[float]
    own_ms: list[float]
    """The round trips in milliseconds, minus the time for which the broker or the probe waited for a free core."""
    other_cpu: float

    def __str__(self) -> str:
        cuts = quantiles(self.all_ms, n=1000)
        return f"p50 {cuts[499]:.2f} ms, p99 {cuts[989]:.1f} ms, p99.9 {cuts[998]:.1f} ms"


def measure(run: Run) -> Iterator[Figure]:
    with run.target.running(run.scratch / "pauses", SETTINGS) as target:
        client = Client(target.connect())
        create_topic(client, PROBE)
        rest = probe(target, run.scaled(10, 5))
        yield _figure("nothing else", rest, rest)
        size = run.scaled(1000, 200)
        _fill_expiring(client, size)
        yield _figure(f"{size} segments of 1 MiB expire and are removed", probe(target, 20), rest)
        size = run.scaled(256, 64)
        _fill_keyed(client, size)
        yield _figure(f"a log of {size} MiB is compacted", probe(target, run.scaled(30, 15)), rest)
        count = run.scaled(2_000, 200)
        _touch(client, count)
        yield _figure(f"{count:,} partitions are synced in the background", probe(target, 12), rest)
        client.close()


def probe(target: Running, seconds: float) -> Waits:
    """Send one small Produce each millisecond, and return the round-trip times."""
    client = Client(target.connect())
    frame = produce_frame(PROBE, small_batch())
    waits: list[float] = []
    own: list[float] = []
    with used_by(target.pid) as usage:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            queued = queued_seconds(target.pid)
            began = time.perf_counter()
            client.send(frame)
            client.receive()
            took = time.perf_counter() - began
            waits.append(took * 1000)
            own.append((took - queued_seconds(target.pid) + queued) * 1000)
            if took < EVERY_S:
                time.sleep(EVERY_S - took)
    client.close()
    return Waits(waits, own, usage.other_cpu)


def _figure(what: str, waits: Waits, rest: Waits) -> Figure:
    return Figure(
        f"longest wait while {what}",
        max(waits.all_ms),
        "ms",
        baseline=f"at rest {max(rest.all_ms):.1f} ms",
        note=f"{len(waits.all_ms):,} round trips, {waits}",
        other_cpu=waits.other_cpu,
    )


def _create(client: Client, name: str, configs: dict[str, str], partitions: int = 1) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    answer = client.ask(CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    if answer.topics[0].error_code:
        raise WrongResponse(f"CreateTopics: error {answer.topics[0].error_code}")


def _produce(client: Client, frames: Sequence[bytes]) -> None:
    check_produced(in_turn(client, frames))


def _fill_expiring(client: Client, segments: int) -> None:
    """Write ``segments`` segments long before the first of them expires."""
    _create(
        client,
        "expiring",
        {"segment.bytes": str(MIB), "retention.ms": str(RETENTION_MS), "file.delete.delay.ms": "1000"},
    )
    value = os.urandom(MIB * 9 // 10)
    for _ in range(segments):
        _produce(client, [produce_frame("expiring", build_batch([(now_ms(), None, value)]))])


def _fill_keyed(client: Client, mib: int) -> None:
    """Write records of 200 bytes, with each key several times. A batch that does not fit seals the last segment."""
    _create(
        client,
        "keyed",
        {
            "cleanup.policy": "compact",
            "segment.bytes": str(16 * MIB),
            "min.cleanable.dirty.ratio": "0.5",
            "file.delete.delay.ms": "1000",
        },
    )
    keys = [b"key-%06d" % number for number in range(200_000)]
    per_batch = 2_000
    for number in range(mib * MIB // (per_batch * 215)):
        first = number * per_batch % len(keys)
        value = os.urandom(200)
        records = [(now_ms(), key, value) for key in keys[first : first + per_batch]]
        _produce(client, [produce_frame("keyed", build_batch(records))])


def _touch(client: Client, partitions: int) -> None:
    _create(client, "wide", {}, partitions)
    for first in range(0, partitions, 100):
        _produce(client, [produce_frame("wide", small_batch(), range(first, first + 100))])
