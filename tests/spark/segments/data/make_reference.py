"""Write ``coordinator_records.json`` with Kafka's own classes. Run this script when a schema changes.

    PYTHONPATH=. python tests/spark/segments/data/make_reference.py directory/of/jars

The script encodes random values by our table of fields. Kafka's classes must read them to the last byte, and print what they
have read as JSON. The test itself needs no JVM.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from odradek.spark.segments.coordinator_schema import Field
from odradek.spark.segments.coordinator_tables import TOPICS

HERE = Path(__file__).parent
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
CASES = 3


def varint(number: int) -> bytes:
    written = b""
    while number > 0x7F:
        written += bytes([number & 0x7F | 0x80])
        number >>= 7
    return written + bytes([number])


def sized(count: int, width: int, flexible: bool) -> bytes:
    return varint(count + 1) if flexible else count.to_bytes(width, "big", signed=True)


def single(field: Field, version: int, flexible: bool, rng: random.Random) -> bytes:
    if isinstance(field.kind, tuple):
        return structure(field.kind, version, flexible, rng)
    if field.kind == "uint16":
        return rng.randrange(1 << 16).to_bytes(2, "big")
    if field.kind in BITS:
        bits = BITS[field.kind]
        return rng.randrange(-(1 << bits - 1), 1 << bits - 1).to_bytes(bits // 8, "big", signed=True)
    if field.kind == "uuid":
        return rng.randbytes(16)
    text = rng.choice(["", "a", "ééé", "name-" * 40]).encode()
    return sized(len(text), 2 if field.kind == "string" else 4, flexible) + text


def written(field: Field, version: int, flexible: bool, rng: random.Random) -> bytes:
    null = field.nullable and rng.random() < 0.4
    element = field._replace(array=False, nullable=False)
    if field.array:
        if null:
            return sized(-1, 4, flexible)
        count = rng.randrange(3)
        parts = [single(element, version, flexible, rng) for _ in range(count)]
        return sized(count, 4, flexible) + b"".join(parts)
    if isinstance(field.kind, tuple) and field.nullable:
        absent = b"\xff" if field.tag is None else b"\0"
        return absent if null else b"\1" + single(element, version, flexible, rng)
    if null:
        return sized(-1, 2 if field.kind == "string" else 4, flexible)
    return single(element, version, flexible, rng)


def structure(fields: tuple[Field, ...], version: int, flexible: bool, rng: random.Random) -> bytes:
    there = [one for one in fields if one.since <= version <= one.until]
    body = b"".join(written(one, version, flexible, rng) for one in there if one.tag is None)
    if not flexible:
        return body
    tagged = sorted((one.tag, one) for one in there if one.tag is not None and rng.random() < 0.7)
    body += varint(len(tagged))
    for tag, one in tagged:
        part = written(one, version, True, rng)
        body += varint(tag) + varint(len(part)) + part
    return body


def cases() -> Iterator[tuple[str, int, bytes, int, bytes]]:
    rng = random.Random(431)
    for topic, types in TOPICS.items():
        for number, record in types.items():
            highest = 0 if number == 0 else record.value.highest
            for version in range(record.value.highest + 1 if topic == "__transaction_state" else highest + 1):
                for _ in range(CASES):
                    key = structure(record.key, 0, False, rng)
                    flexible = version >= record.value.flexible
                    value = structure(record.value.fields, version, flexible, rng)
                    yield topic, number, key, version, value


def main() -> None:
    jars = ":".join(str(jar) for jar in Path(sys.argv[1]).glob("*.jar"))
    made = list(cases())
    short = {"__transaction_state": "transaction", "__consumer_offsets": "group"}
    lines = "".join(
        f"{short[t]} {number} {key.hex()} {v} {value.hex()}\n" for t, number, key, v, value in made
    )
    command = ["java", "-cp", jars, str(HERE / "CoordinatorRecords.java")]
    ran = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    rows: list[dict[str, Any]] = []
    for (topic, number, key, version, value), said in zip(made, ran.stdout.splitlines(), strict=True):
        both = {
            "key": number.to_bytes(2, "big") + key,
            "value": version.to_bytes(2, "big") + value,
        }
        rows.append(
            {"topic": topic} | {name: part.hex() for name, part in both.items()} | {"kafka": json.loads(said)}
        )
    text = "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"
    (HERE / "coordinator_records.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
