"""The rows of the comparison, in the order in which they are measured."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final, cast

from benchmarks.client import (
    LARGE_BATCH_BYTES,
    Client,
    check_produced,
    create_topic,
    in_turn,
    large_batch,
    produce_frame,
    until_ready,
)
from benchmarks.peers.cells import (
    Cell,
    Measure,
    Outcome,
    Row,
    Sample,
    megabytes_per_second,
    middle_ms,
    per_second,
)
from benchmarks.process import Usage, used_by
from benchmarks.security import logins
from benchmarks.security.targets import Secured
from protocol.messages.delete_topics import DeleteTopicsRequest

GROUP: Final = "security"
AT_ONCE: Final = 16
"""Number of clients that log in at the same time, for rates."""
WARM_BATCHES_MAX: Final = 2000
"""Maximum number of batches (1 MiB each) that a warm-up writes."""
DELETE_TOPICS: Final = (20, 4)
TARGETS: Final = ("odradek", "kafka")


def produce(cell: Cell, listener: str) -> list[Sample]:
    """Write 1 MiB in each request, one in flight, and no more in total than the volumes allow."""
    port = _port(cell, listener)
    connection = (
        logins.connect(port) if listener == "PLAINTEXT" else logins.shake_hands(port, _tls(_folder(cell)))
    )
    client = Client(connection)
    create_topic(client, cell.label)
    frames = [produce_frame(cell.label, large_batch())]
    # Kafka responds to CreateTopics before the broker knows that it leads the partition.
    until_ready(lambda: check_produced(in_turn(client, frames)))
    batches = max(cell.volumes.pushed_bytes // LARGE_BATCH_BYTES, 1)
    _for(cell.warm_s, lambda: in_turn(client, frames), WARM_BATCHES_MAX)
    with used_by(cell.broker.pid) as usage:
        answers = in_turn(client, frames * (batches if cell.round else 1))
    check_produced(answers)
    client.ask(DELETE_TOPICS, DeleteTopicsRequest(topic_names=[cell.label], timeout_ms=30_000))
    client.close()
    outcome = _outcome(usage, len(answers))
    return [megabytes_per_second({**outcome, "bytes": len(answers) * LARGE_BATCH_BYTES})]


def rate(cell: Cell, login: Callable[[Cell], int]) -> list[Sample]:
    """Logins per second. ``login`` returns the number of logins of one call."""
    _for(cell.warm_s, lambda: login(cell))
    done = 0

    def work() -> None:
        nonlocal done
        done += login(cell)

    with used_by(cell.broker.pid) as usage:
        _for(cell.measured_s, work)
    return [per_second(_outcome(usage, done))]


def latency(cell: Cell, login: Callable[[Cell], int]) -> list[Sample]:
    """The time of single logins, one after another."""
    _for(cell.warm_s, lambda: login(cell))
    taken_s: list[float] = []

    def work() -> None:
        began = time.perf_counter()
        login(cell)
        taken_s.append(time.perf_counter() - began)

    with used_by(cell.broker.pid) as usage:
        _for(cell.measured_s, work)
    outcome = _outcome(usage, len(taken_s))
    p99_s = sorted(taken_s)[int(len(taken_s) * 0.99)]
    return [middle_ms({**outcome, "p50_ms": median(taken_s) * 1000, "p99_ms": p99_s * 1000})]


def by(login: logins.Login, count: int) -> Callable[[Cell], int]:
    def log_in(cell: Cell) -> int:
        logins.log_in(_port(cell, "SASL_PLAINTEXT"), count, login)
        return count

    return log_in


def handshake(cell: Cell) -> int:
    logins.shake_hands(_port(cell, "SSL"), _tls(_folder(cell))).close()
    return 1


def _for(seconds: float, work: Callable[[], object], times_max: int | None = None) -> None:
    """Repeat ``work`` for this time, at least once and at most ``times_max`` times."""
    deadline = time.monotonic() + seconds
    for _ in itertools.count() if times_max is None else range(times_max):
        work()
        if time.monotonic() > deadline:
            break


def _outcome(usage: Usage, operations: int) -> Outcome:
    return {
        "operations": operations,
        "wall_s": usage.wall_s,
        "broker_cpu_s": usage.target_cpu_s,
        "other_cpu": usage.other_cpu,
    }


def _port(cell: Cell, listener: str) -> int:
    return cast(Secured, cell.target).ports[listener]


def _folder(cell: Cell) -> Path:
    return cast(Secured, cell.target).folder


_tls = cache(logins.tls)


def _measure(row: Row, take: Callable[[Cell], list[Sample]]) -> Measure:
    return Measure(GROUP, (row,), TARGETS, take)


def _login_rows(name: str, title: str, login: logins.Login) -> list[Measure]:
    many, one = by(login, AT_ONCE), by(login, 1)
    return [
        _measure(Row(name, f"logins by {title}, {AT_ONCE} at once", "1/s"), lambda cell: rate(cell, many)),
        _measure(
            Row(f"{name}-latency", f"a login by {title}, p50", "ms", higher_is_better=False),
            lambda cell: latency(cell, one),
        ),
    ]


MEASURES: Final = (
    _measure(
        Row("produce", "produce, batches of 1 MiB, PLAINTEXT", "MB/s", cpu_unit="s/GB"),
        lambda cell: produce(cell, "PLAINTEXT"),
    ),
    _measure(
        Row("produce-tls", "the same by TLS 1.3", "MB/s", cpu_unit="s/GB"), lambda cell: produce(cell, "SSL")
    ),
    _measure(Row("handshakes", "TLS handshakes, one at a time", "1/s"), lambda cell: rate(cell, handshake)),
    *_login_rows("plain", "PLAIN", logins.plain()),
    *_login_rows("scram", "SCRAM-SHA-256", logins.scram()),
)
ROWS: Final = [row.name for measure in MEASURES for row in measure.rows]
