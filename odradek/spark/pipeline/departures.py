"""The input records: each flight is written when it departs, and counts for the hour in which it was scheduled.

So the records are out of order in event time, as real data are: a flight that departs 21 hours late is written after 21
hours of other flights. ``WATERMARK_DELAY`` is longer than the largest such delay. Because every partition has its flights in
the order of departure, no flight is late for the watermark of its partition (``job.py``).
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
"""Event time of the record that ends each partition and closes all windows. That record is not a flight."""
_TAIL_NUMBER, _MINUTE, _HOUR_UTC = (COLUMNS.index(name) for name in ("tailnum", "minute", "time_hour"))


class Departure(NamedTuple):
    """A flight as a record for the source topic."""

    departed: int
    """Time of departure in minutes since 1970, UTC; for a cancelled flight the scheduled time."""
    scheduled: int
    key: str
    """The record's key: the aircraft, so that the flights of an aircraft are in one partition, in order."""
    value: str
    """The record's value as JSON, without the opening brace and the number of the row, which ``in_order`` prepends."""


@cache
def _minutes(hour: str) -> int:
    return int(datetime.fromisoformat(hour).timestamp()) // 60


def departure(fields: list[str]) -> Departure:
    """Parse the fields of a line of the flights file. The column ``time_hour`` is the scheduled hour in UTC."""
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
    """The first ``count`` departures in the order of departure, each with its row number in the record's value."""
    ordered = sorted((departure(fields) for fields in csv.reader(lines)), key=lambda each: each.departed)
    return [each._replace(value=f'{{"row":{row},{each.value}') for row, each in enumerate(ordered[:count])]


def disorder(departures: Iterable[Departure]) -> timedelta:
    """How far flights are out of order: the most that a scheduled time is before one of an earlier departure."""
    most, latest = 0, None
    for each in departures:
        latest = each.scheduled if latest is None else max(latest, each.scheduled)
        most = max(most, latest - each.scheduled)
    return timedelta(minutes=most)


def closing_value() -> str:
    """The value of a partition's closing record, as JSON."""
    return json.dumps({"scheduled": CLOSING, "closing": True})
