"""A program that writes `records.json` and `batches.json` with Kafka's own classes. Run it after adding a schema.

    PYTHONPATH=. python tests/protocol/data/make_reference.py directory/of/jars

The directory contains the jars of a Kafka 4.4 distribution. The tests themselves need no JVM.
"""

import base64
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from protocol.batch import RecordBatch, build_batch
from protocol.compression import CODEC_NAMES
from protocol.records import (
    cluster_metadata,
    consumer_protocol,
    group_log,
    kraft,
    share_group_log,
    share_state_log,
    streams_group_log,
    transaction_log,
)
from protocol.schema import Key, VersionedRecord
from protocol.wire_types import BOOLEAN, FLOAT64, INT8, INT16, INT32, INT64, UINT16, Array, Bytes, Uuid

HERE = Path(__file__).parent
PACKAGES = {
    transaction_log: "org.apache.kafka.coordinator.transaction.generated",
    group_log: "org.apache.kafka.coordinator.group.generated",
    cluster_metadata: "org.apache.kafka.common.metadata",
    kraft: "org.apache.kafka.common.message",
    consumer_protocol: "org.apache.kafka.common.message",
    share_group_log: "org.apache.kafka.coordinator.group.generated",
    streams_group_log: "org.apache.kafka.coordinator.group.generated",
    share_state_log: "org.apache.kafka.coordinator.share.generated",
}
BOUNDS = {INT8: 2**7, INT16: 2**15, INT32: 2**31, INT64: 2**63}
CASES_PER_VERSION = 4


def schemas() -> Iterator[tuple[str, type[VersionedRecord]]]:
    """Every record class of the modules, with the name of Kafka's class."""
    for module, package in PACKAGES.items():
        for name, cls in vars(module).items():
            own = isinstance(cls, type) and is_dataclass(cls) and cls.__module__ == module.__name__
            if own and issubclass(cls, VersionedRecord):
                prefix = "ConsumerProtocol" if module is consumer_protocol else ""
                yield f"{package}.{prefix}{name}", cls


# Random records of the declared fields


def value_of(wire: Any, rng: random.Random, size: int) -> Any:
    if getattr(wire, "nullable", False) and rng.random() < 0.3:
        return None
    if wire in BOUNDS:
        return rng.choice([0, 1, -1, BOUNDS[wire] - 1, -BOUNDS[wire], rng.randrange(BOUNDS[wire])])
    if wire is UINT16:
        return rng.randrange(2**16)
    if wire is FLOAT64:
        return rng.choice([0.0, 1.5, 1e300])
    if wire is BOOLEAN:
        return rng.random() < 0.5
    if isinstance(wire, Uuid):
        return None if rng.random() < 0.2 else UUID(int=rng.getrandbits(128))
    if isinstance(wire, Bytes):
        length = rng.choice([0, 1, 5, 200])
        return "é" * length if wire.text and length == 5 else "x" * length if wire.text else bytes(length)
    if isinstance(wire, Array):
        return tuple(value_of(wire.item, rng, size - 1) for _ in range(rng.randrange(size + 1)))
    return make(wire.structure, rng, size)


def make(cls: Any, rng: random.Random, size: int = 3) -> Any:
    return cls(**{f.name: value_of(f.metadata["wire"].type, rng, size) for f in fields(cls)})


