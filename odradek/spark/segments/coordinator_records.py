"""What brokers write into ``__transaction_state`` and ``__consumer_offsets``: every key and value of Apache Kafka 4.3.1.

The fields stand here as a table, in wire order, and one small reader follows it. A key begins with its type, a value with
its version (both int16). From the version named ``flexible`` on, lengths are unsigned varints and tagged fields follow each
structure.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from struct import Struct, error
from typing import Any, NamedTuple


class Malformed(ValueError):
    """Bytes that are no key or value of the topic, or one of a version that is not known here."""


class Field(NamedTuple):
    """``kind``: a name of ``_NUMBERS``, ``uuid``, ``string`` or ``bytes``, or the fields of a structure. ``array``: several
    of them. ``since``/``until``: the versions that have it. ``tag``: it is a tagged field, ``default`` when left out."""

    name: str
    kind: str | tuple[Field, ...]
    array: bool = False
    nullable: bool = False
    since: int = 0
    until: int = 99
    tag: int | None = None
    default: Any = None


class Value(NamedTuple):
    """A value's fields, its highest version, and the first flexible one."""

    fields: tuple[Field, ...]
    highest: int
    flexible: int


_F = Field
_GROUP = (_F("group", "string"),)
_MEMBER = (*_GROUP, _F("member_id", "string"))

TRANSACTION = Value(
    (
        _F("producer_id", "int64"),
        _F("previous_producer_id", "int64", tag=0, since=1, default=-1),
        _F("next_producer_id", "int64", tag=1, since=1, default=-1),
        _F("producer_epoch", "int16"),
        _F("next_producer_epoch", "int16", tag=3, since=1, default=-1),
        _F("transaction_timeout_ms", "int32"),
        _F("status", "int8"),
        _F(
            "partitions",
            (_F("topic", "string"), _F("partition_ids", "int32", array=True)),
            array=True,
            nullable=True,
        ),
        _F("last_update", "int64"),
        _F("start", "int64"),
        _F("client_transaction_version", "int16", tag=2, since=1, default=0),
    ),
    highest=1,
    flexible=1,
)

_OFFSET = Value(
    (
        _F("offset", "int64"),
        _F("leader_epoch", "int32", since=3),
        _F("metadata", "string"),
        _F("commit_timestamp", "int64"),
        _F("expire_timestamp", "int64", since=1, until=1),
        _F("topic_id", "uuid", since=4, tag=0),
    ),
    highest=4,
    flexible=4,
)
_CLASSIC_GROUP = Value(
    (
        _F("protocol_type", "string"),
        _F("generation", "int32"),
        _F("protocol", "string", nullable=True),
        _F("leader", "string", nullable=True),
        _F("current_state_timestamp", "int64", since=2),
        _F(
            "members",
            (
                _F("member_id", "string"),
                _F("group_instance_id", "string", nullable=True, since=3),
                _F("client_id", "string"),
                _F("client_host", "string"),
                _F("rebalance_timeout", "int32", since=1),
                _F("session_timeout", "int32"),
                _F("subscription", "bytes"),
                _F("assignment", "bytes"),
            ),
            array=True,
        ),
    ),
    highest=4,
    flexible=4,
)


def _only(*fields: Field) -> Value:
    """A value with a single version, which is flexible."""
    return Value(fields, 0, 0)


_PARTITIONS = _F("partitions", "int32", array=True)
_EPOCHS = _F("assignment_epochs", "int32", array=True, nullable=True, tag=0)
_TOPIC = (_F("topic_id", "uuid"), _PARTITIONS)
_NAMED_TOPIC = (_F("topic_id", "uuid"), _F("topic_name", "string"), _PARTITIONS)
_TASK = (_F("subtopology_id", "string"), _PARTITIONS)
_PAIR = (_F("key", "string"), _F("value", "string"))
_TOPICS = _F("subscribed_topic_names", "string", array=True)
_STATE = (_F("member_epoch", "int32"), _F("previous_member_epoch", "int32"), _F("state", "int8"))
_CLIENT = (_F("client_id", "string"), _F("client_host", "string"))
_ASSIGNMENT = _only(_F("assignment_epoch", "int32"), _F("assignment_timestamp", "int64", tag=0, default=0))
_RACKS = (_F("partition", "int32"), _F("racks", "string", array=True))
_CLASSIC = (
    _F("session_timeout_ms", "int32"),
    _F("supported_protocols", (_F("name", "string"), _F("metadata", "bytes")), array=True),
)
_INNER_TOPIC = (
    _F("name", "string"),
    _F("partitions", "int32"),
    _F("replication_factor", "int16"),
    _F("topic_configs", _PAIR, array=True),
)
_COPARTITION = tuple(
    _F(name, "int16", array=True)
    for name in ("source_topics", "source_topic_regex", "repartition_source_topics")
)
_SUBTOPOLOGY = (
    _F("subtopology_id", "string"),
    _F("source_topics", "string", array=True),
    _F("source_topic_regex", "string", array=True),
    _F("state_changelog_topics", _INNER_TOPIC, array=True),
    _F("repartition_sink_topics", "string", array=True),
    _F("repartition_source_topics", _INNER_TOPIC, array=True),
    _F("copartition_groups", _COPARTITION, array=True),
)
_TASK_KINDS = ("active_tasks", "standby_tasks", "warmup_tasks")


