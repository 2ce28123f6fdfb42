"""The cost of a control port before and after its first request: starts with and without a control port alternate."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from benchmarks.client import Client, check_produced, create_topic, produce_frame, small_batch
from benchmarks.figures import Figure, Run
from benchmarks.measures.pauses import PROBE, Waits, probe
from benchmarks.peers.starting import exact_cpu_seconds
from benchmarks.process import resident_mib, used_by
from benchmarks.targets import Odradek, OdradekWithControlPort, Running, Target, control_address

REST_S: Final = 1.0
"""Seconds from the first record, and from the first request to the control port, until memory is read."""
BEFORE_S: Final = 0.5
PROBED_S: Final = 2.0
FIRST_CALL: Final = "/v1/cluster"
FURTHER_CALLS: Final = ("/openapi.json", "/metrics")
"""Paths of the control port whose first response takes long, because it imports or builds something."""


class Start(NamedTuple):
    """Measurements of one start of a broker, with or without a control port."""

    ms: float
    """Milliseconds from the start of the process to the first acknowledged record."""
    cpu_ms: float
    rest_mib: float
    call_ms: float
    """Time of the first request to the control port; 0 without a control port."""
    asked_mib: float
    """Memory after the first requests to the control port; without one, memory right after ``rest_mib``."""
    other_cpu: float


def measure(run: Run) -> Iterator[Figure]:
    pairs = run.scaled(11, 2)
    targets: list[Target] = [Odradek(), OdradekWithControlPort()]
    for target in targets:  # the first start of a checkout compiles its modules
        start(target, run.scratch / f"compile-{target.name}")
    starts: dict[str, list[Start]] = {target.name: [] for target in targets}
    for number in range(pairs):
        # Alternate which target goes first.
        for target in targets if number % 2 else reversed(targets):
            starts[target.name].append(start(target, run.scratch / f"{target.name}-{number}"))
    without, with_port = starts.values()
    yield _ratio("start with a control port, of one without", "ms", without, with_port)
    yield _ratio("CPU until then with a control port, of one without", "cpu_ms", without, with_port)
    others = max(each.other_cpu for each in with_port)
    yield Figure(
        "resident memory at rest with a control port",
        median(each.rest_mib for each in with_port),
        "MiB",
        limit=34,
        baseline=f"without {median(each.rest_mib for each in without):.1f} MiB",
        other_cpu=others,
    )
    yield Figure(
        "resident memory after the first calls of the control port",
        median(each.asked_mib for each in with_port),
        "MiB",
        limit=45,
        note=f"cluster, OpenAPI document, metrics; the first takes {median(each.call_ms for each in with_port):.0f} ms",
        other_cpu=others,
    )
    rests, meanwhile = zip(
        *(neighbour(run.scratch / f"neighbour-{number}") for number in range(pairs)), strict=True
    )
    yield Figure(
        "longest wait while the first calls of the control port are served",
        median(max(each.own_ms) for each in meanwhile),
        "ms",
        limit=10,
        baseline=f"at rest {median(max(each.own_ms) for each in rests):.1f} ms",
        note=f"median of {pairs}, without the time in which broker or probe were queued for a core; with it"
        f" {median(max(each.all_ms) for each in meanwhile):.1f} ms, at rest"
        f" {median(max(each.all_ms) for each in rests):.1f} ms; a small Produce each ms",
        other_cpu=max(each.other_cpu for each in meanwhile),
    )


def start(target: Target, directory: Path) -> Start:
    """Start the target on an empty directory, and send the control port, if there is one, its first requests."""
    request = produce_frame("first", small_batch())
    call_ms = 0.0
    with target.running(directory) as running, used_by(running.pid) as usage:
        client = Client(running.connect())
        create_topic(client, "first")
        client.send(request)
        answer = bytes(client.receive())
        elapsed_ms = (time.perf_counter() - running.spawned_at) * 1000
        check_produced([answer])
        if isinstance(target, OdradekWithControlPort):
            control_address(running)  # work that the broker does after the first record counts too
        cpu_ms = exact_cpu_seconds(running.pid) * 1000
        time.sleep(REST_S)
        usage.end()
        rest_mib = resident_mib(running.pid)
        if isinstance(target, OdradekWithControlPort):
            began = time.perf_counter()
            ask(running, FIRST_CALL)
            call_ms = (time.perf_counter() - began) * 1000
            for path in FURTHER_CALLS:
                ask(running, path)
            time.sleep(REST_S)
        client.close()
        return Start(elapsed_ms, cpu_ms, rest_mib, call_ms, resident_mib(running.pid), usage.other_cpu)


def ask(running: Running, path: str) -> None:
    connection = http.client.HTTPConnection(*control_address(running))
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    connection.close()


def neighbour(directory: Path) -> tuple[Waits, Waits]:
    """Measure round trips of a Kafka client: before and during the first requests to the control port.

    Returns (round trips before, round trips during).
    """
    with OdradekWithControlPort().running(directory) as running:
        client = Client(running.connect())
        create_topic(client, PROBE)
        client.close()
        control_address(running)
        rest = probe(running, PROBED_S)
        caller = threading.Timer(
            BEFORE_S, lambda: [ask(running, path) for path in (FIRST_CALL, *FURTHER_CALLS)]
        )
        caller.start()
        during = probe(running, PROBED_S)
        caller.join()
        return rest, during


def _ratio(name: str, field: str, without: list[Start], with_port: list[Start]) -> Figure:
    ratios = [
        getattr(more, field) / getattr(less, field) for less, more in zip(without, with_port, strict=True)
    ]
    values = [median(getattr(each, field) for each in starts) for starts in (with_port, without)]
    return Figure(
        name,
        median(ratios),
        "",
        limit=1.1,
        baseline="{:.0f} ms with, {:.0f} ms without".format(*values),
        note=f"median of {len(ratios)} pairs, {min(ratios):.2f} to {max(ratios):.2f}",
        other_cpu=max(each.other_cpu for each in (*without, *with_port)),
    )
