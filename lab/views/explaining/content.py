"""Counts what read_committed readers get from a range of a log, and what they skip: markers, aborted records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile

from lab.explain.facts import Tail
from lab.views.batches import headers
from lab.views.forms import BatchView
from protocol.named_tuple import NamedTuple
from storage.log import Log

TAIL_OFFSETS = 1000
"""Number of offsets before the end that are read to describe the end of a log."""


class Piece(NamedTuple):
    """A batch, or the part of a batch that is in the range of offsets to be counted."""

    is_marker: bool
    is_aborted: bool
    records: int


class Content(NamedTuple):
    """The counts of records, aborted records and markers in a range of a log."""

    records: int
    """Number of records in the range that read_committed consumers get."""
    aborted: int
    markers: int
    is_whole: bool
    """Whether the whole range was read, so that the counts are complete."""


def tail(log: Log, end: int) -> Tail:
    """Counts of the markers and aborted records between the last record that readers get and the offset ``end``.

    Reads at most ``TAIL_OFFSETS`` offsets before ``end``. No transaction may be open below ``end``.
    """
    start = max(log.log_start_offset, end - TAIL_OFFSETS)
    hidden = list(takewhile(lambda piece: piece.is_marker or piece.is_aborted, _backwards(log, start, end)))
    count = sum(1 for _ in headers_between(log, start, end))
    return Tail(
        markers=sum(piece.records for piece in hidden if piece.is_marker),
        aborted=sum(piece.records for piece in hidden if piece.is_aborted),
        reaches_start=start == log.log_start_offset and len(hidden) == count,
    )


def content(log: Log, start: int, end: int, batches_max: int) -> Content:
    """Count records, aborted records and markers between two offsets of a log, in at most ``batches_max`` batches."""
    start = max(start, log.log_start_offset)
    found = list(islice(headers_between(log, start, end), batches_max + 1))
    is_whole = len(found) <= batches_max
    pieces = list(_resolved(log, found[:batches_max], start))
    return Content(
        records=sum(each.records for each in pieces if not each.is_marker and not each.is_aborted),
        aborted=sum(each.records for each in pieces if each.is_aborted),
        markers=sum(each.records for each in pieces if each.is_marker),
        is_whole=is_whole,
    )


def headers_between(log: Log, start: int, end: int) -> Iterator[BatchView]:
    return takewhile(lambda batch: batch.base_offset < end, headers(log, start))


def _backwards(log: Log, start: int, end: int) -> Iterator[Piece]:
    return _resolved(log, list(headers_between(log, start, end)), start)


def _resolved(log: Log, found: list[BatchView], start: int) -> Iterator[Piece]:
    """Yield the pieces of the batches ``found`` without the offsets below ``start``, the last piece first.

    In this order a marker, which decides the outcome of its producer's earlier batches, is seen before them.
    """
    aborted: dict[int, bool] = {}
    for batch in reversed(found):
        records = min(batch.records, batch.last_offset + 1 - start)
        if batch.kind in ("commit", "abort"):
            aborted[batch.producer_id] = batch.kind == "abort"
        if batch.kind not in ("data", "transactional"):
            yield Piece(True, False, records)
            continue
        is_aborted = batch.kind == "transactional" and (
            aborted[batch.producer_id]
            if batch.producer_id in aborted
            else log.was_aborted(batch.producer_id, batch.base_offset)
        )
        yield Piece(False, is_aborted, records)
