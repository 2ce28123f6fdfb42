"""The decision record: what a sink remembers, as the offset and metadata of its consumer group. Pure.

The record is one value. It is packed, cut into chunks that Kafka takes as offset metadata, and committed to several
partitions of one topic in one transaction; the offset is the next batch to decide.
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
# __consumer_offsets has 50 partitions by default; one of them is the barrier (see store.py).
CHUNKS_MAX = 49
# The driver initialises at most so many ids per batch; tasks beyond them do it themselves.
POOL_MAX = 1000
# A task keeps its place in the pool for so many batches in which it has no rows.
POOL_AGE_MAX = 8
FORMAT = 3
# It had an option's value in the place of ``decision``, and neither topics nor partitions.
_FORMAT_1 = 1
# It had of a batch's content only the number of its rows, and no doubt.
_FORMAT_2 = 2
TOPIC_ID_BYTES = 16
_DIGEST_BYTES = 8
DIGEST_MODULUS = 1 << 8 * _DIGEST_BYTES


class UnreadableRecord(OdradekError):
    """What stands in the offsets is not a decision record of this version, or only a part of one."""


class TooManyTasks(OdradekError):
    """The list of a batch's transactions does not fit into the decision record."""


class Phase(enum.IntEnum):
    """``PLANNING``: a batch is planned, ids may have been given out. ``DECIDED``: batch ``next_batch - 1`` is decided, its
    transactions may still be open."""

    PLANNING = 1
    DECIDED = 2


class Entry(NamedTuple):
    """A transaction that a decision counts on. ``pooled``: its id is of the pool (then ``label`` is that of attempt 0).
    ``partitions``: what it wrote to, as far as the record has room for that."""

    label: Label
    pooled: bool
    producer: ProducerId
    partitions: tuple[Partition, ...] = ()


class Content(NamedTuple):
    """By what two batches of the same number can be told apart. ``rows``: how many it has. ``digest``: the sum of its rows
    (`records.digest`); None if it was not taken. ``offsets``: a hash of the batch's file in the checkpoint's ``offsets``;
    None where it could not be read."""

    rows: int = 0
    digest: int | None = None
    offsets: int | None = None


NO_CONTENT = Content()


class Answer(NamedTuple):
    """The option ``firstBatch``, ``<batch>@<plan>``: the batch to write next while the last decision is that of ``plan``.

    It answers one question of the sink, and none that comes later: the next decision is of another plan."""

    batch: int
    plan: int

    def __str__(self) -> str:
        return f"{self.batch}@{self.plan}"


