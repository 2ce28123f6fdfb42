"""Kafka's own message schemas: the JSON files below ``common/message`` in the jar of kafka-clients.

    schemas = KafkaJson(Path("kafka-clients-4.4.0.jar"))
    schemas.versions(28)                       # range(0, 7)
    schemas.classes(28, 6, "request")          # [WireClass("TxnOffsetCommitRequestPartition", ...), ...]

Classes and fields have the names that `protocol.generators.messages` gives them. The files are read, not copied: they are
Apache's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

from protocol.generators.wire import ZERO, WireClass, WireField
from protocol.versions import Side

FOLDER: Final = "common/message/"
# The trace shows users the names of fields, so they stay: kio's name, and Kafka's name up to 4.3.
RENAMED: Final = {
    ("DirectoryData", "id"): "id_",
    ("StreamsGroupHeartbeatResponse", "acceptable_recovery_lag_legacy"): "acceptable_recovery_lag",
    ("StreamsGroupHeartbeatResponse", "acceptable_recovery_lag"): "acceptable_recovery_lag_long",
    ("TxnOffsetCommitRequest", "generation_id_or_member_epoch"): "generation_id",
}
"""(class, field in Kafka 4.4, in snake case) -> the field's name here."""
_COMMENT: Final = re.compile(r"^\s*//.*$", re.MULTILINE)


class KafkaJson:
    """The requests and responses in a jar, by API key."""

    def __init__(self, jar: Path) -> None:
        self._jar = jar

    @cached_property
    def _schemas(self) -> Mapping[tuple[int, str], Mapping[str, Any]]:
        found = {}
        with ZipFile(self._jar) as files:
            for name in files.namelist():
                if name.startswith(FOLDER) and name.endswith(".json"):
                    schema = json.loads(_COMMENT.sub("", files.read(name).decode()))
                    if schema["type"] in ("request", "response"):
                        found[schema["apiKey"], schema["type"]] = schema
        return found

    @property
    def apis(self) -> dict[int, str]:
        """API key -> name in snake case, ascending."""
        names = {
            key: snake_case(schema["name"].removesuffix("Request"))
            for (key, side), schema in self._schemas.items()
            if side == "request" and schema["validVersions"] != "none"
        }
        return dict(sorted(names.items()))

    def versions(self, key: int) -> range:
        """The valid versions of an API, those included that a broker announces only if it is told to."""
        schema = self._schemas.get((key, "request"))
        return range(0) if schema is None else _versions(schema["validVersions"])

    def classes(self, key: int, version: int, side: Side) -> list[WireClass]:
        """The classes of a message in one version. Nested classes precede those that contain them."""
        schema = self._schemas[key, side]
        assert version in _versions(schema["validVersions"])
        common = {each["name"]: each for each in schema.get("commonStructs", ())}
        is_flexible = version in _versions(schema["flexibleVersions"])
        found: dict[str, WireClass] = {}
        _collect(schema["name"], schema["fields"], version, common, is_flexible, found)
        return list(found.values())


def _collect(
    name: str,
    fields: list[dict[str, Any]],
    version: int,
    common: Mapping[str, Any],
    is_flexible: bool,
    found: dict[str, WireClass],
) -> None:
    present = [each for each in fields if version in _versions(each["versions"])]
    for each in present:
        struct = _item(each["type"])
        if struct[0].isupper() and struct not in found:
            inner = each.get("fields") or common[struct]["fields"]
            _collect(struct, inner, version, common, is_flexible, found)
    found[name] = WireClass(name, is_flexible, tuple(_field(name, each, version) for each in present))


def _field(class_name: str, schema: Mapping[str, Any], version: int) -> WireField:
    kind, is_array = _item(schema["type"]), schema["type"].startswith("[]")
    nullable = version in _versions(schema.get("nullableVersions", "none"))
    is_tagged = version in _versions(schema.get("taggedVersions", "none"))
    name = snake_case(schema["name"])
    return WireField(
        RENAMED.get((class_name, name), name),
        kind,
        is_array,
        nullable,
        schema["tag"] if is_tagged else None,
        _default(schema, kind, is_array, nullable),
    )


def _default(schema: Mapping[str, Any], kind: str, is_array: bool, nullable: bool) -> str:
    given = schema.get("default")
    if given == "null" or (given is None and nullable and not is_array):
        return "None"
    if is_array:
        return "()"
    if kind[0].isupper():
        return ""
    if given is None:
        return ZERO.get(kind, "0")
    if kind == "string":
        return f'"{given}"'
    if kind == "bool":
        return str(str(given).lower() == "true")
    return str(int(str(given), 0)) if kind != "float64" else repr(float(given))


def _item(type_: str) -> str:
    return type_.removeprefix("[]")


def _versions(text: str) -> range:
    """Parse ``"3+"``, ``"0-5"``, ``"4"`` or ``"none"``."""
    if text == "none":
        return range(0)
    first, _, last = text.partition("-")
    if first.endswith("+"):
        return range(int(first[:-1]), 1 << 15)
    return range(int(first), int(last or first) + 1)


def snake_case(name: str) -> str:
    """``"TransactionTimeoutMs"`` -> ``"transaction_timeout_ms"``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
