"""Find out when a job commits offsets, from the broker's trace, so that the lag is queried only after commits."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

from odradek.errors import OdradekError
from odradek.remote import Trace

APIS: Final = ("OffsetCommit", "EndTxn")
"""APIs whose requests commit offsets: EndTxn commits the offsets of its transaction."""
PER_SECOND: Final = 20
"""Maximum number of exchanges per second and API that the trace sends; more would add nothing."""


class Commits:
    """Finds the time of the job's last offset commit in the broker's trace, from `follow` until the broker ends."""

    def __init__(self, trace: Trace, now_s: Callable[[], float] = time.monotonic) -> None:
        self._trace, self._now_s = trace, now_s
        self._followed: set[str] = set()
        self._last_s = 0.0

    def follow(self) -> None:
        """Start to follow the trace, which must be on. A second call does nothing."""
        if not self._followed:
            for api in APIS:
                self._followed.add(api)
                threading.Thread(target=self._follow, args=(api,), daemon=True).start()

    @property
    def last_s(self) -> float:
        """Time at which the last commit ended, by the monotonic clock; the current time if unknown."""
        return self._last_s if len(self._followed) == len(APIS) else self._now_s()

    def _follow(self, api: str) -> None:
        with (
            contextlib.suppress(OdradekError, OSError),
            self._trace.follow(api=api, bodies=False, per_second=PER_SECOND) as exchanges,
        ):
            for _ in exchanges:
                self._last_s = self._now_s()
        self._followed.discard(api)
