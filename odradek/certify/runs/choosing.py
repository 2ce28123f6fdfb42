"""``--until auto``: when runs of a job are done is chosen by its first run without faults."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from odradek.certify.jobs.job import Job
from odradek.certify.runs.progress import IsRight, Progress
from odradek.certify.runs.until import Until
from odradek.deadlines import stretched
from odradek.errors import OdradekError

ENDS_S: Final = stretched(1.0)
"""What a job that has committed all of its input gets to end by itself."""
IDLE_S: Final = stretched(3.0)
"""A job that does nothing for so long, at least, has done its work, though it has not committed it to Kafka."""
IDLE_MIN_S: Final = 2.0
PAUSES: Final = 3.0
"""So many times the longest pause of the run without faults is no pause any more."""


class Choice:
    """Looks at one run until it is clear when a run is done."""

    def __init__(
        self,
        progress: Progress,
        job: Job,
        is_right: IsRight | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress, self._job, self._is_right, self._now_s = progress, job, is_right, now_s
        self.since: float | None = None
        """When the run was done, where it is known only later that it was."""

    def made(self) -> Until | None:
        """None while it is not clear.

        ``exit`` if all instances end with code 0; ``lag=0`` if a group commits all of the input, and the job goes on then;
        ``check`` if the job has come to rest and the check says yes; else ``idle``, longer than any pause of the job.
        """
        if self._job.has_ended:
            return Until("exit") if self._job.completed and not self._job.given_up else None
        try:
            return self._of_a_job_that_lives()
        except OdradekError:
            return None

    def _of_a_job_that_lives(self) -> Until | None:
        if self._progress.is_lag_zero():
            if self.since is None:
                self.since = self._now_s()
            return Until("lag") if self._now_s() - self.since >= ENDS_S else None
        self.since = None
        # A member that has joined is at work, though it has not asked for a change yet.
        idle_s = min(self._progress.idle_s(), self._progress.work_idle_s)
        if idle_s < IDLE_S or idle_s < self._progress.rest_s():
            return None
        if self._is_right is not None and self._progress.says(self._is_right) is True:
            return Until("check")
        return Until("idle", round(max(IDLE_MIN_S, PAUSES * self._progress.longest_pause_s), 1))
