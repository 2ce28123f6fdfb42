"""The time from starting a process to its first acknowledged record, with an empty directory and after a kill."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from benchmarks.client import (
    CREATE_TOPICS,
    PRODUCE,
    Client,
    create_topic_frame,
    find_group_coordinator,
    frame,
    parse,
    produce_frame,
    small_batch,
)
from benchmarks.peers.cells import Cell, Sample
from benchmarks.peers.load import LoadFailed, load
from benchmarks.process import cpu_seconds, resident_mib, used_by
from benchmarks.targets import START_TIMEOUT_S
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

METADATA: Final = (3, 9)
TOPIC: Final = "first"
RETRY_S: Final = 0.001
WITHOUT_INTERNAL_TOPICS: Final = ("mock", "null")
BATCH_BYTES: Final = 1_000_000


def start(cell: Cell) -> list[Sample]:
    """Measure the time and the CPU time from the start of a process to the first acknowledged record.

    Also measures the memory of the process some seconds later.
    """
    topics = [MetadataRequestTopic(name=TOPIC)]
    # The mock creates topics only when it gets a Metadata request for them.
    create = frame(METADATA, MetadataRequest(topics=topics)), METADATA
    if cell.target.name != "mock":
        create = create_topic_frame(TOPIC), CREATE_TOPICS
    produce = produce_frame(TOPIC, small_batch())
    with cell.target.running(cell.scratch / cell.label) as broker, used_by(broker.pid) as usage:
        client = Client(broker.connect())
        persistently(client, *create)
        persistently(client, produce, PRODUCE)
        elapsed_s = time.perf_counter() - broker.spawned_at
        cpu_s = exact_cpu_seconds(broker.pid)
        if cell.target.name not in WITHOUT_INTERNAL_TOPICS:
            find_group_coordinator(client, "first")
        time.sleep(cell.volumes.rest_s)
        memory_mib = resident_mib(broker.pid)
        client.close()
    return [
        Sample(elapsed_s * 1000, usage.other_cpu),
        Sample(cpu_s * 1000, usage.other_cpu),
        Sample(memory_mib, usage.other_cpu),
    ]


def recover(cell: Cell) -> list[Sample]:
    """Kill a node that has written a log, start it again, and measure until each partition has a new record."""
    directory = cell.scratch / cell.label
    with cell.target.running(directory) as broker:
        Client(broker.connect()).close()
        size = cell.volumes.recovered_bytes if cell.round else cell.volumes.recovered_bytes // 100
        written = load("fill", broker.bootstrap, broker.pid, topic=TOPIC, bytes=size, count=BATCH_BYTES)
        broker.process.kill()
        broker.process.wait()
    produce = produce_frame(TOPIC, small_batch(), range(4))
    with cell.target.running(directory) as broker, used_by(broker.pid) as usage:
        client = Client(broker.connect())
        answer = persistently(client, produce, PRODUCE)
        elapsed_s = time.perf_counter() - broker.spawned_at
        usage.end()
        client.close()
    kept = sum(each.base_offset for each in answer.responses[0].partition_responses)
    if kept < written["records"]:
        raise LoadFailed(
            f"{written['records']} records were acknowledged before the kill, {kept} are in the log after it"
        )
    return [
        Sample(
            elapsed_s,
            usage.other_cpu,
            cpu=usage.target_cpu_s,
            note={"log_bytes": written["bytes"]},
        )
    ]


def exact_cpu_seconds(pid: int) -> float:
    """CPU seconds of the living threads, to the nanosecond, or of all threads in 10 ms steps if that is more."""
    nanoseconds = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            nanoseconds += int((thread / "schedstat").read_text("ascii").split()[0])
        except OSError:
            continue
    return max(nanoseconds / 1e9, cpu_seconds(pid))


def persistently(client: Client, request: bytes, api: tuple[int, int]) -> Any:
    """The response without an error. Retries for a while, because a target may not be ready yet."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        client.send(request)
        answer = parse(api, bytes(client.receive()))
        codes = error_codes(answer, api)
        if not any(codes):
            return answer
        if time.monotonic() > deadline:
            raise LoadFailed(f"API {api[0]} after a start: errors {codes}")
        time.sleep(RETRY_S)


def error_codes(answer: Any, api: tuple[int, int]) -> list[int]:
    if api == PRODUCE:
        return [each.error_code for topic in answer.responses for each in topic.partition_responses]
    return [topic.error_code for topic in answer.topics]
