"""Rate limits for log lines that clients cause: a token bucket for each kind of line, and a count of suppressed lines.

A fuzzer, a scanner or a client in a loop causes the same line thousands of times, which would hide everything else.
Only lines that have a field ``connection``, or whose event is in ``CAUSED_BY_CLIENTS``, are ever suppressed, not lines
about the broker itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

BURST_LINES: Final = 20
LINES_PER_S: Final = 1.0
# Number of kinds with a bucket of their own. All further kinds share one bucket.
KINDS_MAX: Final = 100
# The field that distinguishes kinds of one event. Other fields contain names chosen by clients, that is, any number of
# values.
KIND_FIELDS: Final = {
    "authorization denied": "operation",
    "connection closed": "reason",
    "request failed": "api",
    "accept paused": "reason",
    "batch refused": "error",
}
# Events that are limited although no single connection is known.
CAUSED_BY_CLIENTS: Final = frozenset(
    {"accept paused", "batch refused", "group looked up, and not used", "topic not created"}
)

Kind = tuple[str, str]
OTHERS: Final[Kind] = ("", "")


class _Bucket:
    __slots__ = ("suppressed", "tokens", "updated_s")

    def __init__(self, now_s: float) -> None:
        self.tokens = float(BURST_LINES)
        self.updated_s = now_s
        self.suppressed = 0


class RateLimit:
    """The rate limits for all log lines of a process. Called with each line before it is logged."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._buckets: dict[Kind, _Bucket] = {}
        self._lock = threading.RLock()
        self.on_first_suppressed: Callable[[], object] = bool
        """Called when lines begin to be suppressed, and again for the first suppressed line after each `take`."""
        self._is_told = False

    def __call__(self, event: dict[str, Any]) -> bool:
        """Whether the line may be logged. Adds to the line how many lines of its kind were suppressed before."""
        if "connection" not in event and event.get("event") not in CAUSED_BY_CLIENTS:
            return True
        with self._lock:
            bucket = self._bucket(_kind(event))
            if bucket.tokens >= 1:
                bucket.tokens -= 1
                if bucket.suppressed:
                    event["suppressed"], bucket.suppressed = bucket.suppressed, 0
                return True
            bucket.suppressed += 1
            is_first, self._is_told = not self._is_told, True
        if is_first:
            self.on_first_suppressed()
        return False

    def take(self) -> list[tuple[str, dict[str, object]]]:
        """Return a line (event, fields) for each kind of lines that has suppressed lines not reported yet."""
        found: list[tuple[str, dict[str, object]]] = []
        with self._lock:
            self._is_told = False
            for kind, bucket in self._buckets.items():
                if bucket.suppressed:
                    found.append(("log lines suppressed", {"of": _name(kind), "lines": bucket.suppressed}))
                    bucket.suppressed = 0
        return found

    def _bucket(self, kind: Kind) -> _Bucket:
        now_s = self._monotonic_s()
        if kind not in self._buckets and len(self._buckets) >= KINDS_MAX:
            kind = OTHERS
        bucket = self._buckets.setdefault(kind, _Bucket(now_s))
        bucket.tokens = min(BURST_LINES, bucket.tokens + (now_s - bucket.updated_s) * LINES_PER_S)
        bucket.updated_s = now_s
        return bucket


def _kind(event: dict[str, Any]) -> Kind:
    what = str(event.get("event"))
    return what, str(event.get(KIND_FIELDS.get(what, ""), ""))


def _name(kind: Kind) -> str:
    return ": ".join(filter(None, kind)) or "other kinds"
