"""The decision record: the state of a sink, encoded as offsets and metadata of its consumer group. Pure functions.

The record is one value. It is packed to bytes and split into chunks that fit into offset metadata. The chunks are committed
to several partitions of one topic in one transaction; the committed offset is the next batch to decide.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import enum
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.errors import OdradekError
from odradek.spark.sink.names import Label, SinkPlace, own_id, pool_id
from odradek.spark.wire.producer import Partition, ProducerId

# Kafka's default of offset.metadata.max.bytes.
CHUNK_LENGTH_MAX = 4096
# __consumer_offsets has 50 partitions by default; one of them is for the barrier (see store.py).
CHUNKS_MAX = 49
# The driver initialises at most this number of ids per batch; further tasks initialise their own.
POOL_MAX = 1000
# A task keeps its place in the pool for this number of batches without rows.
POOL_AGE_MAX = 8
FORMAT = 3
# Format 1 had the value of an option in place of ``decision``, and neither topics nor partitions.
_FORMAT_1 = 1
# Format 2 had only the number of a batch's rows, without digest and offsets, and no doubt.
_FORMAT_2 = 2
TOPIC_ID_BYTES = 16
_DIGEST_BYTES = 8
DIGEST_MODULUS = 1 << 8 * _DIGEST_BYTES


class UnreadableRecord(OdradekError):
    """The offsets contain no decision record of this version, or only a part of one."""


class TooManyTasks(OdradekError):
    """The list of a batch's transactions does not fit into the decision record."""


class Phase(enum.IntEnum):
    """The state of a sink between its plans and decisions.

    ``PLANNING``: batch ``next_batch`` is planned, and its tasks may already use their transactional ids. ``DECIDED``:
    batch ``next_batch - 1`` is decided, and its transactions may still be open.
    """

    PLANNING = 1
    DECIDED = 2


class Entry(NamedTuple):
    """A transaction that is part of a decision.

    ``pooled``: whether the transactional id belongs to the pool (``label`` is then the label of attempt 0).
    ``partitions``: the partitions that the transaction wrote to, empty if the record had no space for them.
    """

    label: Label
    pooled: bool
    producer: ProducerId
    partitions: tuple[Partition, ...] = ()


class Content(NamedTuple):
    """The values that distinguish two batches with the same number.

    ``rows``: the number of rows. ``digest``: the sum of the rows' hashes (`records.digest`), None if it was not computed.
    ``offsets``: a hash of the batch's file in the checkpoint's ``offsets``, None if the file could not be read.
    """

    rows: int = 0
    digest: int | None = None
    offsets: int | None = None


NO_CONTENT = Content()


class Answer(NamedTuple):
    """The option ``firstBatch`` (``<batch>@<plan>``): the next batch to write.

    The option is valid only while ``plan`` is the number of the plan of the last decision. So it resolves one
    error of the sink and no later error, because the next decision has another plan.
    """

    batch: int
    plan: int

    def __str__(self) -> str:
        return f"{self.batch}@{self.plan}"


@dataclass(frozen=True)
class Decided:
    """The transactions of a decided batch.

    While a later batch is planned, these are only the transactions that could not be committed: the record contains them
    until the user has decided how to continue.
    """

    run: int
    plan: int
    entries: tuple[Entry, ...]

    def transactions(self, name: str) -> list[tuple[str, ProducerId]]:
        """The transactional id and the producer of each transaction."""
        return [
            (
                pool_id(name, self.run, entry.label.task)
                if entry.pooled
                else own_id(name, self.run, self.plan, entry.label),
                entry.producer,
            )
            for entry in self.entries
        ]


