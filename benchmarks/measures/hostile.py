"""The longest wait of a client while another one sends requests that are small on the wire and expensive to read.

The probe sends a small Produce to its own topic each millisecond. The hostile client repeats its request as soon as it has
the response, or after its connection is closed.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from statistics import quantiles
from typing import Final

import cramjam
from google_crc32c import value as crc32c

from benchmarks.client import (
    CREATE_TOPICS,
    Client,
    WrongResponse,
    check_produced,
    create_topic,
    frame,
    now_ms,
    produce_frame,
    small_batch,
)
from benchmarks.figures import Figure, Run
from benchmarks.process import used_by
from benchmarks.targets import Running
from protocol.batch import HEADER_BYTES, build_batch
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.list_transactions import ListTransactionsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.record import encode_record

PROBE: Final = "probe"
COMPACTED: Final = "compacted"
RECOMPRESSED: Final = "recompressed"
SEARCHED: Final = "searched"
EVERY_S: Final = 0.001
LIMIT_MS: Final = 20.0
METADATA: Final = (3, 12)
LIST_OFFSETS: Final = (2, 7)
LIST_TRANSACTIONS: Final = (66, 2)
LEAST_RECORD: Final = b"\x0c\0\0\0\0\1\0"
NONE, GZIP, ZSTD = 0, 1, 4
LATER_MS: Final = 60_000
"""Milliseconds by which the batch header's maximum timestamp is later than the timestamp of any record."""


def measure(run: Run) -> Iterator[Figure]:
    with run.target.running(run.scratch / "hostile", {"auto.create.topics.enable": "false"}) as target:
        client = Client(target.connect())
        create_topic(client, PROBE)
        _create(client, COMPACTED, {"cleanup.policy": "compact"})
        _create(client, RECOMPRESSED, {"compression.type": "lz4"})
        later_ms = _store_records_to_search(client)
        seconds = run.scaled(10, 4)
        rest = _probe(target, seconds, None)[0]
        for what, hostile in _hostile(run, later_ms):
            waits, answered, cpu = _probe(target, seconds, hostile)
            yield Figure(
                f"longest wait beside {what}",
                max(waits),
                "ms",
                limit=LIMIT_MS,
                baseline=f"at rest {max(rest):.1f} ms",
                note=f"{len(hostile):,} bytes, {answered} answered; {len(waits):,} round trips, {_spread(waits)}",
                other_cpu=cpu,
            )
        client.close()


