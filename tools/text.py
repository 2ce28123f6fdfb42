"""Times, durations, keys and values as text for a terminal."""

from __future__ import annotations

from uuid import UUID

from lab.explain.words import duration_text, time_text
from odradek.printable import printable
from protocol.uuids import uuid_text

__all__ = ["duration_text", "id_text", "text_of", "time_text"]


def text_of(data: bytes | None) -> str:
    """A key or value for a terminal: printable UTF-8, else hexadecimal; null is ``null``."""
    if data is None:
        return "null"
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def data_json(name: str, data: bytes | None) -> dict[str, str | None]:
    """A key or value for JSON. Bytes that are not UTF-8 have another field name, and are hexadecimal."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": data.hex()}


def id_text(number: UUID | None) -> str:
    """A topic id as Kafka prints it: 22 characters of base64."""
    return uuid_text(number or UUID(int=0))
