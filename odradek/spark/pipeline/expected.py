"""The expected results, computed from the flights file with plain Python, independently of the Spark job."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from odradek.demo.flights import UNKNOWN

LATE_MINUTES: Final = 15
"""A flight that departs more than this number of minutes after its scheduled time is delayed, as in official statistics."""
NEW_YORK: Final = ZoneInfo("America/New_York")

Row = Mapping[str, object]


@dataclass(slots=True)
class _Hour:
    flights: int = 0
    delays: list[int] = field(default_factory=list)

    def row(self, origin: str, hour: str) -> Row:
        known = len(self.delays)
        return {
            "origin": origin,
            "hour": hour,
            "flights": self.flights,
            "departed": known,
            "mean_delay_minutes": sum(self.delays) / known if known else None,
            "max_delay_minutes": max(self.delays, default=None),
            "delayed_share": sum(each > LATE_MINUTES for each in self.delays) / known if known else None,
        }


def key_of(row: Row) -> str:
    """The key of a row, as ``JFK 2013-01-01T10:00:00Z``: airport, and the beginning of the hour in UTC."""
    return f"{row['origin']} {row['hour']}"


def statistics(path: Path, count: int | None = None) -> dict[str, Row]:
    """The expected rows by ``key_of``: one per airport and hour, for the first ``count`` flights to depart."""
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as stream:
        return _statistics(csv.DictReader(io.TextIOWrapper(stream, "utf-8")), count)


def _statistics(flights: Iterable[Mapping[str, str]], count: int | None) -> dict[str, Row]:
    left: list[tuple[datetime, str, datetime, int | None]] = []
    for flight in flights:
        year, month, day, hour, minute = (
            int(flight[each]) for each in ("year", "month", "day", "hour", "minute")
        )
        scheduled = datetime(year, month, day, hour, minute, tzinfo=NEW_YORK).astimezone(UTC)
        delay = None if flight["dep_delay"] == UNKNOWN else int(float(flight["dep_delay"]))
        left.append((scheduled + timedelta(minutes=delay or 0), flight["origin"], scheduled, delay))
    left.sort(key=lambda each: each[0])
    hours: dict[tuple[str, str], _Hour] = {}
    for _, origin, scheduled, delay in left[:count]:
        name = scheduled.replace(minute=0).isoformat().replace("+00:00", "Z")
        found = hours.setdefault((origin, name), _Hour())
        found.flights += 1
        if delay is not None:
            found.delays.append(delay)
    rows = [found.row(origin, name) for (origin, name), found in hours.items()]
    return {key_of(row): row for row in rows}
