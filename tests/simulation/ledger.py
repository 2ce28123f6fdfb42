"""The records that clients sent, the responses that they got, the records that consumers saw, and the final checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from types import MappingProxyType
from typing import Final

Spot = tuple[str, int]
"""(topic, partition)."""

NOTHING_DELETED: Final[Mapping[Spot, int]] = MappingProxyType({})


class Broken(AssertionError):
    """An invariant is violated. The message describes the violation."""


class Verdict(Enum):
    """Outcome of a transaction, as far as its client knows."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Work:
    """One transaction, or one batch of an idempotent producer: all of it must be visible, or nothing."""

    producer: str
    number: int
    sent: list[tuple[Spot, bytes]] = field(default_factory=list)
    verdict: Verdict = Verdict.OPEN

    def value(self, spot: Spot) -> bytes:
        """Create the next value to send to a partition."""
        value = f"{self.producer}/{self.number}/{len(self.sent)}".encode()
        self.sent.append((spot, value))
        return value


@dataclass(slots=True)
class View:
    """Records that one consumer saw in one partition."""

    isolation: str
    records: list[tuple[int, bytes]] = field(default_factory=list)
    seen_below: list[int] = field(default_factory=list)
    """High watermark in the Fetch response that contained the record, for each of ``records``."""
    jumps: list[tuple[int, int]] = field(default_factory=list)
    """(from, to) positions where the consumer skipped deleted records."""
    _offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def saw_offsets(self, spot: Spot, leader_epoch: int, high_watermark: int, last_stable: int) -> None:
        """Check that within a leader epoch high watermark and LSO do not decrease, and LSO <= high watermark."""
        before = self._offsets.get(leader_epoch, (-1, -1))
        if high_watermark < before[0] or last_stable < before[1] or last_stable > high_watermark:
            raise Broken(
                f"{spot} in epoch {leader_epoch}: high watermark and LSO were {before}, "
                f"now {(high_watermark, last_stable)}"
            )
        self._offsets[leader_epoch] = (high_watermark, last_stable)

    def has_jumped(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.jumps)

    def saw(self, records: Iterable[tuple[int, bytes]], high_watermark: int = -1) -> None:
        for offset, value in records:
            if self.records and offset <= self.records[-1][0]:
                raise Broken(f"a consumer got offset {offset} after offset {self.records[-1][0]}")
            self.records.append((offset, value))
            self.seen_below.append(high_watermark)


