"""The cost of idle objects for active clients: small Produces and transactions in a broker with 10,000 partitions, 100,000
transactional ids, 5,000 idle connections or 1,000 groups.

Seven brokers run side by side: two without idle objects (the second shows the noise of the comparison), one with each of the
four kinds, and one with all four. Each round measures all brokers. A figure is the median of the ratios to the first broker
in the same round.
"""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.client import (
    SIZE,
    Client,
    check_committed,
    check_produced,
    create_topic,
    find_group_coordinator,
    in_flight,
    init_producer_id,
    produce_frame,
    small_batch,
    whole_transaction_frames,
)
from benchmarks.figures import WARM_UP_S, Figure, Run
from benchmarks.measures.groups import SETTINGS as GROUP_SETTINGS
from benchmarks.measures.groups import ClassicGroups, ConsumerGroups
from benchmarks.measures.many_ids import fill as fill_ids
from benchmarks.process import precise_cpu_seconds, resident_mib, used_by
from benchmarks.targets import Running

TOPIC: Final = "scale"
TRANSACTIONAL_ID: Final = "scale"
PARTITIONS: Final = 2
IN_FLIGHT: Final = 8
TRANSACTION_REQUESTS: Final = 3
MEMBERS: Final = 5
FLAT: Final = 1.05
REST_S: Final = 10.0
SETTINGS: Final = GROUP_SETTINGS | {
    # Members and connections are idle: none may time out.
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.session.timeout.ms": "7200000",
    "group.consumer.max.session.timeout.ms": "7200000",
    "connections.max.idle.ms": "7200000",
}


