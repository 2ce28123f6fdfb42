"""The CPU time of the broker's own code: requests passed to a connection of a broker in this process, without a socket.

``python -m benchmarks.inside produce-small`` prints the CPU time per request, the minimum of all rounds, so that other work
on the machine matters little. ``--profile`` prints the time by function. ``--traced`` also prints the time while the trace
is on, in rounds that alternate with rounds without it. System calls on the log are included, those on sockets are not:
`benchmarks.run` measures the whole.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import math
import pstats
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import uvloop

from benchmarks.client import (
    FIND_COORDINATOR,
    SIZE,
    WrongResponse,
    check_committed,
    check_ended,
    create_topic_frame,
    declared_transaction_frames,
    fetch_frame,
    find_coordinator_frame,
    init_producer_id_frame,
    large_batch,
    parse,
    produce_frame,
    small_batch,
    transaction_frames,
    whole_transaction_frames,
)
from benchmarks.client import INIT_PRODUCER_ID as INIT
from broker.cluster import Cluster
from broker.net.connection import Connection
from broker.net.holds import TURN_OVER
from lab.trace.trace import Trace
from server.options import parse as parse_options

ROUNDS: Final = 7
TOPIC: Final = "inside"
TRANSACTIONAL_ID: Final = "inside"
GROUP: Final = "inside"
WITH_OFFSETS: Final = {"transaction": whole_transaction_frames, "transaction-v1": declared_transaction_frames}


class Transport:
    """A transport that discards what the connection writes, except for the last response."""

    def __init__(self) -> None:
        self.last: list[bytes] = []
        self.writes = 0
        self.answered = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.writelines([data])

    def writelines(self, chunks: Iterable[bytes]) -> None:
        self.last = list(chunks)
        self.writes += 1
        self.answered.set()

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Inside:
    """A connection to which the benchmark passes bytes, in chunks of the size that a socket returns."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._connection = Connection(cluster.first.connections, cluster.first.listeners[0])
        self._answers = cluster.first.connections.answers
        self._transport = Transport()
        self._connection.connection_made(self._transport)  # type: ignore[arg-type]

    def feed(self, data: bytes) -> None:
        position, connection = 0, self._connection
        while position < len(data):
            buffer = connection.get_buffer(65536)
            length = min(len(buffer), len(data) - position)
            buffer[:length] = data[position : position + length]
            position += length
            connection.buffer_updated(length)
        if self._answers.writers:
            self._answers.end_turn()
        if connection._holds & TURN_OVER:
            connection._lift(TURN_OVER)

    async def ask(self, data: bytes) -> bytes:
        self._transport.answered.clear()
        self.feed(data)
        await asyncio.wait_for(self._transport.answered.wait(), 30)
        return self.last_answer()

    def last_answer(self) -> bytes:
        """The last response of those that the connection wrote in its last write."""
        written = b"".join(bytes(chunk) for chunk in self._transport.last)
        while len(written) > (end := SIZE.size + SIZE.unpack_from(written)[0]):
            written = written[end:]
        return written[SIZE.size :]

    @property
    def writes(self) -> int:
        """Number of writes of the connection to its socket."""
        return self._transport.writes

    def close(self) -> None:
        self._connection.connection_lost(None)