class Record(NamedTuple):
    """What a type of key stands for."""

    kind: str
    key: tuple[Field, ...]
    value: Value


_COMMIT = (*_GROUP, _F("topic", "string"), _F("partition", "int32"))
_OF_GROUPS: dict[int, Record] = {
    0: Record("offset", _COMMIT, _OFFSET),
    1: Record("offset", _COMMIT, _OFFSET),
    2: Record("group", _GROUP, _CLASSIC_GROUP),
    3: Record(
        "consumer_group_metadata",
        _GROUP,
        _only(_F("epoch", "int32"), _F("metadata_hash", "int64", tag=0, default=0)),
    ),
    4: Record(
        "consumer_group_partition_metadata",
        _GROUP,
        _only(
            _F(
                "topics",
                (
                    _F("topic_id", "uuid"),
                    _F("topic_name", "string"),
                    _F("num_partitions", "int32"),
                    _F("partition_metadata", _RACKS, array=True),
                ),
                array=True,
            )
        ),
    ),
    5: Record(
        "consumer_group_member_metadata",
        _MEMBER,
        _only(
            _F("instance_id", "string", nullable=True),
            _F("rack_id", "string", nullable=True),
            *_CLIENT,
            _TOPICS,
            _F("subscribed_topic_regex", "string", nullable=True),
            _F("rebalance_timeout_ms", "int32"),
            _F("server_assignor", "string", nullable=True),
            _F("classic_member_metadata", _CLASSIC, nullable=True, tag=0),
        ),
    ),
    6: Record("consumer_group_target_assignment_metadata", _GROUP, _ASSIGNMENT),
    7: Record(
        "consumer_group_target_assignment_member",
        _MEMBER,
        _only(_F("topic_partitions", _TOPIC, array=True)),
    ),
    8: Record(
        "consumer_group_current_member_assignment",
        _MEMBER,
        _only(
            *_STATE,
            _F("assigned_partitions", (*_TOPIC, _EPOCHS), array=True),
            _F("partitions_pending_revocation", (*_TOPIC, _EPOCHS), array=True),
        ),
    ),
    10: Record(
        "share_group_member_metadata",
        _MEMBER,
        _only(_F("rack_id", "string", nullable=True), *_CLIENT, _TOPICS),
    ),
    11: Record("share_group_metadata", _GROUP, _only(_F("epoch", "int32"), _F("metadata_hash", "int64"))),
    12: Record("share_group_target_assignment_metadata", _GROUP, _ASSIGNMENT),
    13: Record(
        "share_group_target_assignment_member", _MEMBER, _only(_F("topic_partitions", _TOPIC, array=True))
    ),
    14: Record(
        "share_group_current_member_assignment",
        _MEMBER,
        _only(*_STATE, _F("assigned_partitions", _TOPIC, array=True)),
    ),
    15: Record(
        "share_group_state_partition_metadata",
        _GROUP,
        _only(
            _F("initializing_topics", _NAMED_TOPIC, array=True),
            _F("initialized_topics", _NAMED_TOPIC, array=True),
            _F("deleting_topics", _NAMED_TOPIC[:2], array=True),
        ),
    ),
    16: Record(
        "consumer_group_regular_expression",
        (*_GROUP, _F("regular_expression", "string")),
        _only(_F("topics", "string", array=True), _F("version", "int64"), _F("timestamp", "int64")),
    ),
    17: Record(
        "streams_group_metadata",
        _GROUP,
        _only(
            _F("epoch", "int32"),
            _F("metadata_hash", "int64"),
            _F("validated_topology_epoch", "int32", tag=0, default=-1),
            _F("last_assignment_configs", _PAIR, array=True, nullable=True, tag=1),
        ),
    ),
    19: Record(
        "streams_group_member_metadata",
        _MEMBER,
        _only(
            _F("instance_id", "string", nullable=True),
            _F("rack_id", "string", nullable=True),
            *_CLIENT,
            _F("rebalance_timeout_ms", "int32"),
            _F("topology_epoch", "int32"),
            _F("process_id", "string"),
            _F("user_endpoint", (_F("host", "string"), _F("port", "uint16")), nullable=True),
            _F("client_tags", _PAIR, array=True),
        ),
    ),
    20: Record("streams_group_target_assignment_metadata", _GROUP, _ASSIGNMENT),
    21: Record(
        "streams_group_target_assignment_member",
        _MEMBER,
        _only(*(_F(name, _TASK, array=True) for name in _TASK_KINDS)),
    ),
    22: Record(
        "streams_group_current_member_assignment",
        _MEMBER,
        _only(
            *_STATE,
            *(_F(name, (*_TASK, _EPOCHS), array=True) for name in _TASK_KINDS),
            *(_F(f"{name}_pending_revocation", (*_TASK, _EPOCHS), array=True) for name in _TASK_KINDS),
        ),
    ),
    23: Record(
        "streams_group_topology",
        _GROUP,
        _only(_F("epoch", "int32"), _F("subtopologies", _SUBTOPOLOGY, array=True)),
    ),
}
_OF_TRANSACTIONS = {0: Record("transaction", (_F("transactional_id", "string"),), TRANSACTION)}