class Ledger:
    """Everything that clients have sent (`Work`) and that consumers have seen (`View`) in one run."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.views: dict[tuple[str, Spot], View] = {}
        self.cuts: dict[Spot, list[int]] = {}
        """By partition: the log starts in the responses of DeleteRecords."""
        self.offsets: dict[bytes, int] = {}
        """Offset of each value, from the Produce responses."""

    def begin(self, producer: str, number: int) -> Work:
        work = Work(producer, number)
        self.works.append(work)
        return work

    def wrote(self, values: Iterable[bytes], base_offset: int) -> None:
        """Record that a batch was acknowledged. ``base_offset`` is -1 if the response had no offset."""
        if base_offset >= 0:
            self.offsets.update(zip(values, count(base_offset), strict=False))

    def view(self, reader: str, spot: Spot, isolation: str) -> View:
        return self.views.setdefault((reader, spot), View(isolation))

    # ---- the checks

    def check_works(
        self, content: dict[Spot, list[tuple[int, bytes]]], starts: Mapping[Spot, int] = NOTHING_DELETED
    ) -> None:
        """Check that each ``Work`` is visible as a whole or not at all, in order, and without duplicates.

        The work's verdict decides whether it must be visible, must not be, or may be. ``starts``: log starts of
        partitions in which clients have deleted records.
        """
        where: dict[bytes, Spot] = {}
        for spot, records in content.items():
            for offset, value in records:
                if value in where:
                    raise Broken(f"{value!r} is visible twice, in {where[value]} and {spot}")
                if self.offsets.get(value, offset) != offset:
                    raise Broken(
                        f"{value!r} was written at {self.offsets[value]}, but is at {offset} of {spot}"
                    )
                where[value] = spot
        for work in self.works:
            self._check_work(work, where, starts)
        known = {value for work in self.works for _, value in work.sent}
        for value, spot in where.items():
            if value not in known and not value.startswith(b"copy "):
                raise Broken(f"no client sent {value!r}, which is visible in {spot}")
        for spot, records in content.items():
            _check_order(spot, [value for _, value in records])

    def _check_work(self, work: Work, where: dict[bytes, Spot], starts: Mapping[Spot, int]) -> None:
        sent = [(spot, value) for spot, value in work.sent if not self._may_be_deleted(spot, value, starts)]
        visible = [value for spot, value in sent if where.get(value) == spot]
        name = f"{work.producer}/{work.number} ({work.verdict.value})"
        if len(visible) not in (0, len(sent)):
            raise Broken(f"{name}: only {visible} is visible of {[value for _, value in sent]}")
        if work.verdict is Verdict.COMMITTED and len(visible) != len(sent):
            raise Broken(f"{name} was acknowledged, but is not visible")
        if work.verdict is Verdict.ABORTED and visible:
            raise Broken(f"{name} was aborted, but {visible} is visible")

    def _may_be_deleted(self, spot: Spot, value: bytes, starts: Mapping[Spot, int]) -> bool:
        """Whether the value may have been deleted. True also if the value's offset is unknown."""
        start = starts.get(spot, 0)
        return start > 0 and self.offsets.get(value, -1) < start

    def check_views(
        self,
        committed: dict[Spot, list[tuple[int, bytes]]],
        everything: dict[Spot, list[tuple[int, bytes]]],
        starts: Mapping[Spot, int] = NOTHING_DELETED,
    ) -> None:
        """Check that each consumer saw exactly the records of the log up to its position, deleted ones excepted."""
        for (reader, spot), view in self.views.items():
            there = (committed if view.isolation == "read_committed" else everything)[spot]
            # An unreplicated log start may be lost with its leader, after the consumer has skipped the records below it.
            there = [record for record in there if not view.has_jumped(record[0])]
            seen = [record for record in view.records if record[0] >= starts.get(spot, 0)]
            if seen != there[: len(seen)]:
                at = next(i for i, pair in enumerate(seen) if i >= len(there) or pair != there[i])
                raise Broken(f"{reader} saw {seen[at]} in {spot}, but the log has {there[at : at + 1]}")
            if starts:
                self._check_deleted(reader, spot, view)

    def _check_deleted(self, reader: str, spot: Spot, view: View) -> None:
        """Check that a consumer got all committed records up to its position that were not deleted before."""
        seen = {value: offset for offset, value in view.records}
        end = max(seen.values(), default=-1)
        for work in self.works:
            for value in (value for at, value in work.sent if at == spot):
                offset = self.offsets.get(value, -1)
                if seen.get(value, offset) != offset and not self._may_come_twice(spot, offset, seen[value]):
                    raise Broken(
                        f"{reader} saw {value!r} at {seen[value]} of {spot}, but it was written at {offset}"
                    )
                if work.verdict is not Verdict.COMMITTED or value in seen or not 0 <= offset < end:
                    continue
                if not view.has_jumped(offset):
                    raise Broken(f"{reader} has missed {value!r} at offset {offset} of {spot}")

    def _may_come_twice(self, spot: Spot, written: int, seen: int) -> bool:
        """Whether a retry may have appended a batch again at ``seen``, after the batch at ``written`` was deleted.

        A leader that builds its producer state from the new log start does not have the batch's sequence, as in
        Kafka. ``written`` is -1 if the offset is unknown.
        """
        return written < 0 or any(written < cut <= seen for cut in self.cuts.get(spot, ()))

    def check_markers(self, markers: dict[Spot, dict[int, int]]) -> None:
        """Check that read_committed consumers got records of a transaction only after its marker was committed.

        That is, the Fetch response has a high watermark above the marker's offset. ``markers``: by partition, the
        offset of the marker of each transactional record, by the record's offset.
        """
        for (reader, spot), view in self.views.items():
            if view.isolation != "read_committed":
                continue
            for (offset, value), high_watermark in zip(view.records, view.seen_below, strict=True):
                marker = markers[spot].get(offset, -1)
                if marker >= high_watermark:
                    raise Broken(
                        f"{reader} saw {value!r} of {spot} in a response with high watermark {high_watermark}; "
                        f"the marker is at {marker}"
                    )


def _check_order(spot: Spot, values: list[bytes]) -> None:
    latest: dict[str, tuple[int, ...]] = {}
    for value in values:
        if value.startswith(b"copy "):
            continue
        producer, *numbers = value.decode().split("/")
        at = tuple(map(int, numbers))
        if at <= latest.get(producer, (-1,)):
            raise Broken(f"{value!r} comes after the later {producer}/{latest[producer]} in {spot}")
        latest[producer] = at


def check_copies(
    source: Spot, committed_offset: int, read: list[tuple[int, bytes]], copies: list[bytes]
) -> None:
    """Check consume-transform-produce: exactly the records below the committed offset were copied, once, in order."""
    expected = [f"copy {source[1]}:{offset}".encode() for offset, _ in read if offset < committed_offset]
    if copies != expected:
        wrong = next(
            (i for i, pair in enumerate(zip(copies, expected, strict=False)) if pair[0] != pair[1]),
            min(len(copies), len(expected)),
        )
        raise Broken(
            f"{source} is consumed up to {committed_offset}: copy {wrong} is {copies[wrong : wrong + 1]}, "
            f"not {expected[wrong : wrong + 1]} ({len(copies)} copies, {len(expected)} expected)"
        )
