"""The compiled core (protocol/c). What each function does stands with its twin in Python."""

from collections.abc import Callable
from typing import Any

from protocol.frame import RequestHeader
from protocol.messages import Chunk

SOURCES: str
"""The hash of the sources that it was built from (setup.py)."""

class Program:
    """One version of a message or record: ``(class, class with all fields, (field, ...))``, and a field is
    ``(name, kind, is array, may be null, tag or -1, default, its struct or None)``."""

    def __new__(
        cls, table: tuple[Any, ...], flexible: bool, strict: bool, fallback: Callable[..., Any]
    ) -> Program: ...
    def decode(self, buffer: bytes | memoryview, offset: int, /) -> Any: ...
    def encode(self, message: Any, /) -> list[Chunk]: ...
    def encode_record(self, record: Any, prefix: int | None, /) -> bytes: ...

def set_up_messages(
    malformed_request: type[Exception],
    long_message: type[Exception],
    uuid_of_bytes: Callable[[bytes], Any],
    string_bytes_max: int,
    elements_at_once: int,
    inline_bytes_max: int,
    tags_max: int,
) -> None: ...
def set_up_frames(
    malformed_request: type[Exception],
    request_header: type[RequestHeader],
    first_flexible: dict[int, int | None],
    tags_max: int,
) -> None: ...
def parse_request_header(frame: bytes | memoryview, /) -> RequestHeader: ...
def keep_freed_memory(piece_bytes: int, kept_bytes: int, /) -> bool:
    """Let the allocator keep up to so many freed bytes, of pieces up to that size; whether it does (glibc)."""