def _hostile(run: Run, later_ms: int) -> Iterator[tuple[str, bytes]]:
    run.say("building the requests")
    million = LEAST_RECORD * 1_000_000
    deltas = b"".join(encode_record(delta, 0, b"", None) for delta in range(100_000))
    huge = encode_record(0, 0, b"k", bytes(100 << 20))
    yield "2,000,000 records in a batch", produce_frame(COMPACTED, _batch(million * 2, 2_000_000, ZSTD))
    yield "1,000,000 records in a batch", produce_frame(COMPACTED, _batch(million, 1_000_000, ZSTD))
    yield "100,000 valid records, not compressed", produce_frame(COMPACTED, _batch(deltas, 100_000, NONE))
    yield (
        "100,000 valid records, recompressed with another codec",
        produce_frame(RECOMPRESSED, _batch(deltas, 100_000, ZSTD)),
    )
    yield "100 MiB in one record, zstd", produce_frame(COMPACTED, _batch(huge, 1, ZSTD))
    yield "100 MiB in one record, gzip", produce_frame(COMPACTED, _batch(huge, 1, GZIP))
    yield "100 MiB, recompressed with another codec", produce_frame(RECOMPRESSED, _batch(huge, 1, ZSTD))
    searched = ListOffsetsTopic(
        name=SEARCHED, partitions=[ListOffsetsPartition(partition_index=0, timestamp=later_ms)]
    )
    yield (
        "a search by time in 1,000,000 records",
        frame(LIST_OFFSETS, ListOffsetsRequest(replica_id=-1, topics=[searched])),
    )
    for count in (100_000, 10_000):
        topics = [MetadataRequestTopic(name=f"no-such-topic-{number:06d}") for number in range(count)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
        yield f"Metadata of {count:,} unknown names", frame(METADATA, request)
    for count in (60_000, 10_000, 4):
        # These bytes are built without our encoder, which refuses a string of this length.
        yield f"a pattern of {count:,} Unicode classes", _list_transactions(rb"\pL" * count)


def _store_records_to_search(client: Client) -> int:
    """Write a batch whose header claims a later timestamp than its records have, so that a search reads all records.

    Returns the timestamp in the header.
    """
    later_ms = now_ms() + LATER_MS
    create_topic(client, SEARCHED)
    stored = bytearray(_batch(LEAST_RECORD * 1_000_000, 1_000_000, ZSTD))
    struct.pack_into(">q", stored, 35, later_ms)
    struct.pack_into(">I", stored, 17, crc32c(bytes(stored[21:])))
    client.send(produce_frame(SEARCHED, bytes(stored)))
    check_produced([bytes(client.receive())])
    return later_ms


def _batch(body: bytes, count: int, codec: int) -> bytes:
    """A batch with these bytes as records, valid or not."""
    compress: dict[int, Callable[[bytes], bytes]] = {
        NONE: bytes,
        GZIP: lambda plain: bytes(cramjam.gzip.compress(plain)),
        ZSTD: lambda plain: bytes(cramjam.zstd.compress(plain)),
    }
    raw = bytearray(build_batch([(now_ms(), b"k", b"v")])[:HEADER_BYTES]) + compress[codec](body)
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">hi", raw, 21, codec, count - 1)
    struct.pack_into(">i", raw, 57, count)
    struct.pack_into(">I", raw, 17, crc32c(bytes(raw[21:])))
    return bytes(raw)


def _list_transactions(pattern: bytes) -> bytes:
    mark = "pattern-stands-here"
    whole = frame(LIST_TRANSACTIONS, ListTransactionsRequest(transactional_id_pattern=mark))
    before, after = whole[4:].split(bytes((len(mark) + 1,)) + mark.encode())
    size, length = len(pattern) + 1, bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    body = before + bytes(length) + pattern + after
    return struct.pack(">i", len(body)) + body


def _create(client: Client, name: str, configs: dict[str, str]) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    answer = client.ask(CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    if answer.topics[0].error_code:
        raise WrongResponse(f"CreateTopics: error {answer.topics[0].error_code}")


def _probe(target: Running, seconds: float, hostile: bytes | None) -> tuple[list[float], int, float]:
    """(milliseconds of each round trip, number of responses to hostile requests, cores that other processes used)."""
    client = Client(target.connect())
    small = produce_frame(PROBE, small_batch())
    waits: list[float] = []
    answered = 0
    over = threading.Event()

    def attack(data: bytes) -> None:
        nonlocal answered
        while not over.is_set():
            with target.connect() as connection:
                connection.sendall(data)
                while _took_answer(connection) and not over.is_set():
                    answered += 1
                    connection.sendall(data)
            over.wait(0.01)

    thread = threading.Thread(target=attack, args=(hostile,)) if hostile is not None else None
    with used_by(target.pid) as usage:
        if thread is not None:
            thread.start()
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            client.send(small)
            client.receive()
            took = time.perf_counter() - began
            waits.append(took * 1000)
            if took < EVERY_S:
                time.sleep(EVERY_S - took)
        over.set()
        if thread is not None:
            thread.join()
    client.close()
    return waits, answered, usage.other_cpu


def _took_answer(connection: socket.socket) -> bool:
    """Read and discard one response. Returns False if the connection was closed instead."""
    try:
        head = connection.recv(4)
        left = struct.unpack(">i", head)[0] if len(head) == 4 else -1
        while left > 0:
            data = connection.recv(min(left, 1 << 16))
            if not data:
                return False
            left -= len(data)
    except OSError:
        return False
    return left == 0


def _spread(waits: list[float]) -> str:
    cuts = quantiles(waits, n=1000)
    return f"p50 {cuts[499]:.2f} ms, p99 {cuts[989]:.1f} ms, p99.9 {cuts[998]:.1f} ms"
