"""The compiled core (protocol/c). The docstring of each function is that of its twin in Python."""

from collections.abc import Callable, Iterator
from typing import Any

from .batch import RecordBatch
from .frame import RequestHeader
from .messages import Chunk
from .record import CorruptBatch, Reason
from .record_walk import Walked

SOURCES: str
"""The hash of the sources from which this module was built (setup.py)."""

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
def set_up_batches(
    batch: type[RecordBatch], corrupt_header: Callable[[Any, int], CorruptBatch], one_piece_bytes: int
) -> None: ...
def set_up_walk(
    corrupt_batch: type[CorruptBatch],
    records: Reason,
    length: Reason,
    count: Reason,
    walked: type[Walked],
    slice_records: int,
) -> None: ...
def set_up_twins(twins: dict[str, Callable[..., Any]]) -> None: ...
def crc32c(data: bytes | bytearray | memoryview, crc: int = 0, in_hardware: bool = True, /) -> int: ...

# The signature of each of these is that of its twin.
parse_batch: Callable[..., RecordBatch]
has_valid_crc: Callable[[RecordBatch], bool]
stored_at: Callable[..., tuple[Chunk, ...]]
patched_header: Callable[..., bytes]
encode_record: Callable[..., bytes]
build_batch: Callable[..., bytes]
end_txn_marker: Callable[..., bytes]
walk: Callable[..., Iterator[None]]

def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes: ...
def parse_request_header(frame: bytes | memoryview, /) -> RequestHeader: ...
def keep_freed_memory(piece_bytes: int, kept_bytes: int, /) -> bool:
    """Let the allocator keep up to ``kept_bytes`` freed bytes, in pieces of up to ``piece_bytes``; False without glibc."""