_KEYS_KEPT = 1 << 14
TOPICS: dict[str, dict[int, Record]] = {
    "__transaction_state": _OF_TRANSACTIONS,
    "__consumer_offsets": _OF_GROUPS,
}


class Decoded(NamedTuple):
    """A record's kind, its key's fields (shared, so only to be read), its value's version and fields (None: a tombstone)."""

    kind: str
    key: dict[str, Any]
    version: int | None
    value: dict[str, Any] | None


def decode(topic: str, key: bytes | None, value: bytes | None) -> Decoded:
    """One record of ``topic``; ``Malformed`` if it is none that Kafka 4.3.1 writes."""
    if key is None:
        raise Malformed("the record has no key")
    record, fields = _key(topic, key)
    if value is None:
        return Decoded(record.kind, fields, None, None)
    reader = _Reader(value)
    with _plainly_said():
        version = reader.number("int16")
        if not 0 <= version <= record.value.highest:
            raise Malformed(f"version {version} of the value of {record.kind} is unknown")
        found = reader.structure(record.value.fields, version, version >= record.value.flexible)
    return Decoded(record.kind, fields, version, found)


@lru_cache(maxsize=_KEYS_KEPT)
def _key(topic: str, key: bytes) -> tuple[Record, dict[str, Any]]:
    """The same keys come again and again: each is read once."""
    reader = _Reader(key)
    with _plainly_said():
        kind = reader.number("int16")
        record = TOPICS[topic].get(kind)
        if record is None:
            raise Malformed(f"a key of type {kind} is unknown")
        return record, reader.structure(record.key, 0, False)


@contextmanager
def _plainly_said() -> Iterator[None]:
    try:
        yield
    except (error, IndexError):
        raise Malformed("the record ends early") from None
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None


_NUMBERS = {
    "int8": Struct(">b"),
    "int16": Struct(">h"),
    "uint16": Struct(">H"),
    "int32": Struct(">i"),
    "int64": Struct(">q"),
}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, kind: str) -> int:
        packed = _NUMBERS[kind]
        (found,) = packed.unpack_from(self._data, self._at)
        self._at += packed.size
        return int(found)

    def structure(self, fields: Sequence[Field], version: int, flexible: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        tagged = {}
        for one in fields:
            if not one.since <= version <= one.until:
                found[one.name] = one.default
            elif one.tag is not None:
                found[one.name] = one.default
                tagged[one.tag] = one
            else:
                found[one.name] = self._field(one, version, flexible)
        if flexible:
            self._tags(tagged, found, version)
        return found

    def _tags(self, known: dict[int, Field], found: dict[str, Any], version: int) -> None:
        for _ in range(self._varint()):
            tag, size = self._varint(), self._varint()
            end = self._at + size
            if end > len(self._data):
                raise Malformed("a tagged field ends early")
            if tag in known:
                found[known[tag].name] = self._field(known[tag], version, True)
            self._at = end

    def _field(self, one: Field, version: int, flexible: bool) -> Any:
        if not one.array:
            if one.nullable and isinstance(one.kind, tuple) and not self._is_there(one):
                return None
            return self._single(one, version, flexible)
        count = self._varint() - 1 if flexible else self.number("int32")
        if count < 0:
            if not one.nullable:
                raise Malformed(f"{one.name} is null")
            return None
        if count > len(self._data) - self._at:
            raise Malformed(f"{one.name} cannot have {count} elements")
        element = one._replace(array=False, nullable=False)
        return [self._single(element, version, flexible) for _ in range(count)]

    def _is_there(self, one: Field) -> bool:
        """What stands before a structure that may be null; in tagged fields Kafka writes it in another way."""
        return self.number("int8") >= 0 if one.tag is None else self._varint() > 0

    def _single(self, one: Field, version: int, flexible: bool) -> Any:
        if isinstance(one.kind, tuple):
            return self.structure(one.kind, version, flexible)
        if one.kind in _NUMBERS:
            return self.number(one.kind)
        if one.kind == "uuid":
            return str(uuid.UUID(bytes=self._bytes(16)))
        size = self._size(one.kind, flexible)
        if size < 0:
            if not one.nullable:
                raise Malformed(f"{one.name} is null")
            return None
        data = self._bytes(size)
        return data.decode() if one.kind == "string" else data

    def _size(self, kind: str, flexible: bool) -> int:
        if flexible:
            return self._varint() - 1
        return self.number("int16" if kind == "string" else "int32")

    def _bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise Malformed("the record ends early")
        found = self._data[self._at : end]
        self._at = end
        return found

    def _varint(self) -> int:
        found = shift = 0
        while shift < 35:
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
        raise Malformed("a length has more bytes than its type allows")
