"""What clients did, what they were told, and what readers saw: the material of the checks at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

Spot = tuple[str, int]
"""(topic, partition)."""


class Broken(AssertionError):
    """Something that must always hold does not; the text says what was seen."""


class Verdict(Enum):
    """What a client knows of its transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Work:
    """One transaction, or one batch of an idempotent producer: all of it is visible, or nothing."""

    producer: str
    number: int
    sent: list[tuple[Spot, bytes]] = field(default_factory=list)
    verdict: Verdict = Verdict.OPEN

    def value(self, spot: Spot) -> bytes:
        """The next value to send to a partition."""
        value = f"{self.producer}/{self.number}/{len(self.sent)}".encode()
        self.sent.append((spot, value))
        return value


@dataclass(slots=True)
class View:
    """What one reader saw of one partition."""

    isolation: str
    records: list[tuple[int, bytes]] = field(default_factory=list)
    seen_below: list[int] = field(default_factory=list)
    """Of each record the high watermark that came with it."""
    _offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def saw_offsets(self, spot: Spot, leader_epoch: int, high_watermark: int, last_stable: int) -> None:
        """In one leader epoch neither goes back, and the LSO is never above the high watermark."""
        before = self._offsets.get(leader_epoch, (-1, -1))
        if high_watermark < before[0] or last_stable < before[1] or last_stable > high_watermark:
            raise Broken(
                f"{spot} in epoch {leader_epoch}: high watermark and LSO were {before}, "
                f"now {(high_watermark, last_stable)}"
            )
        self._offsets[leader_epoch] = (high_watermark, last_stable)

    def saw(self, records: Iterable[tuple[int, bytes]], high_watermark: int = -1) -> None:
        for offset, value in records:
            if self.records and offset <= self.records[-1][0]:
                raise Broken(f"offset {offset} came after {self.records[-1][0]}")
            self.records.append((offset, value))
            self.seen_below.append(high_watermark)


class Ledger:
    """Everything of one run."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.views: dict[tuple[str, Spot], View] = {}
        self.copied: dict[Spot, list[tuple[bytes, bytes]]] = {}

    def begin(self, producer: str, number: int) -> Work:
        work = Work(producer, number)
        self.works.append(work)
        return work

    def view(self, reader: str, spot: Spot, isolation: str) -> View:
        return self.views.setdefault((reader, spot), View(isolation))

    # ---- the checks

    def check_works(self, content: dict[Spot, list[tuple[int, bytes]]]) -> None:
        """All or nothing of each piece of work, as its producer was told; nothing twice; order kept."""
        where: dict[bytes, Spot] = {}
        for spot, records in content.items():
            for _, value in records:
                if value in where:
                    raise Broken(f"{value!r} is visible twice, in {where[value]} and {spot}")
                where[value] = spot
        for work in self.works:
            self._check_work(work, where)
        known = {value for work in self.works for _, value in work.sent}
        for value, spot in where.items():
            if value not in known and not value.startswith(b"copy "):
                raise Broken(f"no client sent {value!r}, which is visible in {spot}")
        for spot, records in content.items():
            _check_order(spot, [value for _, value in records])

    @staticmethod
    def _check_work(work: Work, where: dict[bytes, Spot]) -> None:
        visible = [value for spot, value in work.sent if where.get(value) == spot]
        name = f"{work.producer}/{work.number} ({work.verdict.value})"
        if len(visible) not in (0, len(work.sent)):
            raise Broken(f"{name}: only {visible} is visible of {[value for _, value in work.sent]}")
        if work.verdict is Verdict.COMMITTED and len(visible) != len(work.sent):
            raise Broken(f"{name}: it was acknowledged, and is not visible")
        if work.verdict is Verdict.ABORTED and visible:
            raise Broken(f"{name}: {visible} is visible")

    def check_views(
        self, committed: dict[Spot, list[tuple[int, bytes]]], everything: dict[Spot, list[tuple[int, bytes]]]
    ) -> None:
        """What readers saw is what is there, from the beginning on, without a gap."""
        for (reader, spot), view in self.views.items():
            there = (committed if view.isolation == "read_committed" else everything)[spot]
            if view.records != there[: len(view.records)]:
                at = next(i for i, pair in enumerate(view.records) if i >= len(there) or pair != there[i])
                raise Broken(
                    f"{reader} saw {view.records[at]} in {spot}, where there is {there[at : at + 1]}"
                )

    def check_markers(self, markers: dict[Spot, dict[int, int]]) -> None:
        """Who reads what is committed gets a record of a transaction once its marker is, and not before.

        ``markers``: of each offset of a transaction the offset of the marker that ended it.
        """
        for (reader, spot), view in self.views.items():
            if view.isolation != "read_committed":
                continue
            for (offset, value), high_watermark in zip(view.records, view.seen_below, strict=True):
                marker = markers[spot].get(offset, -1)
                if marker >= high_watermark:
                    raise Broken(
                        f"{reader} saw {value!r} of {spot} under the high watermark {high_watermark}; "
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
            raise Broken(f"{value!r} comes after {producer}/{latest[producer]} in {spot}")
        latest[producer] = at


def check_copies(
    source: Spot, committed_offset: int, read: list[tuple[int, bytes]], copies: list[bytes]
) -> None:
    """Offsets and records of consume-transform-produce are one: what lies before the offset was copied, once, in order."""
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