@dataclass(frozen=True)
class SinkState:
    """The state of a sink, as its decision record stores it.

    ``plan``: the number of the plan, one more than that of the previous plan. ``run``: the number of the plan that
    named the pool's ids; a plan that finds an unfinished plan takes new names, because the processes of that plan may
    still run. ``query_id``: Spark's id of the query that made the last decision ("" before the first). ``decision``:
    the number of the plan that led to the last decision, 0 if there is none. ``pool``: the tasks that have an id in the
    pool, each with the number of batches since it last wrote rows (see ``aged``). ``swept_at_ms``: when a plan last
    looked for open transactions of lost attempts. ``topics``: the ids by name of the topics that the last decided batch
    was written to, empty if the record had no space. ``content`` and ``decided_at_ms`` (for display) describe that
    batch too. ``doubt``: why the sink may have had an earlier record that is lost; "" without evidence, and after the
    first decision.
    """

    run: int
    plan: int
    next_batch: int
    phase: Phase
    query_id: str = ""
    decision: int = 0
    pool: Mapping[int, int] | None = None
    decided: Decided | None = None
    swept_at_ms: int = 0
    content: Content = NO_CONTENT
    decided_at_ms: int = 0
    topics: Mapping[str, bytes] = field(default_factory=dict)
    doubt: str = ""

    def without_partitions(self) -> SinkState:
        """The state without the transactions' partitions, which are only for display."""
        if self.decided is None:
            return self
        bare = tuple(entry._replace(partitions=()) for entry in self.decided.entries)
        return dataclasses.replace(self, decided=dataclasses.replace(self.decided, entries=bare))

    @property
    def ages(self) -> Mapping[int, int]:
        return self.pool or {}


def aged(pool: Mapping[int, int], used: Iterable[int]) -> dict[int, int]:
    """The id pool after a batch: age 0 for the tasks in ``used``, which wrote rows; the ages of all others grow by one.

    Tasks with more than ``POOL_AGE_MAX``, and the oldest if there are more than ``POOL_MAX`` tasks, leave the pool. If
    the pool had only the last batch's tasks, a query that alternates between many and few tasks would need new ids for
    the tasks of each wide batch, and Kafka keeps a transactional id for seven days.
    """
    young = dict.fromkeys(used, 0)
    old = {task: age + 1 for task, age in pool.items() if task not in young and age < POOL_AGE_MAX}
    best = sorted((age, task) for task, age in {**old, **young}.items())[:POOL_MAX]
    return {task: age for age, task in sorted(best, key=lambda each: each[1])}


# -- bytes --------------------------------------------------------------------------------------------------------


def _varint(value: int, out: bytearray) -> None:
    assert value >= 0, value
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _zigzag(value: int, out: bytearray) -> None:
    _varint(value * 2 if value >= 0 else -value * 2 - 1, out)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            if self.at >= len(self.data):
                raise UnreadableRecord("the decision record ends too early")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def zigzag(self) -> int:
        value = self.varint()
        return value // 2 if value % 2 == 0 else -(value + 1) // 2

    def text(self) -> str:
        length = self.varint()
        return self.raw(length).decode()

    def digest(self) -> int | None:
        raw = self.raw(self.varint())
        return int.from_bytes(raw, "big") if raw else None

    def raw(self, length: int) -> bytes:
        raw = self.data[self.at : self.at + length]
        self.at += length
        return raw


def _text(text: str, out: bytearray) -> None:
    raw = text.encode()
    _varint(len(raw), out)
    out += raw


def pack(record: SinkState) -> bytes:
    """Encode a decision record as bytes; ``unpack`` decodes it. A transaction takes about 8 bytes."""
    out = bytearray((FORMAT, record.phase))
    numbers = (record.run, record.plan, record.next_batch, record.decision)
    for number in (*numbers, record.swept_at_ms, record.content.rows, record.decided_at_ms):
        _varint(number, out)
    _pack_digest(record.content.digest, out)
    _pack_digest(record.content.offsets, out)
    _text(record.doubt, out)
    _text(record.query_id, out)
    topics = sorted(record.topics)
    _varint(len(topics), out)
    for topic in topics:
        _text(topic, out)
        out += record.topics[topic]
    _varint(len(record.ages), out)
    before = 0
    for task, age in sorted(record.ages.items()):
        _varint(task - before, out)
        _varint(age, out)
        before = task
    _pack_decided(record.decided, {topic: index for index, topic in enumerate(topics)}, out)
    return bytes(out)


def _pack_digest(digest: int | None, out: bytearray) -> None:
    """Append to ``out`` the length of the digest (0 for None), then its bytes."""
    raw = b"" if digest is None else digest.to_bytes(_DIGEST_BYTES, "big")
    _varint(len(raw), out)
    out += raw


