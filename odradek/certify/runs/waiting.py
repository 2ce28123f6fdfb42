"""Wait for the end of a run: the job has done its work, has ended early, is idle for too long, or exceeds its deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from odradek.certify.jobs.job import Job
from odradek.certify.judging.findings import Ending
from odradek.certify.runs.choosing import Choice
from odradek.certify.runs.holding import HeldMoment, OnHold
from odradek.certify.runs.patience import Patience
from odradek.certify.runs.progress import IsRight, Progress
from odradek.certify.runs.staging import Staging
from odradek.certify.runs.telling import Telling
from odradek.certify.runs.until import Until

LOOK_PAUSE_S: Final = 0.02
CRASHES: Final = 3
"""Number of exits with an error, while nothing else happens, after which the job is not expected to do its work."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run, with its time by the monotonic clock, and the reason if the job did not finish (``why_not``)."""

    ending: Ending
    at_s: float
    why_not: str = ""


class Watch:
    """The wait for the end of one run. ``until`` is the condition; a selected condition replaces ``auto``."""

    def __init__(
        self,
        job: Job,
        staging: Staging,
        progress: Progress,
        patience: Patience,
        until: Until,
        is_right: IsRight | None = None,
        telling: Telling | None = None,
    ) -> None:
        """``telling`` is set only in a run without faults.

        Such a run ends early if the last three exits of the job have the same nonzero exit code.
        """
        self._telling = telling
        self._job, self._staging, self._progress, self._patience = job, staging, progress, patience
        self.until, self._is_right = until, is_right
        self._choice = Choice(progress, job, is_right)
        self._tried_at = self._changed_at = self._exits = 0
        self.is_fed: Callable[[], bool] = lambda: True
        """Whether the job has got all its input; the run is not over before. Input in topics is there from the start."""

    def wait(self, on_hold: OnHold | None) -> End:
        while True:
            if on_hold is not None and (held := self._staging.next_held()) is not None:
                self._stand_still(held, on_hold)
            self._job.supervise()
            if self._telling is not None:
                self._telling.look(self._waits_for)
                if self._job.died_alike >= CRASHES:
                    return self._end(Ending.OVERDUE, self._why_it_dies())
            # The condition is checked again after the actions have ended: an action may have started an instance.
            is_over = self._may_be_over() and self._staging.is_over
            if is_over and (end := self._at_the_end()) is not None:
                return end
            self._staging.time.keep()
            if self._patience.asks_now() and (end := self._at_rest()) is not None:
                return end
            time.sleep(LOOK_PAUSE_S)

    def _stand_still(self, held: HeldMoment, on_hold: OnHold) -> None:
        began = time.monotonic()
        on_hold(held)
        self._progress.begin_again()
        held.go_on()
        self._patience.stood_still(time.monotonic() - began)

    def _waits_for(self) -> str:
        return f"waiting until {self.until.words}"

    def _why_it_dies(self) -> str:
        return f"the job ended {CRASHES} times with exit code {self._job.exits[-1].code}"

    def _may_be_over(self) -> bool:
        if not self.is_fed() and not self._job.has_ended:
            return False
        if not self.until.is_chosen and (chosen := self._choice.made()) is not None:
            self.until = chosen
        return self._job.has_ended or self._is_done()[0]

    def _is_done(self) -> tuple[bool, bool]:
        return self._progress.state(self.until, self._is_right) if self.until.is_chosen else (False, False)

    # -- the job has done its work, or all instances have ended ----------------------------------------------------

    def _at_the_end(self) -> End | None:
        has_ended = self._job.has_ended
        is_done, is_open = self._is_done()
        if is_done and is_open and self._staging.time.ends_open_transactions(are_left=has_ended):
            self._patience.begins_again()
            return None
        if is_done and (not is_open or has_ended or self.until.what in ("exit", "idle")):
            at_s = self._choice.since if self._choice.since is not None else time.monotonic()
            return End(Ending.FINISHED, at_s)
        return self._ended() if has_ended else None

    def _ended(self) -> End:
        if self._job.given_up or not self._job.completed:
            codes = " and ".join(map(str, sorted({each.code for each in self._job.exits if each.code})))
            why = f"all instances have ended before {self.until}, and none is restarted"
            why += f" (exit code {codes})" if codes else ""
            return self._end(Ending.OVERDUE, why)
        return self._end(Ending.UNFINISHED, f"all instances have ended with code 0 before {self.until}")

    def _end(self, ending: Ending, why_not: str = "") -> End:
        return End(ending, time.monotonic(), why_not)

    # -- the job is idle -------------------------------------------------------------------------------------------

    def _at_rest(self) -> End | None:
        newest = self._progress.newest_write()
        if newest != self._changed_at:
            self._changed_at, self._exits = newest, len(self._job.exits)
        if said := self._patience.over(newest):
            why_not = f"{self.until} was not reached: {said}"
            if self._patience.has_no_time:
                return self._end(Ending.OVERDUE, why_not)
            if self._staging.time.ends_rest():
                self._patience.begins_again()
                return None
            return self._given_up(why_not)
        if self._may_be_right_already() and self._is_right_already():
            return self._end(Ending.FINISHED)
        return None

    def _given_up(self, why_not: str) -> End:
        crashes = [each.code for each in self._job.exits[self._exits :] if each.code]
        if len(crashes) >= CRASHES:
            return self._end(Ending.OVERDUE, f"{why_not}; instances keep ending with exit code {crashes[-1]}")
        if self._is_right_already() or self._is_refused():
            return self._end(Ending.FINISHED)
        return self._end(Ending.IDLE, why_not)

    def _may_be_right_already(self) -> bool:
        """Whether it is worth checking the outputs: the job has been idle for a while, and no timeout is pending."""
        rest_s, work = self._patience.rest_s, self._progress.newest_work()
        if rest_s is None or self._progress.work_idle_s < rest_s or work == self._tried_at:
            return False
        self._tried_at = work
        return self._staging.is_over and self._staging.time.owes_nothing

    def _is_right_already(self) -> bool:
        """Whether the outputs are correct although the lag is not 0: the job starts from offsets outside Kafka."""
        if self.until.what != "lag" or self._is_right is None or not self._job.alive:
            return False
        if self._progress.asked(self._is_right) is not True:
            return False
        self._staging.notes.append(
            "lag=0 was not reached, but the job is at rest, and its outputs are correct"
        )
        return True

    def _is_refused(self) -> bool:
        """Whether the run waits for the check, and the check refuses the outputs."""
        return (
            self.until.what == "check"
            and self._is_right is not None
            and self._progress.asked(self._is_right) is False
        )
