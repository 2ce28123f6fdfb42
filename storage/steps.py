"""Work on the records of a batch that may take long, in steps: a kilobyte can hold a million records.

The caller decides what is done between two steps: nothing (`run`), or a turn of the loop (``broker.loop.slices``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, TypeVar

from protocol import compression as codecs
from protocol.batch import RecordBatch
from protocol.record_walk import Buffer

DECOMPRESSED_AT_ONCE_BYTES: Final = 256 * 1024
"""What is larger is decompressed in a thread."""

T = TypeVar("T")
Steps = Generator[Callable[[], Any] | None, Any, T]
"""Yields None at the end of a slice, or work for a thread, whose result it is sent. Returns what it has found."""


def run(steps: Steps[T]) -> T:
    """All steps one after the other."""
    try:
        work = next(steps)
        while True:
            if work is None:
                work = next(steps)
                continue
            try:
                result = work()
            except Exception as error:
                work = steps.throw(error)
            else:
                work = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def plain_records(batch: RecordBatch, limit: int) -> Steps[Buffer]:
    """The records, decompressed: here if they are few, else in a thread. Then `give_back` has to follow."""
    body = batch.body
    if batch.compression == codecs.NONE:
        return body if len(body) > DECOMPRESSED_AT_ONCE_BYTES else bytes(body)
    if codecs.has_dependent_blocks(batch.compression, body):
        raise codecs.CompressionError("lz4: blocks that depend on each other are not read by Kafka")
    if len(body) <= DECOMPRESSED_AT_ONCE_BYTES:
        try:
            return codecs.decompress(batch.compression, body, min(limit, DECOMPRESSED_AT_ONCE_BYTES))
        except codecs.DecompressedTooLarge:
            if limit <= DECOMPRESSED_AT_ONCE_BYTES:
                raise
    plain: Buffer = yield partial(codecs.decompress_apart, batch.compression, body, limit)
    return plain


def give_back(body: Buffer) -> Steps[None]:
    """The pages of what was decompressed in a thread return to the system in a thread, too."""
    if codecs.is_apart(body):
        yield partial(codecs.give_back, body)
