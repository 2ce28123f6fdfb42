"""Our records equal those of Kafka's own classes byte for byte (see data/make_reference.py)."""

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from protocol.records import (
    cluster_metadata,
    consumer_protocol,
    group_log,
    kraft,
    producer_snapshot,
    share_group_log,
    share_state_log,
    streams_group_log,
    transaction_log,
)
from protocol.schema import Key, Value, VersionedRecord
from protocol.wire_types import Array, Bytes, Uuid

DATA = Path(__file__).parent / "data"
MODULES = (
    transaction_log,
    group_log,
    cluster_metadata,
    kraft,
    consumer_protocol,
    share_group_log,
    streams_group_log,
    share_state_log,
)
SCHEMAS: dict[str, type[VersionedRecord]] = {
    name: cls
    for module in MODULES
    for name, cls in vars(module).items()
    if isinstance(cls, type) and is_dataclass(cls) and issubclass(cls, VersionedRecord)
}
CASES = json.loads((DATA / "records.json").read_text())


def revive(wire: Any, value: Any, version: int) -> Any:
    """The value of a field from its JSON form."""
    if value is None:
        return None
    if isinstance(wire, Array):
        return tuple(revive(wire.item, item, version) for item in value)
    if isinstance(wire, Bytes) and not wire.text:
        return bytes.fromhex(value)
    if isinstance(wire, Uuid):
        return UUID(value)
    return build(wire.structure, value, version) if isinstance(value, dict) else value


def build(cls: Any, values: dict[str, Any], version: int) -> Any:
    """The record with these values. Fields that the version lacks have their defaults."""
    wires = {f.name: f.metadata["wire"] for f in fields(cls)}
    return cls(**{n: revive(wires[n].type, v, version) for n, v in values.items() if wires[n].is_in(version)})


def encoded(record: VersionedRecord, version: int) -> bytes:
    if isinstance(record, cluster_metadata.MetadataRecord):
        return cluster_metadata.encode_metadata_record(record, version)
    if isinstance(record, Key):
        return record.encode()
    assert isinstance(record, Value)
    return record.encode(version)


def decoded(cls: type[VersionedRecord], data: bytes) -> object:
    if issubclass(cls, cluster_metadata.MetadataRecord):
        return cluster_metadata.decode_metadata_record(data)
    assert issubclass(cls, (Key, Value))
    return cls.decode(data)


def framed(case: dict[str, Any]) -> bytes:
    """Kafka's bytes of the fields, behind the type and version with which a record in a log begins."""
    cls, version, body = SCHEMAS[case["schema"]], case["version"], bytes.fromhex(case["hex"])
    if cls.__module__ == kraft.__name__:
        return body  # the version is the first field
    if issubclass(cls, cluster_metadata.MetadataRecord):
        return bytes((1, cls.TYPE, version)) + body
    return (cls.TYPE if issubclass(cls, Key) else version).to_bytes(2, "big") + body


@pytest.mark.parametrize("schema", sorted({case["schema"] for case in CASES}))
def test_records_have_kafkas_bytes(schema: str) -> None:
    for case in (case for case in CASES if case["schema"] == schema):
        record = build(SCHEMAS[schema], case["fields"], case["version"])
        assert encoded(record, case["version"]).hex() == framed(case).hex()
        assert decoded(SCHEMAS[schema], framed(case)) == record


@pytest.mark.parametrize("schema", sorted({case["schema"] for case in CASES}))
def test_fields_of_other_versions_are_left_out(schema: str) -> None:
    for case in (case for case in CASES if case["schema"] == schema):
        full = build(SCHEMAS[schema], case["fields"], SCHEMAS[schema].VERSIONS[-1])
        if schema != "OffsetCommitValue":  # its version 1 has a field that the newest version lacks
            assert encoded(full, case["version"]) == framed(case)


def test_every_schema_and_version_is_compared() -> None:
    expected = {(name, version) for name, cls in SCHEMAS.items() for version in cls.VERSIONS}
    assert {(case["schema"], case["version"]) for case in CASES} == expected


def test_every_metadata_record_can_be_read() -> None:
    kinds = {cls for cls in SCHEMAS.values() if issubclass(cls, cluster_metadata.MetadataRecord)}
    assert {type(cluster_metadata.decode_metadata_record(encoded(cls(), 0))) for cls in kinds} == kinds


@pytest.mark.parametrize("case", json.loads((DATA / "snapshots.json").read_text()))
def test_producer_snapshots_have_kafkas_bytes(case: dict[str, Any]) -> None:
    # Kafka writes the entries of a hash map in its order.
    entries = producer_snapshot.decode(bytes.fromhex(case["hex"]))
    assert sorted(map(list, entries)) == sorted(case["entries"])
    assert producer_snapshot.encode(entries).hex() == case["hex"]