async def frames_of(kind: str, inside: Inside, number: int) -> Sequence[bytes]:
    if kind == "produce-small":
        return [produce_frame(TOPIC, small_batch())] * number
    if kind == "produce-idempotent":
        producer_id = parse(INIT, await inside.ask(init_producer_id_frame())).producer_id
        sequences = count()
        return [produce_frame(TOPIC, small_batch(producer_id, next(sequences))) for _ in range(number)]
    if kind == "commit":
        producer_id = await producer_id_of(TRANSACTIONAL_ID, inside)
        return [transaction_frames(TOPIC, TRANSACTIONAL_ID, producer_id, epoch) for epoch in range(number)]
    if kind in WITH_OFFSETS:
        producer_id = await producer_id_of(TRANSACTIONAL_ID, inside)
        await group_coordinator_of(GROUP, inside)
        make = WITH_OFFSETS[kind]
        return [make(TOPIC, GROUP, TRANSACTIONAL_ID, producer_id, at) for at in range(number)]
    if kind == "init":
        await producer_id_of(TRANSACTIONAL_ID, inside)
        return [init_producer_id_frame(f"{TRANSACTIONAL_ID}-{index}") for index in range(number)]
    large = produce_frame(TOPIC, large_batch())
    if kind == "produce-large":
        return [large] * (number // 40)
    await inside.ask(large)
    return [fetch_frame(TOPIC, 0)] * (number // 10)


async def producer_id_of(transactional_id: str, inside: Inside) -> int:
    """Request a producer id, and retry while ``__transaction_state``, which FindCoordinator creates, is loading."""
    for _ in range(100):
        await inside.ask(find_coordinator_frame(transactional_id))
        answer = parse(INIT, await inside.ask(init_producer_id_frame(transactional_id)))
        if not answer.error_code:
            return int(answer.producer_id)
        await asyncio.sleep(0.05)
    raise WrongResponse(f"InitProducerId: error {answer.error_code}")


async def group_coordinator_of(group: str, inside: Inside) -> None:
    """Wait until the group has a coordinator. FindCoordinator creates ``__consumer_offsets``."""
    for _ in range(100):
        answer = parse(FIND_COORDINATOR, await inside.ask(find_coordinator_frame(group, key_type=0)))
        if not answer.coordinators[0].error_code:
            return
        await asyncio.sleep(0.05)
    raise WrongResponse(f"FindCoordinator: error {answer.coordinators[0].error_code}")


@asynccontextmanager
async def started() -> AsyncIterator[Inside]:
    """A connection of a broker that has just started and has only the topic ``TOPIC``."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(parse_options(["--port", "0", "--data-dir", directory]))
        await cluster.start()
        inside = Inside(cluster)
        await inside.ask(create_topic_frame(TOPIC, 2))
        yield inside
        inside.close()
        await cluster.stop()


async def measure(kind: str, profile: bool, traced: bool) -> None:
    async with started() as inside:
        frames = await frames_of(kind, inside, ROUNDS * 2000)
        size = len(frames) // ROUNDS
        if profile:
            profiler = cProfile.Profile()
            profiler.runcall(round_us, inside, frames)
            pstats.Stats(profiler).sort_stats("tottime").print_stats(40)
        elif traced:
            print(
                f"{kind}: {in_turns(Trace(inside.cluster.calls, inside.cluster.clock), inside, frames)}",
                flush=True,
            )
        else:
            least = min(round_us(inside, frames[at * size : (at + 1) * size]) for at in range(ROUNDS))
            print(f"{kind}: {least:.1f} us per request", flush=True)
        if kind in ("commit", "transaction"):
            check_committed(inside.last_answer(), len(frames))
        elif kind == "transaction-v1":
            check_ended(inside.last_answer())


def round_us(inside: Inside, frames: Sequence[bytes]) -> float:
    start = time.process_time()
    for each in frames:
        inside.feed(each)
    return (time.process_time() - start) / len(frames) * 1e6


def in_turns(trace: Trace, inside: Inside, frames: Sequence[bytes]) -> str:
    """Measure rounds with the trace on and off, in alternation. Returns a line of text with the time of both."""
    least = {False: math.inf, True: math.inf}
    rounds = 2 * ROUNDS
    size = len(frames) // rounds
    for number in range(rounds):
        on = number % 2 == 1
        if on:
            trace.start()
        least[on] = min(least[on], round_us(inside, frames[number * size : (number + 1) * size]))
        trace.stop()
    more = least[True] - least[False]
    return f"{least[False]:.1f} us per request, {least[True]:.1f} us traced: {more:.1f} us more"


KINDS: Final = (
    "produce-small",
    "produce-idempotent",
    "commit",
    "transaction",
    "transaction-v1",
    "init",
    "produce-large",
    "fetch-large",
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inside", description=__doc__.splitlines()[0])
    parser.add_argument("kind", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; default: all")
    parser.add_argument("--profile", action="store_true", help="print the time by function")
    parser.add_argument("--traced", action="store_true", help="also measure with the trace on")
    options = parser.parse_args(arguments)
    for kind in options.kind or KINDS:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(measure(kind, options.profile, options.traced))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
