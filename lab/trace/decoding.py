"""Decodes frames to plain values for JSON. Done only when a caller requests exchanges."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from lab.trace.exchange import Exchange, Names, no_names
from lab.trace.redaction import SECRETS
from protocol.batch import CorruptBatch, RecordBatch, batches, parse_end_txn_marker
from protocol.codec import MalformedRequest, UnknownVersion, client_codec, request_codec, version_of_response
from protocol.error_codes import error_name
from protocol.frame import parse_request_header, response_body_offset
from protocol.versions import WireField

Decoded = dict[str, Any]

CUT: Final[Decoded] = {"cut": True}
"""Placeholder for a message whose frame was too large to keep."""

RECORDS_TOLD_MAX: Final = 10_000
"""Number of records of one ``records`` field that are decoded, if records are requested."""
_COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def request_dict(exchange: Exchange, names: Names = no_names, *, values: bool = False) -> Decoded:
    """The request, field by field in the order of the wire format.

    Bytes are base64, secrets only their length. Records are summaries of their batches, with the records themselves if
    ``values`` is true. An error code is followed by its name as ``error`` (``partition_error`` after
    ``partition_error_code``), a topic id by the topic's name.
    """
    if exchange.request_is_cut:
        return CUT
    return _decoded(exchange, exchange.request, names, values=values, is_request=True)


def answer_dict(exchange: Exchange, names: Names = no_names, *, values: bool = False) -> Decoded | None:
    """The response, in the form of ``request_dict``; None if there is no response."""
    if exchange.answer is None:
        return None
    if exchange.answer_is_cut:
        return CUT
    return _decoded(exchange, exchange.answer, names, values=values, is_request=False)


def _decoded(exchange: Exchange, frame: bytes, names: Names, *, values: bool, is_request: bool) -> Decoded:
    key, version = exchange.api_key, exchange.api_version
    view = memoryview(frame)  # a view, so that records are not copied
    try:
        if is_request:
            message = request_codec(key, version).decode(view, parse_request_header(frame).body_offset)
        else:
            version = version_of_response(key, version, frame)
            message = client_codec(key, version).decode(view, response_body_offset(key, version, frame))
    except (MalformedRequest, UnknownVersion) as error:
        return {"undecodable": str(error), "frame": b64encode(frame).decode()}
    return _Teller(names, values=values).message(message, message.__wire__)


class _Teller:
    def __init__(self, names: Names, *, values: bool) -> None:
        self._names = names
        self._values = values

    def message(self, message: Any, wire: Sequence[WireField]) -> Decoded:
        """The fields of a message by name.

        ``wire`` is the table of the fields that ``message`` has in its version. It is an argument because a tagged
        struct with default values, which was not sent, has no table of its own.
        """
        shown: Decoded = {}
        for field in wire:
            value = getattr(message, field.name)
            shown[field.name] = self._field(field, value)
            if field.name.endswith("error_code"):
                shown[field.name.removesuffix("_code")] = error_name(value)
            elif isinstance(value, UUID) and (name := self._names(value)) is not None:
                shown[f"{field.name.removesuffix('_id')}_name"] = name
        return shown

    def _field(self, field: WireField, value: Any) -> Any:
        if value is None:
            return None
        if field.is_array:
            return [self._one(field, each) for each in value]
        return self._one(field, value)

    def _one(self, field: WireField, value: Any) -> Any:
        match field.kind:
            case "struct":
                return None if value is None else self.message(value, field.nested.__wire__)
            case "records":
                return self._batches(value)
            case "bytes":
                return {"bytes": len(value)} if field.name in SECRETS else b64encode(value).decode()
            case "uuid":
                return None if value is None else str(value)
            case "string" | "bool" | "float64":
                return value
        return int(value)  # also converts members of an enum

    def _batches(self, records: bytes | memoryview) -> Decoded:
        shown: list[Decoded] = []
        found: Decoded = {"bytes": len(records), "batches": shown}
        end = 0
        try:
            for batch in batches(records):
                shown.append(self._batch(batch))
                end += batch.size
        except CorruptBatch as error:
            found["undecodable"] = str(error)
        else:
            if end < len(records):
                # As in Kafka, the last batch of a Fetch response may be incomplete.
                found["incomplete_bytes"] = len(records) - end
        return found

    def _batch(self, batch: RecordBatch) -> Decoded:
        shown = batch_summary(batch)
        if self._values and not batch.is_control:
            shown["records"] = list(_records(batch))
        return shown


def batch_summary(batch: RecordBatch) -> Decoded:
    """The header fields of a batch, and COMMIT or ABORT if it is a marker."""
    shown: Decoded = {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.record_count,
        "bytes": batch.size,
        "leader_epoch": batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "compression": _COMPRESSIONS[batch.compression] if batch.compression < 5 else batch.compression,
        "base_timestamp_ms": batch.base_timestamp,
        "max_timestamp_ms": batch.max_timestamp,
    }
    if batch.is_control:
        marker = parse_end_txn_marker(batch)
        if marker is not None:
            shown["marker"] = "COMMIT" if marker.committed else "ABORT"
            shown["coordinator_epoch"] = marker.coordinator_epoch
    return shown


def _records(batch: RecordBatch) -> Iterable[Decoded]:
    for shown, record in enumerate(batch.records()):
        if shown == RECORDS_TOLD_MAX:
            return
        yield {
            "offset": record.offset,
            "timestamp_ms": record.timestamp,
            "key": _text(record.key),
            "value": _text(record.value),
            "headers": [{"key": header[0], "value": _text(header[1])} for header in record.headers],
        }


def _text(data: bytes | memoryview | None) -> str | None:
    return None if data is None else b64encode(data).decode()
