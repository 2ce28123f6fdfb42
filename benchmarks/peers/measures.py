"""The rows of the comparison, in the order in which they are measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from benchmarks.peers import clients, starting
from benchmarks.peers.cells import (
    Cell,
    Measure,
    Outcome,
    Row,
    Sample,
    megabytes_per_second,
    middle_ms,
    per_second,
    seconds,
)
from benchmarks.peers.load import load

PRODUCERS: Final = ("odradek", "kafka", "kfake", "mock", "null")
JAVA_PRODUCERS: Final = ("odradek", "kafka", "kfake", "null")
STORES: Final = ("odradek", "kafka", "kfake")
DURABLE: Final = ("odradek", "kafka", "kfake-disk")
PARTITIONS: Final = 4
RECORD_BYTES: Final = 1024
READ_TOPIC: Final = "read"


def raw(cell: Cell, measure: str, **told: Any) -> Outcome:
    """Run a measure of the compiled client, for the time that the volumes set."""
    broker = cell.broker
    times = {"warm": f"{cell.warm_s}s", "measure": f"{cell.measured_s}s"}
    return load(measure, broker.bootstrap, broker.pid, **({"topic": cell.label} | times | told))


def make_topic(cell: Cell, name: str, partitions: int) -> None:
    load("topic", cell.broker.bootstrap, cell.broker.pid, topic=name, count=partitions)


def drop_topic(cell: Cell, name: str) -> None:
    load("drop", cell.broker.bootstrap, cell.broker.pid, topic=name)


def librdkafka(cell: Cell, measure: str, **told: Any) -> Outcome:
    times = {"warm": cell.warm_s, "measure_s": cell.measured_s}
    return clients.librdkafka(measure, cell.broker, cell.label, **times, **told)


# -- requests and writing -----------------------------------------------------------------------------------------


def requests_64(cell: Cell) -> list[Sample]:
    return [per_second(raw(cell, "small", connections=64))]


def requests_1(cell: Cell) -> list[Sample]:
    return [per_second(raw(cell, "small", connections=1))]


def requests_librdkafka(cell: Cell) -> list[Sample]:
    make_topic(cell, cell.label, PARTITIONS)
    found = librdkafka(cell, "latency")
    drop_topic(cell, cell.label)
    return [per_second(found)]


def produce_librdkafka(cell: Cell) -> list[Sample]:
    make_topic(cell, cell.label, PARTITIONS)
    found = librdkafka(cell, "produce")
    drop_topic(cell, cell.label)
    return [per_second(found)]


def produce_raw(cell: Cell) -> list[Sample]:
    return [megabytes_per_second(raw(cell, "large", bytes=cell.volumes.pushed_bytes))]


def produce_java(cell: Cell) -> list[Sample]:
    make_topic(cell, cell.label, PARTITIONS)
    found = clients.java_produce(cell.broker, cell.label, cell.volumes.java_records, RECORD_BYTES)
    drop_topic(cell, cell.label)
    return [megabytes_per_second(found)]


# -- reading ------------------------------------------------------------------------------------------------------


FILLED: Final[set[tuple[int, str]]] = set()
"""(process id of the broker, topic) of the topics that consumers read."""


def filled(cell: Cell) -> None:
    broker = cell.broker
    if (broker.pid, READ_TOPIC) not in FILLED:
        load("fill", broker.bootstrap, broker.pid, topic=READ_TOPIC, bytes=cell.volumes.read_bytes)
        FILLED.add((broker.pid, READ_TOPIC))


def fetch_raw(cell: Cell) -> list[Sample]:
    filled(cell)
    return [megabytes_per_second(raw(cell, "fetch", topic=READ_TOPIC))]


def consume_librdkafka(cell: Cell) -> list[Sample]:
    filled(cell)
    return [megabytes_per_second(clients.librdkafka("consume", cell.broker, READ_TOPIC))]


def consume_java(cell: Cell) -> list[Sample]:
    filled(cell)
    # `fill` writes batches of 100 kB, which have 98 records of 1 kB.
    records = cell.volumes.read_bytes // 100_000 * 98
    return [megabytes_per_second(clients.java_consume(cell.broker, READ_TOPIC, records))]


def end_to_end(cell: Cell) -> list[Sample]:
    make_topic(cell, cell.label, 1)
    found = librdkafka(cell, "end-to-end")
    drop_topic(cell, cell.label)
    return [middle_ms(found)]


# -- share groups -------------------------------------------------------------------------------------------------


SHARE_BATCH_BYTES: Final = 16_384
"""The Java producer's default of ``batch.size``."""


