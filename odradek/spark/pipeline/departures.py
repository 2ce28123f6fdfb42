"""The stream: each flight is told when it leaves, and counts for the hour in which it should have left.

So the records are out of order in event time, as real ones are: a flight that leaves 21 hours late is told after 21
hours of others. ``WATERMARK_DELAY`` is longer than that, and because every partition holds its flights in the order in
which they were told, none of them is late for a watermark of its partition (``job.py``).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cache
from typing import Final, NamedTuple

from odradek.demo.flights import CARRIER, COLUMNS, DEP_DELAY, DEST, FLIGHT, ORIGIN, UNKNOWN

WATERMARK_DELAY: Final = timedelta(hours=24)
CLOSING: Final = "2100-01-01T00:00:00Z"
"""Event time of the record that ends each partition: no window before it stays open. It is no flight."""
_TAIL_NUMBER, _MINUTE, _HOUR_UTC = (COLUMNS.index(name) for name in ("tailnum", "minute", "time_hour"))


class Departure(NamedTuple):
    """A flight on its way into the topic."""

    told: int
    """When it left, in minutes since 1970, UTC; a flight that was cancelled is told at its time."""
    scheduled: int
    key: str
    """The aircraft: its flights stay in one partition, in order."""
    value: str
    """What is told, as JSON, without its number and the first brace (``in_order`` puts those in front)."""


@cache
def _minutes(hour: str) -> int:
    return int(datetime.fromisoformat(hour).timestamp()) // 60


def departure(fields: list[str]) -> Departure:
    """A line of the file as a departure. ``time_hour`` is the hour of the schedule in UTC."""
    hour, minute = fields[_HOUR_UTC], int(fields[_MINUTE])
    delay = None if fields[DEP_DELAY] == UNKNOWN else int(float(fields[DEP_DELAY]))
    value = (
        f'"scheduled":"{hour[:14]}{minute:02}:00Z","flight":"{fields[CARRIER]}{fields[FLIGHT]}",'
        f'"origin":"{fields[ORIGIN]}","dest":"{fields[DEST]}",'
        f'"delay_minutes":{"null" if delay is None else delay}}}'
    )
    scheduled = _minutes(hour) + minute
    return Departure(scheduled + (delay or 0), scheduled, fields[_TAIL_NUMBER], value)


def in_order(lines: Iterable[str], count: int | None = None) -> list[Departure]:
    """The first ``count`` departures in the order in which they are told, each with its number in its value."""
    told = sorted((departure(fields) for fields in csv.reader(lines)), key=lambda each: each.told)
    return [each._replace(value=f'{{"row":{row},{each.value}') for row, each in enumerate(told[:count])]


def disorder(departures: Iterable[Departure]) -> timedelta:
    """How far a departure lies behind the latest schedule that was told before it, at most."""
    most, latest = 0, None
    for each in departures:
        latest = each.scheduled if latest is None else max(latest, each.scheduled)
        most = max(most, latest - each.scheduled)
    return timedelta(minutes=most)


def closing_value() -> str:
    """The last record of a partition."""
    return json.dumps({"scheduled": CLOSING, "closing": True})
