"""Runs long work on the records of a batch in steps: a compressed kilobyte can contain a million records.

The caller decides what happens between two steps: nothing (`run`), or a turn of the event loop (``broker.loop.slices``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final, TypeVar

from protocol import compression as codecs
from protocol import record_walk
from protocol.batch import RecordBatch
from protocol.record_walk import Buffer
from storage.topic_configs import RECORD_BYTES_MAX

DECOMPRESSED_AT_ONCE_BYTES: Final = 256 * 1024
"""Size in bytes above which the compressed or decompressed records of a batch are decompressed in a thread."""

T = TypeVar("T")
Steps = Generator[Callable[[], Any] | None, Any, T]
"""A generator that does long work in steps and returns the result of the work.

At the end of a step the generator yields None, or a function: the caller calls it in a thread and sends the result back.
"""


def run(steps: Steps[T]) -> T:
    """Run a generator of `Steps` to its end, with all its functions, in this thread. Returns its result."""
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
    """Return the decompressed records of a batch. A large batch is decompressed in a thread. Call `give_back` with the
    result afterwards.
    """
    body = batch.body
    if batch.compression == codecs.NONE:
        return body if len(body) > DECOMPRESSED_AT_ONCE_BYTES else bytes(body)
    if codecs.has_dependent_blocks(batch.compression, body):
        raise codecs.CompressionError("lz4: the frame has dependent blocks, which Kafka does not read")
    if len(body) <= DECOMPRESSED_AT_ONCE_BYTES:
        try:
            return codecs.decompress(batch.compression, body, min(limit, DECOMPRESSED_AT_ONCE_BYTES))
        except codecs.DecompressedTooLarge:
            if limit <= DECOMPRESSED_AT_ONCE_BYTES:
                raise
    plain: Buffer = yield partial(codecs.decompress_apart, batch.compression, body, limit)
    return plain


def limits_sizes(batch: RecordBatch, bytes_max: int) -> bool:
    """Whether `check_sizes` checks the batch. As in Kafka, records of an uncompressed batch may have any size."""
    return bytes_max < RECORD_BYTES_MAX and batch.compression != codecs.NONE


def check_sizes(batch: RecordBatch, body: Buffer, bytes_max: int) -> Steps[None]:
    """Raise `CorruptBatch` if the batch is compressed, and one of the records in ``body`` is larger than ``bytes_max``, the
    value of ``max.decompressed.message.bytes``.
    """
    if limits_sizes(batch, bytes_max):
        yield from record_walk.check_sizes(body, batch.record_count, bytes_max)


def give_back(body: Buffer) -> Steps[None]:
    """Return the memory of a body that was decompressed in a thread to the system, also in a thread."""
    if codecs.is_apart(body):
        yield partial(codecs.give_back, body)