def _pack_decided(decided: Decided | None, topics: Mapping[str, int], out: bytearray) -> None:
    if decided is None:
        _varint(0, out)
        return
    _varint(len(decided.entries) + 1, out)
    _varint(decided.run, out)
    _varint(decided.plan, out)
    task = producer_id = 0
    for label, pooled, producer, partitions in sorted(decided.entries):
        # The transactional id of a pooled entry follows from the task alone.
        _varint(0 if pooled else label.renewals + 1, out)
        if not pooled:
            _varint(label.attempt_id, out)
        _varint(label.task - task, out)
        _zigzag(producer.producer_id - producer_id, out)
        _varint(producer.epoch, out)
        _pack_partitions(partitions, topics, out)
        task, producer_id = label.task, producer.producer_id


def _pack_partitions(partitions: Iterable[Partition], topics: Mapping[str, int], out: bytearray) -> None:
    """Append to ``out`` for each topic its number and a bitmap of its partitions."""
    bits: dict[int, int] = {}
    for topic, index in partitions:
        if topic in topics:
            bits[topics[topic]] = bits.get(topics[topic], 0) | 1 << index
    _varint(len(bits), out)
    for number, some in sorted(bits.items()):
        _varint(number, out)
        length = (some.bit_length() + 7) // 8
        _varint(length, out)
        out += some.to_bytes(length, "little")


def _unpack_partitions(reader: _Reader, topics: Sequence[str]) -> tuple[Partition, ...]:
    found = []
    for _ in range(reader.varint()):
        topic = topics[reader.varint()]
        bits = int.from_bytes(reader.raw(reader.varint()), "little")
        found += [(topic, index) for index in range(bits.bit_length()) if bits >> index & 1]
    return tuple(found)


def unpack(data: bytes) -> SinkState:
    """Decode a decision record that ``pack`` encoded. Raises ``UnreadableRecord`` for other bytes."""
    if len(data) < 2 or data[0] not in (_FORMAT_1, _FORMAT_2, FORMAT):
        raise UnreadableRecord("the decision record was written by another version of this sink")
    reader = _Reader(data)
    reader.at = 2
    run, plan, next_batch, decision, swept_at_ms, rows, decided_at_ms = (reader.varint() for _ in range(7))
    digest = offsets = None
    doubt = ""
    if data[0] == FORMAT:
        digest, offsets, doubt = reader.digest(), reader.digest(), reader.text()
    query_id = reader.text()
    topics = {}
    if data[0] != _FORMAT_1:
        topics = {reader.text(): reader.raw(TOPIC_ID_BYTES) for _ in range(reader.varint())}
    pool: dict[int, int] = {}
    task = 0
    for _ in range(reader.varint()):
        task += reader.varint()
        pool[task] = reader.varint()
    return SinkState(
        run=run,
        plan=plan,
        next_batch=next_batch,
        phase=Phase(data[1]),
        query_id=query_id,
        decision=0 if data[0] == _FORMAT_1 else decision,
        pool=pool,
        decided=_unpack_decided(reader, None if data[0] == _FORMAT_1 else list(topics)),
        swept_at_ms=swept_at_ms,
        content=Content(rows, digest, offsets),
        decided_at_ms=decided_at_ms,
        topics=topics,
        doubt=doubt,
    )


def _unpack_decided(reader: _Reader, topics: Sequence[str] | None) -> Decided | None:
    """Decode the transactions of a decided batch; None if the record has none.

    ``topics``: the names by topic number; None for format 1, which has no partitions.
    """
    count = reader.varint()
    if count == 0:
        return None
    run, plan = reader.varint(), reader.varint()
    entries = []
    task = producer_id = 0
    for _ in range(count - 1):
        kind = reader.varint()
        attempt_id = reader.varint() if kind else 0
        task += reader.varint()
        producer_id += reader.zigzag()
        label = Label(task, attempt_id, max(kind - 1, 0))
        producer = ProducerId(producer_id, reader.varint())
        partitions = () if topics is None else _unpack_partitions(reader, topics)
        entries.append(Entry(label, kind == 0, producer, partitions))
    return Decided(run, plan, tuple(entries))