def share_topic(cell: Cell, size_bytes: int, partitions: int) -> dict[str, Any]:
    """Fill a topic that share consumers read, once for each broker. Returns the client's options for reading it."""
    broker, name = cell.broker, f"share-{partitions}-of-{size_bytes}"
    if (broker.pid, name) not in FILLED:
        per_batch = SHARE_BATCH_BYTES // size_bytes
        total = cell.volumes.share_records // per_batch * SHARE_BATCH_BYTES
        options = {"topic": name, "partitions": partitions, "value": size_bytes}
        load("fill", broker.bootstrap, broker.pid, count=SHARE_BATCH_BYTES, bytes=total, **options)
        FILLED.add((broker.pid, name))
    return {"topic": name, "partitions": partitions, "value": size_bytes, "group": cell.label}


def share_raw(cell: Cell, size_bytes: int, partitions: int) -> list[Sample]:
    return [per_second(raw(cell, "share", **share_topic(cell, size_bytes, partitions)))]


def share_clients(cell: Cell, consume: Callable[..., Outcome]) -> list[Sample]:
    """Read with a real client, in a new share group that begins at the start of the log."""
    topic = share_topic(cell, 1000, 1)["topic"]
    load("share-group", cell.broker.bootstrap, cell.broker.pid, group=cell.label)
    return [per_second(consume(cell.broker, topic, cell.label, cell.volumes.share_records * 9 // 10))]


# -- transactions -------------------------------------------------------------------------------------------------


def transactional_topics(cell: Cell) -> None:
    make_topic(cell, cell.label, 2)
    make_topic(cell, f"{cell.label}-input", PARTITIONS)


def transactions_raw(cell: Cell, producers: int) -> list[Sample]:
    return [per_second(raw(cell, "transactions", connections=producers))]


def transactions_librdkafka(cell: Cell, producers: int) -> list[Sample]:
    transactional_topics(cell)
    return [per_second(librdkafka(cell, "transactions", producers=producers))]


def transactions_java(cell: Cell, producers: int) -> list[Sample]:
    transactional_topics(cell)
    return [
        per_second(
            clients.java_transactions(cell.broker, cell.label, producers, cell.warm_s, cell.measured_s)
        )
    ]


# -- scale --------------------------------------------------------------------------------------------------------


def ids(cell: Cell) -> list[Sample]:
    return [seconds(raw(cell, "ids", connections=16, count=cell.volumes.ids))]


def partitions(cell: Cell) -> list[Sample]:
    return [seconds(raw(cell, "partitions", count=cell.volumes.partitions))]


def idle(cell: Cell) -> list[Sample]:
    return [seconds(raw(cell, "idle", count=cell.volumes.idle))]


def transactional(kind: str, title: str, targets: tuple[str, ...], take: object) -> list[Measure]:
    def measure(producers: int) -> Measure:
        text = f"transactions, {title}, {producers} producer{'s' if producers > 1 else ''}"
        row = Row(f"transactions-{kind}-{producers}", text, "commits/s")
        return Measure("transactions", (row,), targets, lambda cell: take(cell, producers))  # type: ignore[operator]

    return [measure(1), measure(16)]


MEASURES: Final = (
    Measure(
        "start",
        (
            Row("start", "process start to first acknowledged record", "ms", False),
            Row("start-cpu", "CPU of the process until then", "ms", False),
            Row("memory", "resident memory at rest", "MiB", False),
        ),
        PRODUCERS,
        starting.start,
        starts_targets=True,
    ),
    Measure(
        "start",
        (
            Row("start-control", "start with a control port, to first acknowledged record", "ms", False),
            Row("start-control-cpu", "CPU of the process until then, with a control port", "ms", False),
            Row("memory-control", "resident memory at rest, with a control port", "MiB", False),
        ),
        ("odradek-control", "kafka"),
        starting.start,
        starts_targets=True,
    ),
    Measure(
        "requests",
        (Row("requests-64", "64 connections, one small Produce in flight on each", "requests/s"),),
        PRODUCERS,
        requests_64,
    ),
    Measure(
        "requests",
        (Row("requests-1", "one small Produce in flight, raw client", "requests/s"),),
        PRODUCERS,
        requests_1,
    ),
    Measure(
        "requests",
        (Row("requests-librdkafka", "one small Produce in flight, librdkafka", "requests/s"),),
        PRODUCERS,
        requests_librdkafka,
    ),
    Measure(
        "produce",
        (Row("produce-librdkafka", "produce, librdkafka, 1 KiB", "records/s"),),
        PRODUCERS,
        produce_librdkafka,
    ),
    Measure(
        "produce",
        (Row("produce-raw", "produce, raw client, batches of 1 MB", "MB/s", cpu_unit="s/GB"),),
        PRODUCERS,
        produce_raw,
    ),
    Measure(
        "produce",
        (Row("produce-java", "produce, Java's perf tool, 1 KiB", "MB/s", cpu_unit="s/GB"),),
        JAVA_PRODUCERS,
        produce_java,
    ),
    Measure("read", (Row("fetch-raw", "fetch, raw client", "MB/s", cpu_unit="s/GB"),), STORES, fetch_raw),
    Measure(
        "read",
        (Row("consume-librdkafka", "consume, librdkafka, 1 kB", "MB/s", cpu_unit="s/GB"),),
        STORES,
        consume_librdkafka,
    ),
    Measure(
        "read",
        (Row("consume-java", "consume, Java's perf tool, 1 kB", "MB/s", cpu_unit="s/GB"),),
        STORES,
        consume_java,
    ),
    Measure(
        "read",
        (Row("end-to-end", "produce to consume, librdkafka, p50", "ms", False),),
        STORES,
        end_to_end,
    ),
    *(
        Measure("share", (Row(name, f"one share consumer, {title}", "records/s"),), STORES, take)
        for name, title, take in (
            ("share-raw-100", "raw client, 100 B", partial(share_raw, size_bytes=100, partitions=1)),
            ("share-raw", "raw client, 1 kB", partial(share_raw, size_bytes=1000, partitions=1)),
            (
                "share-raw-4",
                "raw client, 1 kB, 4 partitions",
                partial(share_raw, size_bytes=1000, partitions=PARTITIONS),
            ),
            (
                "share-librdkafka",
                "librdkafka, 1 kB",
                partial(share_clients, consume=clients.librdkafka_share),
            ),
            ("share-java", "Java, 1 kB", partial(share_clients, consume=clients.java_share)),
        )
    ),
    *transactional("raw", "raw client", PRODUCERS, transactions_raw),
    *transactional("librdkafka", "librdkafka", PRODUCERS, transactions_librdkafka),
    *transactional("java", "Java", JAVA_PRODUCERS, transactions_java),
    Measure(
        "scale",
        (Row("ids", "10,000 transactional ids initialised over 16 connections", "s", False),),
        STORES,
        ids,
    ),
    Measure(
        "scale",
        (Row("idle", "500 connections opened, with ApiVersions", "s", False),),
        STORES,
        idle,
    ),
    Measure(
        "scale",
        (Row("partitions", "1,000 partitions created, until each has taken a record", "s", False),),
        STORES,
        partitions,
    ),
    Measure(
        "recovery",
        (Row("recovery", "kill -9 with 1.5 GB of log, start to first acknowledged record", "s", False, "s"),),
        DURABLE,
        starting.recover,
        starts_targets=True,
    ),
)
ROWS: Final = {row.name: row for measure in MEASURES for row in measure.rows}
GROUPS: Final = tuple(dict.fromkeys(measure.group for measure in MEASURES))
