"""Times, durations, keys and values as text for a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from odradek.printable import printable
from protocol.uuids import uuid_text


def time_text(time_ms: int) -> str:
    """UTC with milliseconds; what is no time (-1) as ``-``."""
    if time_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def duration_text(duration_ms: int) -> str:
    """``250 ms``, ``42.5 s``, ``3 min 5 s``, ``2 h 10 min``"""
    seconds = duration_ms / 1000
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def text_of(data: bytes | None) -> str:
    """A key or value for a terminal: UTF-8 made printable, else hexadecimal; null is ``null``."""
    if data is None:
        return "null"
    try:
        return printable(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def data_json(name: str, data: bytes | None) -> dict[str, str | None]:
    """A key or value for a program: what is no UTF-8 stands under another name, in hexadecimal."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": data.hex()}


def id_text(number: UUID | None) -> str:
    """A topic id as Kafka prints it: 22 characters of base64."""
    return uuid_text(number or UUID(int=0))