def fitting(record: SinkState, chunks_max: int = CHUNKS_MAX) -> SinkState:
    """The decision record, shortened if it is too long for offset metadata.

    First the partitions of its transactions are left out, which are only for display. Then its topics are left out, so
    a replay cannot notice that one was created again. Raises ``TooManyTasks`` if the record is still too long.
    """
    for slimmer in (record, record.without_partitions()):
        with contextlib.suppress(TooManyTasks):
            to_chunks(slimmer, chunks_max)
            return slimmer
    slimmest = dataclasses.replace(record.without_partitions(), topics={})
    to_chunks(slimmest, chunks_max)
    return slimmest


# -- offsets ------------------------------------------------------------------------------------------------------


def to_chunks(record: SinkState, chunks_max: int = CHUNKS_MAX) -> list[str]:
    """Encode the decision record as strings that fit into offset metadata; ``TooManyTasks`` if there are too many."""
    packed = pack(record)
    packed += zlib.crc32(packed).to_bytes(4, "big")
    text = base64.b64encode(packed).decode()
    # "odradek/48/49/" is the longest head.
    length = CHUNK_LENGTH_MAX - 14
    parts = [text[start : start + length] for start in range(0, len(text), length)]
    if len(parts) > min(chunks_max, CHUNKS_MAX):
        tasks = len(record.decided.entries) if record.decided else 0
        raise TooManyTasks(
            f"A batch written by {tasks} tasks is too wide for one decision: its record would take {len(text):,} bytes, "
            f"and {min(chunks_max, CHUNKS_MAX) * length:,} fit; use fewer tasks (coalesce)."
        )
    return [f"odradek/{index}/{len(parts)}/{part}" for index, part in enumerate(parts)]


def is_chunk(metadata: str) -> bool:
    """Whether an offset's metadata is a chunk of a decision record."""
    return metadata.startswith("odradek/")


def from_chunks(offsets: Sequence[tuple[int, str]]) -> SinkState | None:
    """Decode the decision record from (offset, metadata) pairs, ordered as by ``to_chunks``; None without an offset.
    Raises ``UnreadableRecord`` if chunks are missing, belong to different records, or were written by another program."""
    if not offsets or offsets[0][0] < 0:
        return None
    first = offsets[0][1]
    head = first.split("/", 3)
    if not is_chunk(first) or len(head) != 4 or not head[2].isdecimal():
        raise UnreadableRecord(
            "the consumer group's offset is not a decision record: a consumer uses that group, so give the sink another name"
        )
    count = int(head[2])
    parts = []
    for index, (offset, metadata) in enumerate(offsets[:count]):
        prefix = f"odradek/{index}/{count}/"
        if offset != offsets[0][0] or not metadata.startswith(prefix):
            raise UnreadableRecord(f"chunk {index} of the decision record belongs to another record")
        parts.append(metadata.removeprefix(prefix))
    if len(parts) != count:
        raise UnreadableRecord(f"the decision record has {count} chunks, and {len(parts)} were read")
    try:
        packed = base64.b64decode("".join(parts), validate=True)
    except ValueError as error:
        raise UnreadableRecord(f"the decision record cannot be decoded: {error}") from None
    if zlib.crc32(packed[:-4]) != int.from_bytes(packed[-4:], "big"):
        raise UnreadableRecord("the decision record has a wrong checksum")
    record = unpack(packed[:-4])
    if record.next_batch != offsets[0][0]:
        raise UnreadableRecord("the next batch in the decision record differs from the offset of its commit")
    return record


_BINDING = "odradek-sink"


def to_binding(sink: SinkPlace) -> str:
    """The offset metadata that names the sink which has decided the first batch of a query."""
    return json.dumps([_BINDING, *sink])


def from_bindings(offsets: Iterable[tuple[int, str]]) -> SinkPlace | None:
    """The sink named by the (offset, metadata) pairs of the query's group; None if no pair names one."""
    for _, metadata in offsets:
        with contextlib.suppress(ValueError):
            binding, name, topic = json.loads(metadata)
            if binding == _BINDING:
                return SinkPlace(name, topic)
    return None
