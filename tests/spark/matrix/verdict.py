"""Compare the content of a topic with the expected content. Only ``look`` and ``written`` use a broker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from odradek.deadlines import stretched
from tests.support.clients import PATIENCE, eventually, place_of, value_of
from tests.support.deadlines import HANG_S

Row = tuple[bytes, bytes]
ATTEMPT_S = stretched(2.0)
"""Timeout of one request for end offsets, which is sent again if a partition has no leader."""
MOVED = (
    # librdkafka's code for: none of the partitions has a leader at this moment.
    KafkaError._NOENT,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.REQUEST_TIMED_OUT,
)


@dataclass(frozen=True)
class Found:
    """The content of an output topic after its query has finished."""

    rows: tuple[Row, ...]
    """Rows that a read_committed reader sees, partition by partition, in offset order."""
    open: Mapping[int, tuple[int, int]]
    """(last stable offset, high watermark) of each partition where they differ: it has an open transaction."""
    written: int
    """Number of offsets in the output topic: records, aborted records and markers."""


@dataclass(frozen=True)
class Verdict:
    lost: int
    duplicated: int
    unexpected: int
    reordered: int
    """Number of records that directly follow a record of the same key that was sent after them."""
    complaints: tuple[str, ...]


def judge(sent: Iterable[Row], found: Found, *, in_order: bool = False) -> Verdict:
    """Compare the content of an output topic with the rows that were sent, and return the verdict.

    Each value of each key must occur exactly once, and no transaction may be open. With ``in_order``, the records
    of a key must be in the order in which they were sent.
    """
    wanted, got = _by_key(sent), _by_key(found.rows)
    lost = {key: Counter(values) - Counter(got.get(key, ())) for key, values in wanted.items()}
    more = {key: Counter(values) - Counter(wanted.get(key, ())) for key, values in got.items()}
    duplicated = {
        key: Counter({v: n for v, n in each.items() if v in wanted.get(key, ())})
        for key, each in more.items()
    }
    unexpected = {
        key: Counter({v: n for v, n in each.items() if v not in wanted.get(key, ())})
        for key, each in more.items()
    }
    reordered = _reordered(wanted, got) if in_order else {}
    complaints = [
        *_said("lost", lost),
        *_said("duplicated", duplicated),
        *_said("unexpected", unexpected),
        *_said("reordered", reordered),
        *(
            f"partition {partition}: a transaction is open, read_committed ends at {stable} of {end}"
            for partition, (stable, end) in sorted(found.open.items())
        ),
    ]
    return Verdict(_total(lost), _total(duplicated), _total(unexpected), _total(reordered), tuple(complaints))


def _total(kind: Mapping[bytes, Counter[bytes]]) -> int:
    return sum(each.total() for each in kind.values())


def _by_key(rows: Iterable[Row]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for key, value in rows:
        found[key].append(value)
    return found


def _reordered(
    wanted: Mapping[bytes, list[bytes]], got: Mapping[bytes, list[bytes]]
) -> dict[bytes, Counter[bytes]]:
    wrong: dict[bytes, Counter[bytes]] = {}
    for key, values in got.items():
        at = {value: number for number, value in enumerate(wanted.get(key, ()))}
        known = [value for value in values if value in at]
        late = [after for before, after in pairwise(known) if at[after] < at[before]]
        wrong[key] = Counter(late)
    return wrong


def _said(what: str, kinds: Mapping[bytes, Counter[bytes]]) -> list[str]:
    wrong = {key: values for key, values in sorted(kinds.items()) if values}
    if not wrong:
        return []
    some = "; ".join(
        f"{key.decode()}: {', '.join(f'{value.decode()} x{count}' for value, count in sorted(values.items())[:5])}"
        for key, values in list(wrong.items())[:5]
    )
    return [f"{what}: {sum(values.total() for values in wrong.values())} of {len(wrong)} keys ({some})"]


# ---- with a broker


def look(bootstrap_servers: str, topic: str) -> Found:
    """Read the topic to its end with read_committed, and find open transactions."""
    admin = AdminClient({**PATIENCE, "bootstrap.servers": bootstrap_servers})
    partitions = sorted(admin.list_topics(topic, timeout=HANG_S).topics[topic].partitions)
    ends = _ends(admin, topic, partitions, IsolationLevel.READ_UNCOMMITTED)
    stable = _ends(admin, topic, partitions, IsolationLevel.READ_COMMITTED)
    return Found(
        _read(bootstrap_servers, topic, stable),
        {each: (stable[each], ends[each]) for each in partitions if stable[each] != ends[each]},
        sum(ends.values()),
    )


def _ends(admin: AdminClient, topic: str, partitions: Iterable[int], level: IsolationLevel) -> dict[int, int]:
    asked = {TopicPartition(topic, each): OffsetSpec.latest() for each in partitions}

    def answers() -> dict[int, int] | None:
        try:
            found = admin.list_offsets(asked, isolation_level=level, request_timeout=ATTEMPT_S)
            return {asked.partition: int(future.result().offset) for asked, future in found.items()}
        except KafkaException as error:
            if error.args[0].code() not in MOVED:
                raise
            # The admin client asks the leaders in its cache. Listing the topic updates the cache.
            admin.list_topics(topic, timeout=HANG_S)
            return None

    return eventually(answers, f"the ends of {topic} are known") or {}


def written(admin: AdminClient, topic: str, partitions: int) -> int:
    """Number of offsets of a topic, committed or not."""
    return sum(_ends(admin, topic, range(partitions), IsolationLevel.READ_UNCOMMITTED).values())


def _read(bootstrap_servers: str, topic: str, ends: Mapping[int, int]) -> tuple[Row, ...]:
    consumer = Consumer(
        {
            **PATIENCE,
            "bootstrap.servers": bootstrap_servers,
            "group.id": "verdict",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in ends])
    rows: dict[int, list[Row]] = {each: [] for each in ends}

    def at_the_end() -> bool:
        for message in consumer.consume(1000, 0.05):
            if message.error() is None:
                rows[place_of(message)[1]].append((message.key() or b"", value_of(message)))
        # Positions also pass markers, which are not visible as records.
        return all(each.offset >= ends[each.partition] for each in consumer.position(consumer.assignment()))

    try:
        eventually(lambda: not any(ends.values()) or at_the_end(), f"{topic} is read to its end")
    finally:
        consumer.close()
    return tuple(row for each in sorted(rows) for row in rows[each])
