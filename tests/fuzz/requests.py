"""Random requests of all APIs and versions, valid by their schemas, and damaged frames.

The layout is kio's (`tests.support.raw`), so that it is independent of our schema. Values come from a small set (`World`),
so that requests refer to the same resources: one creates a topic, the next one uses its name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.static.constants import EntityType

from protocol.batch import build_batch
from tests.support import raw
from tests.support.raw import Field, Shape

ARRAY_MAX: Final = 3
INTS: Final = {
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "error_code": (-1, 130),
}
TIMES: Final = ("timedelta_i32", "timedelta_i64", "datetime_i64")
TIMES_MS: Final = (-1, 0, 1, 500, 5_000)
"""Timeouts in requests. No request waits longer, so a missing response can be told from a slow one."""
EXTREME: Final = 0.08
"""Probability that a number is the minimum or maximum of its type."""


class World:
    """The names and ids that all random requests choose from."""

    def __init__(self, topics: Iterable[str], topic_ids: Iterable[UUID] = ()) -> None:
        topics = list(topics)
        self.topic_ids = [*topic_ids, UUID(int=7)]
        self.strings = {
            "topic": [*topics, "unknown", "", "__consumer_offsets", "a b", "x" * 250, "é\u202e\x1b"],
            "group": ["group-1", "group-2", "", "g" * 300],
            "transactional": ["txn-1", "txn-2", "", "\x00"],
            "member": ["", "member-1", "unknown"],
            "instance": ["instance-1", ""],
            "host": ["localhost", ""],
            "pattern": ["txn-.*", "(", ""],
            "assignor": ["range", "uniform", ""],
        }
        self.numbers = {
            "partition": [0, 0, 0, 1, 2, -1, 1 << 20],
            "producer_id": [-1, 0, 1000, 1001],
            "epoch": [-1, 0, 1, 2, 32767],
            "generation": [-1, 0, 1, 2],
            "offset": [-1, 0, 1, 5, 1 << 40],
            "timestamp": [-5, -4, -3, -2, -1, 0, 1_800_000_000_000],
            "bytes": [0, 1, 100, 1 << 20],
            "acks": [-1, 0, 1, 2],
            "replica_id": [-1, -1, -2, 1, 99],
            "broker": [1, 2, 99, -1],
            "node": [1, 2, 99, -1],
            "key_type": [0, 1, 2, 9],
            "resource_type": [0, 2, 4, 99],
            "isolation": [0, 1, 7],
            "session": [0, -1, 77],
            "factor": [-1, 1, 3],
            "version": [-1, 0, 1, 2],
            "correlation": [1],
        }


class Frame(NamedTuple):
    """A request without its size prefix.

    ``is_mute``: the request may have no response, as a Produce with acks=0 (an error closes its connection, as in Kafka) or
    because of its damage.
    """

    api: str
    version: int
    data: bytes
    is_damaged: bool
    is_mute: bool


class Requests:
    """Random requests, which depend only on ``random``. ``apis`` are the versions to use by API name."""

    def __init__(self, random: Random, world: World, apis: dict[str, range]) -> None:
        self._random = random
        self._world = world
        self._apis = apis

    def draw(self) -> tuple[str, int, dict[str, Any]]:
        """A random (API, version, body)."""
        api = self._random.choice(sorted(self._apis))
        version = self._random.choice(self._apis[api])
        return api, version, self._struct(raw._message(api, version, EntityType.request))

    def frame(self, correlation_id: int, damage: float) -> Frame:
        """A random frame. ``damage`` is the probability that it is damaged."""
        api, version, body = self.draw()
        data = raw.encode_request(api, version, body, correlation_id)
        is_damaged = self._random.random() < damage
        is_mute = api == "produce" and (is_damaged or body["acks"] == 0)
        return Frame(api, version, damaged(data, self._random) if is_damaged else data, is_damaged, is_mute)

    def _struct(self, shape: Shape) -> dict[str, Any]:
        body = {field.name: self._field(field) for field in shape.plain}
        for field in shape.tagged:
            if self._random.random() < 0.4:
                body[field.name] = self._field(field)
        if shape.flexible and self._random.random() < 0.05:
            body["_tags"] = {self._random.choice((90, 1 << 20)): self._random.randbytes(5)}
        return body

    def _field(self, field: Field) -> Any:
        if field.nullable and self._random.random() < 0.15:
            return None
        if field.array:
            return [self._value(field) for _ in range(self._random.randint(0, ARRAY_MAX))]
        return self._value(field)

    def _value(self, field: Field) -> Any:
        random = self._random
        if field.nested:
            return self._struct(field.nested)
        match field.kind:
            case "string":
                return self._string(field.name)
            case "records":
                return self._records()
            case "bytes":
                return random.choice((b"", random.randbytes(8), bytes(40), b"\x00\x01\x00\x00\x00\x00"))
            case "uuid":
                return random.choice(self._world.topic_ids)
            case "bool":
                return random.random() < 0.5
            case "float64":
                return random.choice((0.0, 1.5, float("nan")))
        return self._number(field)

    def _string(self, name: str) -> str:
        known = self._world.strings
        kind = next((kind for kind in known if kind in name), None)
        if kind is None and name in ("name", "key", "keys", "coordinator_keys", "resource_name"):
            kind = self._random.choice(("topic", "group", "transactional"))
        return self._random.choice(known[kind] if kind else ["", "a", "consumer", "range", "1.0", "42"])

    def _number(self, field: Field) -> int:
        random = self._random
        if field.kind in TIMES:
            return random.choice(TIMES_MS)
        low, high = INTS[field.kind]
        if random.random() < EXTREME:
            return random.choice((low, high))
        kind = next((kind for kind in self._world.numbers if kind in field.name), None)
        value = random.choice(self._world.numbers[kind] if kind else [-1, 0, 1, 2, 3])
        return min(max(value, low), high)

    def _records(self) -> bytes:
        random = self._random
        records = [
            (1_800_000_000_000, random.choice((None, b"key")), random.randbytes(random.randint(0, 40)))
            for _ in range(random.randint(1, 3))
        ]
        producer = random.random() < 0.6
        batch = build_batch(
            records,
            producer_id=random.choice((1000, 1001, 0)) if producer else -1,
            producer_epoch=random.choice((0, 0, 1, 2)) if producer else -1,
            base_sequence=random.choice((0, 0, 1, 3, 2**31 - 1)) if producer else -1,
            transactional=producer and random.random() < 0.5,
        )
        return damaged(batch, random) if random.random() < 0.2 else batch


def damaged(data: bytes, random: Random) -> bytes:
    """The bytes with one or a few of them changed."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        if not out:
            break
        at = random.randrange(len(out))
        match random.randrange(6):
            case 0:
                out[at] ^= 1 << random.randrange(8)
            case 1:
                del out[at : at + random.randint(1, 8)]
            case 2:
                out[at:at] = random.randbytes(random.randint(1, 8))
            case 3:
                del out[at:]
            case 4:
                number = random.choice((-1, -2, 0, 2**31 - 1, -(2**31)))
                out[at : at + 4] = struct.pack(">i", number)
            case 5:
                out[at : at + 5] = b"\xff\xff\xff\xff\x07"
    return bytes(out)
