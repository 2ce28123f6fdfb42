"""``--until auto``: the first run without faults selects the condition under which runs are done."""

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
"""How long a job that has committed all its input may take to end by itself, in seconds."""
IDLE_S: Final = stretched(3.0)
"""Minimum idle time after which a job that commits no offsets to Kafka counts as done, in seconds."""
IDLE_MIN_S: Final = 2.0
PAUSES: Final = 3.0
"""A pause counts as the end of the job's work if it is longer than the longest earlier pause by this factor."""


class Choice:
    """The observer of one run that selects the condition under which later runs are done."""

    def __init__(
        self,
        progress: Progress,
        job: Job,
        is_right: IsRight | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress, self._job, self._is_right, self._now_s = progress, job, is_right, now_s
        self.since: float | None = None
        """Time since which the lag of the input has been 0; None while the lag is above 0."""

    def made(self) -> Until | None:
        """The selected condition; None while the observed run does not show which one fits.

        ``exit`` if all instances end with code 0. ``lag=0`` if a group commits all the input and the job keeps running.
        ``check`` if the job is idle and the check accepts its outputs. Otherwise ``idle``, longer than any pause of the job.
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
        # A member that has just joined is working, although it has not requested a change yet.
        idle_s = min(self._progress.idle_s(), self._progress.work_idle_s)
        if idle_s < IDLE_S or idle_s < self._progress.rest_s():
            return None
        if self._is_right is not None and self._progress.says(self._is_right) is True:
            return Until("check")
        return Until("idle", round(max(IDLE_MIN_S, PAUSES * self._progress.longest_pause_s), 1))
