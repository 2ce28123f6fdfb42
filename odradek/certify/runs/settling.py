"""Wait for late records of a job: its outputs must be unchanged for a while before they are judged."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from odradek.certify.jobs.job import Job
from odradek.certify.runs.arrivals import Arrivals
from odradek.certify.runs.patience import Patience
from odradek.certify.runs.progress import IsRight, Progress
from odradek.certify.runs.staging import Staging
from odradek.deadlines import stretched

LOOK_PAUSE_S: Final = 0.03
LOOK_PAUSE_MAX_S: Final = 0.2
"""The pause is a tenth of the wait so far, between these two: each look is several calls of the control port."""
SETTLES_S: Final = stretched(0.5)
"""Minimum time for which outputs that are not correct must be unchanged, in seconds."""
REFERENCE_S: Final = stretched(1.0)
"""Time for which the outputs of a run without faults must be unchanged, in seconds. Later runs may wait less."""
LONGEST_S: Final = stretched(20.0)
"""Maximum wait for unchanged outputs, in seconds, for a job that writes permanently."""
COMES_S: Final = stretched(15.0)
"""How long an instance that was started again may take to send its first request, in seconds."""
FACTOR: Final = 3.0
"""Factor on ``settle_s`` in `stillness_s`, for outputs that are not correct."""
AT_ONCE_S: Final = 0.05
"""If a job writes its last record within this time after the end of its work, later runs do not wait for more."""


def stillness_s(settle_s: float, *, is_right: bool) -> float:
    """Seconds for which the outputs must be unchanged until a run counts as settled.

    ``settle_s`` is how long the job still wrote after the end of its work in a run without faults.

    >>> stillness_s(0.02, is_right=True), stillness_s(0.4, is_right=True), stillness_s(0.4, is_right=False)
    (0.0, 0.4, 1.2000000000000002)
    """
    if is_right:
        return settle_s if settle_s > AT_ONCE_S else 0.0
    return max(SETTLES_S, FACTOR * settle_s)


class Settling:
    """The wait of one run, after its job has done its work, until the outputs are unchanged for long enough."""

    def __init__(
        self,
        job: Job,
        staging: Staging,
        progress: Progress,
        arrivals: Arrivals,
        patience: Patience,
        is_right: IsRight | None,
        now_s: Callable[[], float] = time.monotonic,
        *,
        may_repeat: bool = False,
    ) -> None:
        """``is_right`` is None in a run without faults. ``may_repeat``: a client may still send a request again."""
        self._may_repeat = may_repeat
        self._job, self._staging, self._progress = job, staging, progress
        self._arrivals, self._patience, self._is_right, self._now_s = arrivals, patience, is_right, now_s
        self._began = now_s()
        self._arrived_s: float | None = None
        """Monotonic time at which the last restarted instance sent its first request; None if none was awaited."""

    def wait(self, at_s: float, settle_s: float | None) -> float:
        """Wait until the outputs are unchanged. Returns the seconds from ``at_s`` to the last record.

        ``settle_s`` is None in a run without faults.
        """
        while not self._is_over(settle_s):
            time.sleep(min(max(LOOK_PAUSE_S, (self._now_s() - self._began) / 10), LOOK_PAUSE_MAX_S))
            self._job.supervise()
            self._staging.time.keep()
        if settle_s == 0.0:
            return 0.0
        return max(0.0, self._now_s() - self._progress.records_still_s - at_s)

    def _is_over(self, settle_s: float | None) -> bool:
        waited_s = self._now_s() - self._began
        if not self._arrivals.are_complete and waited_s < COMES_S:
            self._arrived_s = self._now_s()
            return False
        is_right = self._progress.says(self._is_right) if self._is_right is not None else False
        if is_right is None:
            return self._job.has_ended or bool(self._patience.over(self._progress.newest_write()))
        if waited_s > LONGEST_S or self._patience.has_no_time:
            return True
        enough_s = REFERENCE_S if settle_s is None else stillness_s(settle_s, is_right=is_right)
        if self._may_repeat or self._arrived_s is not None:
            enough_s = max(
                enough_s, SETTLES_S
            )  # also for correct outputs, because records may be written again
        return enough_s == 0.0 or self._still_s() >= enough_s

    def _still_s(self) -> float:
        still_s = self._progress.records_still_s
        return still_s if self._arrived_s is None else min(still_s, self._now_s() - self._arrived_s)