@dataclass(frozen=True)
class Decided:
    """The transactions of a decided batch: all of them, or, while a later batch is planned, those that could not be
    committed (the record then says so until the user decides what is to be done)."""

    run: int
    plan: int
    entries: tuple[Entry, ...]

    def transactions(self, name: str) -> list[tuple[str, ProducerId]]:
        """(transactional id, producer) of each."""
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
    """What a sink remembers.

    ``plan``: each plan has a number, one more than the last. ``run``: the number of the plan that gave the pool its names;
    a plan that finds another one unfinished takes new names, since the other's processes may still be alive.
    ``query_id``: Spark's, of the query that decided last ("" before the first decision). ``decision``: the number of the
    plan that led to the last decision, 0 if none did. ``pool``: age by task, see ``aged``. ``swept_at_ms``: when strays were
    last looked for. ``topics``: what the last decided batch was written to, id by name, as far as there is room. ``content``
    and ``decided_at_ms`` (for people) are of that batch too. ``doubt``: why the sink may have had another record before this
    one, which is lost; "" if nothing says so, and after the first decision.
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
        """With less to say to people."""
        if self.decided is None:
            return self
        bare = tuple(entry._replace(partitions=()) for entry in self.decided.entries)
        return dataclasses.replace(self, decided=dataclasses.replace(self.decided, entries=bare))

    @property
    def ages(self) -> Mapping[int, int]:
        return self.pool or {}


def aged(pool: Mapping[int, int], used: Iterable[int]) -> dict[int, int]:
    """The pool after a batch whose rows were written by the tasks ``used``: they are young again, the others a batch older.

    A pool of the last batch's tasks alone would make a query whose batches are now wide and now narrow take a new id for
    each task of each wide one, and Kafka keeps an id for seven days."""
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
    """One string of bytes; ``unpack`` reads it. A transaction takes about 8 bytes."""
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
    """How many bytes it takes, none where there is none, and the bytes."""
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
        # The id of a pooled one follows from the task alone.
        _varint(0 if pooled else label.renewals + 1, out)
        if not pooled:
            _varint(label.attempt_id, out)
        _varint(label.task - task, out)
        _zigzag(producer.producer_id - producer_id, out)
        _varint(producer.epoch, out)
        _pack_partitions(partitions, topics, out)
        task, producer_id = label.task, producer.producer_id


def _pack_partitions(partitions: Iterable[Partition], topics: Mapping[str, int], out: bytearray) -> None:
    """For each topic a bit for each of its partitions."""
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
    """What ``pack`` packed. ``UnreadableRecord`` for anything else."""
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
    """``topics``: in the order in which partitions name them, None where there are no partitions."""
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
    """The record, without what is only nice to have where it would be too long: the partitions of its transactions, then its
    topics. ``TooManyTasks`` if that does not help."""
    for slimmer in (record, record.without_partitions()):
        with contextlib.suppress(TooManyTasks):
            to_chunks(slimmer, chunks_max)
            return slimmer
    slimmest = dataclasses.replace(record.without_partitions(), topics={})
    to_chunks(slimmest, chunks_max)
    return slimmest


# -- offsets ------------------------------------------------------------------------------------------------------


def to_chunks(record: SinkState, chunks_max: int = CHUNKS_MAX) -> list[str]:
    """The record as texts, each short enough to be an offset's metadata; ``TooManyTasks`` if there are too many."""
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
    """Whether an offset's metadata is a part of a decision record."""
    return metadata.startswith("odradek/")


def from_chunks(offsets: Sequence[tuple[int, str]]) -> SinkState | None:
    """The record from (offset, metadata) in the order of ``to_chunks``; None if the first has none.

    ``UnreadableRecord`` if chunks are missing or of different records, or if another program wrote them."""
    if not offsets or offsets[0][0] < 0:
        return None
    first = offsets[0][1]
    head = first.split("/", 3)
    if not is_chunk(first) or len(head) != 4 or not head[2].isdecimal():
        raise UnreadableRecord(
            "the consumer group's offset is no decision record: a consumer uses that group, so give the sink another name"
        )
    count = int(head[2])
    parts = []
    for index, (offset, metadata) in enumerate(offsets[:count]):
        prefix = f"odradek/{index}/{count}/"
        if offset != offsets[0][0] or not metadata.startswith(prefix):
            raise UnreadableRecord(f"chunk {index} of the decision record is of another record")
        parts.append(metadata.removeprefix(prefix))
    if len(parts) != count:
        raise UnreadableRecord(f"the decision record has {count} chunks, and {len(parts)} were read")
    try:
        packed = base64.b64decode("".join(parts), validate=True)
    except ValueError as error:
        raise UnreadableRecord(f"the decision record is not what was written: {error}") from None
    if zlib.crc32(packed[:-4]) != int.from_bytes(packed[-4:], "big"):
        raise UnreadableRecord("the decision record is not what was written: its checksum differs")
    record = unpack(packed[:-4])
    if record.next_batch != offsets[0][0]:
        raise UnreadableRecord("the decision record and its offset differ")
    return record


_BINDING = "odradek-sink"


def to_binding(sink: SinkPlace) -> str:
    """The metadata of the offset that says which sink has decided the first batch of a query."""
    return json.dumps([_BINDING, *sink])


def from_bindings(offsets: Iterable[tuple[int, str]]) -> SinkPlace | None:
    """The sink, from the (offset, metadata) of the query's group; None if none of them names one."""
    for _, metadata in offsets:
        with contextlib.suppress(ValueError):
            binding, name, topic = json.loads(metadata)
            if binding == _BINDING:
                return SinkPlace(name, topic)
    return None
