"""A failing environment: clients that do not read their responses, too few file descriptors, a log pipe without a reader.

In each case a second client sends one small Produce after another, and measures its longest wait and its responses.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.client import (
    FETCH,
    Client,
    create_topic,
    frame,
    large_batch,
    parse,
    produce_frame,
    small_batch,
)
from benchmarks.figures import Figure, Run
from benchmarks.process import resident_mib
from benchmarks.targets import ROOT, Running, free_port
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

SLOW_READERS: Final = 40
PARTITIONS: Final = 24
DESCRIPTORS: Final = 256
CONNECTIONS: Final = 600
GARBAGE: Final = 16_000
NEIGHBOUR_S: Final = 3.0
ANSWER_S_MAX: Final = 10.0


def measure(run: Run) -> Iterator[Figure]:
    yield from slow_readers(run)
    yield from used_up_descriptors(run)
    yield from unread_log(run)


def slow_readers(run: Run) -> Iterator[Figure]:
    """Measure a broker whose clients request 1 MiB of each of 24 partitions and do not read the responses."""
    with run.target.running(run.scratch / "slow-readers") as target, contextlib.ExitStack() as stack:
        client = Client(target.connect())
        create_topic(client, "large", PARTITIONS)
        create_topic(client, "small")
        for index in range(PARTITIONS):
            client.send(produce_frame("large", large_batch(), [index]))
            client.receive()
        before = resident_mib(target.pid)
        partitions = [
            FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
            for index in range(PARTITIONS)
        ]
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50 << 20,
            topics=[FetchTopic(topic="large", partitions=partitions)],
        )
        for _ in range(SLOW_READERS):
            reader = stack.enter_context(contextlib.closing(target.connect()))
            reader.sendall(frame(FETCH, request))
        waited, _ = neighbour(target)
        resident = resident_mib(target.pid)
    yield Figure(
        f"resident memory with {SLOW_READERS} readers that take nothing",
        resident,
        "MiB",
        limit=250,
        baseline=f"before them {before:.0f} MiB",
        note=f"each asked for {PARTITIONS} MiB; neighbour's longest wait {waited * 1000:.0f} ms",
    )


def used_up_descriptors(run: Run) -> Iterator[Figure]:
    """Measure a broker that may open 256 files and gets 600 connections, which are closed later."""
    directory = run.scratch / "descriptors"
    directory.mkdir(parents=True)
    output = os.open(directory / "log", os.O_WRONLY | os.O_CREAT)
    limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$0" "$@"']
    with _started(run, directory, output, limited) as target, contextlib.ExitStack() as stack:
        client = Client(target.connect())
        create_topic(client, "small", PARTITIONS)
        yield from _with_connections(target, client, stack)


def _with_connections(target: Running, client: Client, stack: contextlib.ExitStack) -> Iterator[Figure]:
    held = []
    for _ in range(CONNECTIONS):
        one = socket.socket()
        one.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            one.connect(("127.0.0.1", target.port))
        held.append(stack.enter_context(contextlib.closing(one)))
    time.sleep(1)
    refused = writes_refused(client)
    for one in held:
        one.close()
    time.sleep(1.5)
    yield Figure(
        f"partitions of {PARTITIONS} that take no write with {DESCRIPTORS} descriptors and {CONNECTIONS} connections",
        refused,
        "",
        limit=0,
        note=f"a second after the connections have gone: {writes_refused(Client(target.connect()))}",
    )


def writes_refused(client: Client) -> int:
    """Number of partitions in which a write gets an error."""
    batch = small_batch()
    refused = 0
    for index in range(PARTITIONS):
        client.send(produce_frame("small", batch, [index]))
        answer = parse((0, 9), bytes(client.receive()))
        refused += bool(answer.responses[0].partition_responses[0].error_code)
    return refused


def unread_log(run: Run) -> Iterator[Figure]:
    """Measure a broker whose standard output is a pipe without a reader, while 16,000 connections send garbage."""
    directory = run.scratch / "unread-log"
    directory.mkdir(parents=True)
    unread, output = os.pipe()
    with _started(run, directory, output, []) as target:
        client = Client(target.connect())
        create_topic(client, "small")
        sent, answered = 0, True
        deadline = time.monotonic() + 60
        while sent < run.scaled(GARBAGE, GARBAGE // 4) and answered and time.monotonic() < deadline:
            answered = garbage(target.port)
            sent += 1
        waited, count = neighbour(target) if answered else (ANSWER_S_MAX, 0)
        began = time.monotonic()
        target.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            target.process.wait(ANSWER_S_MAX)
        stopped_s = time.monotonic() - began
        ended = target.process.poll() is not None
    said = len(os.read(unread, 1 << 20))
    os.close(unread)
    yield Figure(
        "neighbour's longest wait with a log that nothing is read from",
        waited * 1000,
        "ms",
        limit=20,
        note=f"{sent:,} connections with garbage, {said:,} bytes of log; {count:,} answers; SIGTERM "
        + (f"ended it in {stopped_s:.1f} s" if ended else "was ignored"),
    )


@contextlib.contextmanager
def _started(run: Run, directory: Path, output: int, before: list[str]) -> Iterator[Running]:
    """A target started through the command ``before``, with the file descriptor ``output`` as standard output."""
    port = free_port()
    command = [*before, *run.target.command(port, directory / "data", {})]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, cwd=ROOT)
    os.close(output)
    try:
        yield Running(process, port, directory / "log", began)
    finally:
        process.kill()
        process.wait()


def garbage(port: int) -> bool:
    """Connect and send garbage. Returns whether the broker closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S_MAX) as one:
        try:
            one.sendall(b"GET / HTTP/1.1\r\n\r\n")
            return one.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


def neighbour(target: Running) -> tuple[float, int]:
    """Send one small Produce after another for three seconds.

    Returns (longest wait for a response in seconds, number of responses).
    """
    with contextlib.closing(target.connect()) as connection:
        connection.settimeout(ANSWER_S_MAX)
        client, longest, count = Client(connection), 0.0, 0
        data = produce_frame("small", small_batch())
        deadline = time.monotonic() + NEIGHBOUR_S
        while (began := time.monotonic()) < deadline:
            client.send(data)
            try:
                client.receive()
            except TimeoutError:
                return ANSWER_S_MAX, count
            longest = max(longest, time.monotonic() - began)
            count += 1
    return longest, count