@dataclass
class Kept:
    """A broker with idle objects, and the results of its rounds."""

    name: str
    target: Running
    client: Client
    producer_id: int
    idle: list[socket.socket] = field(default_factory=list)
    """Idle connections, as plain sockets because a `Client` has a buffer of 2 MiB."""
    epoch: int = 0
    produce_s: list[float] = field(default_factory=list)
    transaction_s: list[float] = field(default_factory=list)
    other_cpu: list[float] = field(default_factory=list)

    def produce(self, requests: int) -> None:
        """Send small Produces on one connection, eight in flight."""
        eight = [produce_frame(TOPIC, small_batch())] * IN_FLIGHT
        answers: list[bytes] = []
        before = precise_cpu_seconds(self.target.pid)
        with used_by(self.target.pid) as usage:
            for _ in range(requests // IN_FLIGHT):
                answers += in_flight(self.client, eight)
        check_produced(answers)
        self.produce_s.append((precise_cpu_seconds(self.target.pid) - before) / len(answers))
        self.other_cpu.append(usage.other_cpu)

    def transact(self, transactions: int) -> None:
        """Commit transactions of ten records in two partitions and an offset, eight in flight."""
        frames = [
            whole_transaction_frames(TOPIC, "scale", TRANSACTIONAL_ID, self.producer_id, self.epoch + number)
            for number in range(transactions)
        ]
        before = precise_cpu_seconds(self.target.pid)
        for first in range(0, transactions, IN_FLIGHT):
            eight = frames[first : first + IN_FLIGHT]
            answers = in_flight(self.client, eight, TRANSACTION_REQUESTS * len(eight))
        self.epoch += transactions
        check_committed(answers[-1], self.epoch)
        self.transaction_s.append((precise_cpu_seconds(self.target.pid) - before) / transactions)


def measure(run: Run) -> Iterator[Figure]:
    _allow_connections()
    with ExitStack() as stack:
        kept = [_start(run, stack, name, fills) for name, fills in _shapes(run).items()]
        for each in kept:
            yield from _at_rest(each)
        warm = time.monotonic() + WARM_UP_S * 2
        while time.monotonic() < warm:
            _round(kept, 1_000, 40)
        for each in kept:
            each.produce_s.clear(), each.transaction_s.clear(), each.other_cpu.clear()
        for number in range(run.scaled(35, 14)):
            # Rotate the order, because each broker leaves its data in the caches.
            first = number % len(kept)
            _round(kept[first:] + kept[:first], 4_000, 400)
        yield from _figures("small Produce, eight in flight", kept, lambda each: each.produce_s)
        yield from _figures("transaction, eight in flight", kept, lambda each: each.transaction_s)


Fill = Callable[[Run, Kept], None]


def _shapes(run: Run) -> dict[str, Sequence[Fill]]:
    partitions, ids, connections, groups = (
        (f"{run.scaled(10_000, 500):,} partitions", _fill_partitions),
        (f"{run.scaled(100_000, 2_000):,} transactional ids", _fill_ids),
        (f"{run.scaled(5_000, 200):,} idle connections", _connect),
        (f"{run.scaled(1_000, 50):,} groups of {MEMBERS} members", _fill_groups),
    )
    each = (partitions, ids, connections, groups)
    return (
        {"a small broker": ()}
        | {"another small broker": ()}
        | {name: (fill,) for name, fill in each}
        | {"all of these": tuple(fill for _, fill in each)}
    )


def _start(run: Run, stack: ExitStack, name: str, fills: Sequence[Fill]) -> Kept:
    directory = run.scratch / Path(name.replace(" ", "-").replace(",", ""))
    target = stack.enter_context(run.target.running(directory, SETTINGS))
    client = Client(target.connect())
    create_topic(client, TOPIC, PARTITIONS)
    find_group_coordinator(client, "scale")
    kept = Kept(name, target, client, init_producer_id(client, TRANSACTIONAL_ID))
    began = time.perf_counter()
    for fill in fills:
        fill(run, kept)
    run.say(f"{name}: made in {time.perf_counter() - began:.0f} s")
    return kept


def _fill_partitions(run: Run, kept: Kept) -> None:
    """Write a record to each partition, so that its log is open and has been written to since the start."""
    for number in range(run.scaled(100, 5)):
        create_topic(kept.client, f"many-{number}", 100)
        check_produced(in_flight(kept.client, [produce_frame(f"many-{number}", small_batch(), range(100))]))


def _fill_ids(run: Run, kept: Kept) -> None:
    create_topic(kept.client, "many-ids", 4)
    fill_ids(kept.client, run.scaled(100_000, 2_000), 0)


def _connect(run: Run, kept: Kept) -> None:
    """Open connections that send one request and are idle afterwards."""
    request = produce_frame(TOPIC, small_batch())
    for _ in range(run.scaled(5_000, 200)):
        connection = kept.target.connect()
        connection.sendall(request)
        with connection.makefile("rb") as stream:
            check_produced([stream.read(*SIZE.unpack(stream.read(SIZE.size)))])
        kept.idle.append(connection)


def _fill_groups(run: Run, kept: Kept) -> None:
    """Create groups, half of them with each protocol. Their members wait for their next heartbeat."""
    half = run.scaled(1_000, 50) // 2
    for number, protocol in enumerate((ClassicGroups, ConsumerGroups)):
        groups = protocol(kept.target, f"shared-{number}")
        for group in range(half):
            groups.join(f"{protocol.name}-{group}", MEMBERS)
        kept.idle.append(groups.client.socket)


def _allow_connections() -> None:
    """Raise our limit of open files: this process has the client's ends of the idle connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _round(kept: Sequence[Kept], requests: int, transactions: int) -> None:
    for each in kept:
        each.produce(requests)
    for each in kept:
        each.transact(transactions)


def _at_rest(kept: Kept) -> Iterator[Figure]:
    with used_by(kept.target.pid) as usage:
        time.sleep(REST_S)
    yield Figure(
        f"CPU at rest with {kept.name}",
        usage.target_cpu_s / usage.wall_s * 100,
        "% of a core",
        note=f"{resident_mib(kept.target.pid):.0f} MiB resident; over {REST_S:.0f} s",
        other_cpu=usage.other_cpu,
    )


def _figures(what: str, kept: Sequence[Kept], costs: Callable[[Kept], list[float]]) -> Iterator[Figure]:
    small = costs(kept[0])
    for each in kept[1:]:
        ratios = sorted(cost / beside for cost, beside in zip(costs(each), small, strict=True))
        quarter = len(ratios) // 4
        yield Figure(
            f"CPU per {what}: {each.name}",
            median(ratios),
            "of a small broker's",
            limit=FLAT,
            baseline=f"a small broker {median(small) * 1e6:.1f} us",
            note=f"{median(costs(each)) * 1e6:.1f} us; half of {len(ratios)} rounds "
            f"{ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f}",
            other_cpu=median(each.other_cpu),
        )
