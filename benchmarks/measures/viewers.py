"""The cost of observers: three busy nodes with ten thousand partitions, with and without a viewer of the page or a scraper.

The viewer reads both event streams that the web page of the control port reads: all summaries, and the trace. Rounds
with and without a viewer alternate.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from benchmarks.client import Client
from benchmarks.figures import WARM_UP_S, Figure, Run
from benchmarks.process import resident_mib, used_by
from benchmarks.targets import Odradek, Running
from broker.cluster import Cluster
from lab.control.ports import Control
from lab.control.wiring import control_of
from lab.views.ports import BatchPosition
from server.options import parse

NODES: Final = 3
ROUNDS: Final = 6
PRODUCERS: Final = 16
TOPIC: Final = "output"
PATIENCE_S: Final = 30
SHOWN: Final = f"show=cluster,transactions,faults,groups,partitions&batches={TOPIC}-0,{TOPIC}-1&count=100"
SHARE_MIN: Final = 0.8
TURN_MS_MAX: Final = 5
SCRAPE_EVERY_S: Final = 1


class Watched(Odradek):
    """The broker with three nodes, many partitions and a control port."""

    def __init__(self, partitions: int) -> None:
        self.control_port = 0
        self._partitions = partitions

    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]:
        self.control_port = port + NODES  # the nodes have consecutive ports
        topics = (f"{TOPIC}:{PRODUCERS}", f"many:{self._partitions - PRODUCERS}")
        options = [option for topic in topics for option in ("--topic", topic)]
        here = [*super().command(port, data, settings), "--nodes", str(NODES), *options]
        return [*here, "--control-port", str(self.control_port)]

    def get(self, path: str) -> Any:
        """Send a GET to the control port. Returns the HTTP response, whose body is not read yet."""
        return urllib.request.urlopen(f"http://127.0.0.1:{self.control_port}{path}")


def measure(run: Run) -> Iterator[Figure]:
    partitions = run.scaled(9_990, 990)  # one CreateTopics request; the internal topics have a hundred more
    yield from turns(partitions)
    watched = Watched(partitions)
    with watched.running(run.scratch / "viewers") as target:
        Client(target.connect()).close()
        with committing(target) as committed:
            time.sleep(WARM_UP_S)
            yield from shares(watched, target, committed, run.scaled(10, 3))


@contextmanager
def committing(target: Running) -> Iterator[Callable[[], int]]:
    """Run producers that commit one transaction after another. Yields a function that returns the number of commits."""
    import confluent_kafka

    over = threading.Event()
    counts = [0] * PRODUCERS

    def commit(number: int) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": target.bootstrap,
                "transactional.id": f"worker-{number}",
                "linger.ms": 0,
                # A transaction that begins before all markers of the last one are written is refused and retried.
                "retry.backoff.ms": 5,
                "log_level": 0,
            }
        )
        producer.init_transactions(PATIENCE_S)
        while not over.is_set():
            producer.begin_transaction()
            producer.produce(TOPIC, value=b"record", partition=number)
            producer.commit_transaction(PATIENCE_S)
            counts[number] += 1

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: sum(counts)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def shares(
    watched: Watched, target: Running, committed: Callable[[], int], round_s: float
) -> Iterator[Figure]:
    """Commits per second with each kind of observer, as a share of the commits per second without an observer."""
    before_mib = resident_mib(target.pid)
    for name, looking in (
        ("a viewer of all views of the page", viewer),
        ("a scraper of /metrics each second", scraper),
    ):
        rates: dict[bool, list[float]] = {False: [], True: []}
        other_cpu = 0.0
        for number in range(ROUNDS):
            seen = bool(number % 2)
            with ExitStack() as stack:
                if seen:
                    stack.enter_context(looking(watched))
                with used_by(target.pid) as usage:
                    before = committed()
                    time.sleep(round_s)
                    count = committed() - before
            rates[seen].append(count / usage.wall_s)
            other_cpu = max(other_cpu, usage.other_cpu)
        alone, watched_by = statistics.median(rates[False]), statistics.median(rates[True])
        yield Figure(
            f"transactions per second with {name}, of those without",
            watched_by / alone,
            "",
            limit=SHARE_MIN,
            higher_is_better=True,
            baseline=f"{alone:.0f} 1/s without, {watched_by:.0f} 1/s with",
            note=f"{NODES} nodes, memory {before_mib:.0f} MiB before, {resident_mib(target.pid):.0f} MiB after",
            other_cpu=other_cpu,
        )


@contextmanager
def viewer(watched: Watched) -> Iterator[None]:
    """During the block, read both event streams of the web page (summaries, trace) as fast as they come."""
    post = urllib.request.Request(
        f"http://127.0.0.1:{watched.control_port}/v1/trace/start",
        data=b"{}",
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(post).read()
    streams = [
        watched.get(f"/v1/watch?{SHOWN}"),
        watched.get("/v1/trace/follow?per_second=50"),
    ]
    for stream in streams:
        threading.Thread(target=_drain, args=(stream,), daemon=True).start()
    try:
        yield
    finally:
        for stream in streams:
            stream.fp.raw._sock.shutdown(2)
        post.full_url = post.full_url.replace("start", "stop")
        urllib.request.urlopen(post).read()


@contextmanager
def scraper(watched: Watched) -> Iterator[None]:
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(SCRAPE_EVERY_S):
            watched.get("/metrics").read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _drain(stream: Any) -> None:
    try:
        while stream.read(65536):
            pass
    except (OSError, ValueError, HTTPException):
        pass


# -- the longest turn of the event loop --------------------------------------------------------------------------


def turns(partitions: int) -> Iterator[Figure]:
    """The longest turn of the event loop for each view, in an otherwise idle cluster in this process."""
    with tempfile.TemporaryDirectory() as folder:
        for name, longest_ms in asyncio.run(_turns(partitions, Path(folder))).items():
            yield Figure(
                f"longest turn of the event loop: {name}",
                longest_ms,
                "ms",
                limit=TURN_MS_MAX,
                note=f"{NODES} nodes, {partitions:,} partitions; the least of five looks",
            )


async def _turns(partitions: int, folder: Path) -> dict[str, float]:
    arguments = [
        "--nodes",
        str(NODES),
        "--port",
        "0",
        "--data-dir",
        str(folder),
        "--topic",
        f"many:{partitions}",
    ]
    cluster = Cluster(parse(arguments, {}))
    await cluster.start()
    control = control_of(cluster)
    found: dict[str, float] = {}
    try:
        for name, look in _looks(control).items():
            await look()
            found[name] = min([await _longest_turn_ms(look) for _ in range(5)])
    finally:
        await cluster.stop()
    return found


def _looks(control: Control) -> dict[str, Callable[[], Awaitable[object]]]:
    views = control.views
    return {
        "cluster": views.cluster,
        "transactions": views.transactions,
        "partitions": lambda: views.partitions(None, 0, 100),
        "groups": views.groups,
        "batches": lambda: views.batches(BatchPosition("many", 0)),
        "metrics": control.metrics.exposition,
    }


async def _longest_turn_ms(look: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds of the longest turn of the event loop while ``look`` runs, as another coroutine sees it."""
    longest = 0.0
    looking = asyncio.ensure_future(look())
    at = time.perf_counter()
    while not looking.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, at = max(longest, now - at), now
    looking.result()
    return longest * 1000