def plain(value: Any) -> Any:
    """A record as JSON for our own tests."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, UUID):
        return str(value)
    return [plain(item) for item in value] if isinstance(value, tuple) else value


# The same record as JSON for Kafka's converters


def kafka_names(name: str) -> set[str]:
    """Kafka's possible names of one of our fields: camel case, with and without ``_ms``, and with Kafka's odd spellings."""
    names = set()
    for variant in {name, name.removesuffix("_ms"), name.replace("endpoints", "end_points")}:
        first, *rest = variant.split("_")
        camel = first + "".join(part.capitalize() for part in rest)
        names |= {camel, camel.replace("kraftVersion", "kRaftVersion")}
    return names


def for_kafka(value: Any, version: int, wire: Any = None) -> Any:
    if is_dataclass(value):
        # Kafka rejects fields that the version does not have.
        return {
            name: for_kafka(getattr(value, f.name), version, f.metadata["wire"].type)
            for f in fields(value)
            if f.metadata["wire"].is_in(version)
            for name in kafka_names(f.name)
        }
    if isinstance(wire, Array) and value is not None:
        return [for_kafka(item, version, wire.item) for item in value]
    if isinstance(wire, Uuid):
        raw = bytes(16) if value is None else value.bytes
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def record_cases() -> list[dict[str, Any]]:
    rng = random.Random(43)
    cases = []
    for kafka_class, cls in schemas():
        for version in cls.VERSIONS:
            for number in range(CASES_PER_VERSION):
                record = make(cls, rng, size=number)
                question = {"ask": "message", "class": kafka_class, "version": version}
                # Kafka's JSON of these records has a field for the version, which our classes lack.
                own_version = {"version": version} if cls.__module__.endswith("kraft") else {}
                question["fields"] = for_kafka(record, version) | own_version
                cases.append(
                    {"schema": cls.__name__, "version": version, "fields": plain(record), "ask": question}
                )
                if issubclass(cls, Key):
                    cases[-1]["type"] = cls.TYPE
    return cases


# Batches


def batch_questions() -> list[dict[str, Any]]:
    small = [[1_700_000_000_000, b"key".hex(), b"value".hex(), []]]
    mixed = [
        [1_700_000_000_005, None, b"v".hex(), [["h", b"1".hex()], ["null", None]]],
        [1_700_000_000_000, b"k".hex(), None, []],
        [1_700_000_000_900, b"".hex(), b"".hex(), []],
        *([1_700_000_001_000 + i, f"key-{i}".encode().hex(), (b"value" * 20).hex(), []] for i in range(20)),
    ]
    base = {"ask": "batch", "base_offset": 0, "leader_epoch": -1, "producer_id": -1, "producer_epoch": -1}
    base |= {"base_sequence": -1, "transactional": False, "log_append_time_ms": None}
    idempotent = {"producer_id": 4711, "producer_epoch": 3, "base_sequence": 2**31 - 5, "transactional": True}
    questions = []
    for codec in CODEC_NAMES:
        for records in (small, mixed):
            questions.append(base | {"codec": codec, "records": records})
            questions.append(
                base
                | idempotent
                | {"codec": codec, "records": records, "base_offset": 2**40, "leader_epoch": 7}
            )
    questions.append(base | {"codec": "none", "records": mixed, "log_append_time_ms": 1_700_000_123_456})
    return questions


def marker_questions() -> list[dict[str, Any]]:
    one = {"ask": "marker", "base_offset": 4, "timestamp_ms": 1_700_000_000_000, "leader_epoch": 0}
    one |= {"producer_id": 7, "producer_epoch": 2, "coordinator_epoch": 0}
    other = one | {
        "base_offset": 2**33,
        "leader_epoch": -1,
        "producer_id": 2**62,
        "coordinator_epoch": 2**31 - 1,
    }
    return [each | {"committed": committed} for each in (one, other) for committed in (True, False)]


def snapshot_questions() -> list[dict[str, Any]]:
    idle = [5, 0, 978, 978, 0, 1_700_000_000_000, -1, -1]
    entries = [[3, 9, -1, -1, 0, 1_700_000_000_001, 4, -1], idle, [2**60, 32767, 12, 99, 7, 0, 2, 92]]
    return [{"ask": "snapshot", "entries": entries[:count]} for count in (0, 1, 3)]


def hash_questions() -> list[dict[str, Any]]:
    texts = [
        "",
        "a",
        "tx-a",
        "v1",
        "ash-2",
        "polygenelubricants",
        "grüße",
        "😀 emoji",
        "x" * 100,
        "21",
        "foobar",
    ]
    return [{"ask": "hash", "text": text} for text in texts]


def our_batches() -> list[bytes]:
    """Batches that our code builds with every codec, to be read by Kafka's classes."""
    rng = random.Random(1)
    noise = rng.randbytes(200_000)
    sets: list[list[Any]] = [
        [(1_000, b"k", b"v", (("h", b"1"),))],
        [(1_000 + i, None, noise[i * 700 : i * 700 + 700]) for i in range(200)],
        [(1_000 - i, b"%d" % i, b"abc" * 1_000) for i in range(200)],
        [(1_000, b"large", b"plain " * 50_000 + noise)],
    ]
    return [
        build_batch(records, compression=codec, base_sequence=2**31 - 3, producer_id=1, producer_epoch=0)
        for records in sets
        for codec in range(len(CODEC_NAMES))
    ]


def check_reading(data: bytes, answer: dict[str, Any]) -> None:
    batch = RecordBatch.parse(data)
    ours = [
        [r.offset, r.timestamp, r.sequence, *(v if v is None else v.hex() for v in r[2:4]), len(r.headers)]
        for r in batch.records()
    ]
    if ours != answer["records"]:
        raise SystemExit(f"Kafka's classes and ours read different records in {batch}")


def ask_all(jars: str, questions: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(["javac", "-cp", f"{jars}/*", "-d", classes, HERE / "Reference.java"], check=True)
        java = ["java", "-cp", f"{classes}:{jars}/*", "Reference"]
        done = subprocess.run(java, input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return (json.loads(line) for line in done.stdout.splitlines())


def main(jars: str) -> None:
    records = record_cases()
    rest = batch_questions() + marker_questions() + snapshot_questions() + hash_questions()
    reading = our_batches()
    questions = [case["ask"] for case in records] + rest
    questions += [{"ask": "read", "hex": data.hex()} for data in reading]
    answers = ask_all(jars, questions)
    for case in records:
        del case["ask"]
        case["hex"] = next(answers)["hex"]
    answered: dict[str, list[Any]] = {"batch": [], "marker": [], "snapshot": [], "hash": []}
    for question in rest:
        answered[question.pop("ask")].append(question | next(answers))
    for data in reading:
        check_reading(data, next(answers))
    write("records.json", records)
    for kind, cases in answered.items():
        write({"batch": "batches", "hash": "hashes"}.get(kind, kind + "s") + ".json", cases)


def write(name: str, cases: list[Any]) -> None:
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (HERE / name).write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
