"""The conditions that end a run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.certify.jobs.job import Exit
from odradek.certify.judging.findings import Ending
from odradek.certify.runs.arrivals import DEATHS, Arrivals
from odradek.certify.runs.choosing import ENDS_S, IDLE_S, Choice
from odradek.certify.runs.patience import Patience
from odradek.certify.runs.settling import REFERENCE_S, SETTLES_S, Settling, stillness_s
from odradek.certify.runs.until import Until
from odradek.certify.runs.waiting import End, Watch

LAG, EXIT = Until("lag"), Until("exit")


class Time:
    """A clock that advances by 0.3 s with each sleep, so that nothing really waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, _: float) -> None:
        self.now_s += 0.3


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr("time.sleep", time.sleep)
    return time


class Job:
    """A fake job whose instance is alive until `supervise` has been called ``lives`` times."""

    def __init__(
        self, *exits: Exit, lives: int = 1_000_000, completed: bool = False, given_up: int = 0
    ) -> None:
        self.exits, self.kills, self.given_up = list(exits), 0, given_up
        self.completed = {1} if completed else set()
        self._lives = lives

    @property
    def alive(self) -> list[Any]:
        return [] if self.has_ended else [SimpleNamespace(number=1)]

    @property
    def has_ended(self) -> bool:
        return self._lives <= 0

    def supervise(self) -> None:
        self._lives -= 1


class Progress:
    """The fake progress of a run.

    Each call of `state` returns the next element of ``done``; after the last element, always that element.
    """

    def __init__(
        self,
        *done: tuple[bool, bool],
        right: bool | None = False,
        lag: bool = False,
        work: int = 1,
        idle_s: float = 0.0,
        rest_s: float = 0.0,
    ) -> None:
        self._done: Iterator[tuple[bool, bool]] = chain(done, repeat(done[-1] if done else (False, False)))
        self.right, self.lag, self.work, self._idle_s = right, lag, work, idle_s
        self.work_idle_s, self.records_still_s, self.longest_pause_s = 1000.0, 1000.0, 0.2
        self.asked_for = 0
        self._rest_s = rest_s

    def state(self, until: Until, is_right: object) -> tuple[bool, bool]:
        return next(self._done)

    def asked(self, is_right: object) -> bool | None:
        self.asked_for += 1
        return self.right

    says = asked

    def newest_write(self) -> int:
        return self.work

    newest_work = newest_write

    def is_lag_zero(self) -> bool:
        return self.lag

    def idle_s(self) -> float:
        return self._idle_s

    def rest_s(self) -> float:
        return self._rest_s


class Staging:
    def __init__(self, *, owes: bool = False, over: Iterator[bool] | None = None) -> None:
        self.notes: list[str] = []
        self._over = over or repeat(True)
        self.rests = 0
        self.time = SimpleNamespace(
            keep=lambda: None,
            ends_rest=self._ends_rest,
            ends_open_transactions=lambda are_left: False,
            owes_nothing=not owes,
        )

    def _ends_rest(self) -> bool:
        self.rests += 1
        return self.rests == 1

    @property
    def is_over(self) -> bool:
        return next(self._over)

    def next_held(self) -> None: ...


def ended(
    time: Time,
    job: Job,
    progress: Progress,
    until: Until = LAG,
    staging: Staging | None = None,
    patience_s: float | None = 10.0,
    is_right: Any = bool,
) -> End:
    patience = Patience(60.0, patience_s, now_s=time)
    staged = staging or Staging()
    return Watch(cast(Any, job), cast(Any, staged), cast(Any, progress), patience, until, is_right).wait(None)


def test_a_job_that_has_done_its_work(time: Time) -> None:
    assert ended(time, Job(), Progress((False, False), (True, False))).ending is Ending.FINISHED


def test_an_act_that_ends_between_two_looks_has_started_what_it_starts(time: Time) -> None:
    """A fault that replaces an instance has started the next instance when its action ends.

    This is true even if the action ends between two checks of the run.
    """

    class Replaced(Job):
        looks = iter([True, False, False, False])

        @property
        def has_ended(self) -> bool:
            return next(self.looks, False)

    progress = Progress((False, False), (False, False), (True, False))
    assert ended(time, Replaced(), progress).ending is Ending.FINISHED


def test_nothing_is_over_while_an_act_is_under_way(time: Time) -> None:
    over = chain([False, False], repeat(True))
    ended(time, Job(), Progress((True, False)), staging=Staging(over=over))
    assert next(over)
    assert time.now_s >= 0.6


def test_all_instances_ended_with_code_0_before_the_input_was_done(time: Time) -> None:
    end = ended(time, Job(Exit(1, 0), lives=1, completed=True), Progress())
    assert (end.ending, end.why_not) == (
        Ending.UNFINISHED,
        "all instances have ended with code 0 before lag=0",
    )


def test_instances_that_ended_with_an_error_and_are_not_started_again(time: Time) -> None:
    end = ended(time, Job(Exit(1, 3), lives=1, given_up=1), Progress())
    assert end.ending is Ending.OVERDUE
    assert end.why_not == "all instances have ended before lag=0, and none is restarted (exit code 3)"


def test_a_job_that_is_alive_and_asks_for_nothing(time: Time) -> None:
    staging = Staging(owes=True)
    end = ended(time, Job(), Progress(), staging=staging)
    assert (end.ending, staging.rests) == (Ending.IDLE, 2)
    assert end.why_not == "lag=0 was not reached: the job has requested no change for 10 s"


def test_the_deadline(time: Time) -> None:
    end = ended(time, Job(), Progress(), patience_s=None)
    assert (end.ending, end.why_not) == (Ending.OVERDUE, "lag=0 was not reached: 60 s have passed")


def test_instances_that_crash_repeatedly_are_not_idle(time: Time) -> None:
    job = Job()

    class Crashing(Progress):
        def newest_write(self) -> int:
            job.exits.append(Exit(1, 2))
            return self.work

    end = ended(time, job, Crashing())
    assert end.ending is Ending.OVERDUE
    assert end.why_not.endswith("instances keep ending with exit code 2")


def test_positions_in_kafka_that_are_only_for_show_make_nothing_stuck(time: Time) -> None:
    staging = Staging()
    end = ended(time, Job(), Progress(right=True), staging=staging)
    assert end.ending is Ending.FINISHED
    assert staging.notes == ["lag=0 was not reached, but the job is at rest, and its outputs are correct"]
    assert time.now_s < 10.0


def test_outputs_are_not_right_while_a_time_out_is_ahead_that_may_change_them(time: Time) -> None:
    end = ended(time, Job(), Progress(right=True), staging=Staging(owes=True))
    assert end.ending is Ending.FINISHED
    assert time.now_s > 10.0


def test_an_idle_job_is_checked_once(time: Time) -> None:
    progress = Progress()
    ended(time, Job(), progress)
    assert progress.asked_for == 2


def test_a_job_that_does_not_end_by_itself_is_stuck_though_its_outputs_are_right(time: Time) -> None:
    assert ended(time, Job(), Progress(right=True), EXIT).ending is Ending.IDLE


@pytest.mark.parametrize(
    ("answer", "ending"), [(False, Ending.FINISHED), (None, Ending.IDLE)], ids=["no", "not yet"]
)
def test_a_check_that_never_says_yes(answer: bool | None, ending: Ending, time: Time) -> None:
    assert ended(time, Job(), Progress(right=answer), Until("check")).ending is ending


# -- auto -----------------------------------------------------------------------------------------------------------


def chosen(time: Time, job: Job, progress: Progress, is_right: Any = None) -> str:
    choice = Choice(cast(Any, progress), cast(Any, job), is_right, time)
    for _ in range(100):
        if (until := choice.made()) is not None:
            return str(until)
        time.sleep(0)
        job.supervise()
    return "nothing"


@pytest.mark.parametrize(
    ("job", "progress", "until"),
    [
        pytest.param(Job(lives=2, completed=True), Progress(), "exit", id="ends"),
        pytest.param(Job(lives=2, completed=True), Progress(lag=True), "exit", id="commits and ends"),
        pytest.param(Job(lives=2, given_up=1), Progress(), "nothing", id="dies"),
        pytest.param(Job(), Progress(lag=True), "lag=0", id="commits"),
        pytest.param(Job(), Progress(idle_s=IDLE_S), "idle=2s", id="rests"),
        pytest.param(Job(), Progress(idle_s=0.9 * IDLE_S), "nothing", id="works"),
        pytest.param(Job(), Progress(idle_s=IDLE_S, rest_s=10.0), "nothing", id="rebalances"),
    ],
)
def test_the_first_run_shows_when_runs_are_done(job: Job, progress: Progress, until: str, time: Time) -> None:
    assert chosen(time, job, progress) == until
    assert until != "lag=0" or time.now_s >= ENDS_S


def test_idle_is_longer_than_any_pause_of_the_job(time: Time) -> None:
    progress = Progress(idle_s=IDLE_S)
    progress.longest_pause_s = 1.5
    assert chosen(time, Job(), progress) == "idle=4.5s"


def test_a_check_that_says_yes_is_the_end_of_a_job_at_rest(time: Time) -> None:
    assert chosen(time, Job(), Progress(right=True, idle_s=IDLE_S), bool) == "check"
    assert chosen(time, Job(), Progress(right=False, idle_s=IDLE_S), bool) == "idle=2s"


def test_an_end_that_was_seen_late_is_dated_back(time: Time) -> None:
    choice = Choice(cast(Any, Progress(lag=True)), cast(Any, Job()), None, time)
    while choice.made() is None:
        time.sleep(0)
    assert choice.since == 0.0


# -- after the end --------------------------------------------------------------------------------------------------


class Instance:
    def __init__(self, number: int) -> None:
        self.number = number


class Instances(Job):
    """A fake job with one instance, which has died once and runs again."""

    def __init__(self) -> None:
        super().__init__(Exit(1, 1))
        self._one = Instance(1)

    @property
    def alive(self) -> list[Any]:
        return [self._one]

    def owner(self, peer: str) -> Any:
        return self._one


def settled(
    time: Time, progress: Progress, *, settle_s: float | None, job: Job | None = None, peers: Any = None
) -> float:
    """The seconds that ``Settling`` waits."""
    job = job or Job()
    observation = SimpleNamespace(peers=peers or (list))
    arrivals = Arrivals(cast(Any, job), cast(Any, observation), 1)
    patience = Patience(60.0, 10.0, now_s=time)
    staging = cast(Any, Staging())
    progress.records_still_s = 0.0
    began = time.now_s

    class Still:
        def __getattr__(self, name: str) -> Any:
            return time.now_s - began if name == "records_still_s" else getattr(progress, name)

    Settling(cast(Any, job), staging, cast(Any, Still()), arrivals, patience, cast(Any, bool), time).wait(
        began, settle_s
    )
    return time.now_s - began


def test_right_outputs_are_not_waited_for(time: Time) -> None:
    assert settled(time, Progress(right=True), settle_s=0.0) == 0.0


def test_outputs_that_come_behind_the_commit_have_to_be_still(time: Time) -> None:
    assert settled(time, Progress(right=True), settle_s=0.8) >= 0.8
    assert settled(time, Progress(right=False), settle_s=0.8) >= stillness_s(0.8, is_right=False) > 2.0


def test_outputs_that_are_not_right_get_a_moment(time: Time) -> None:
    assert settled(time, Progress(right=False), settle_s=0.0) >= SETTLES_S


def test_a_run_without_faults_is_observed_longer(time: Time) -> None:
    assert settled(time, Progress(right=True), settle_s=None) >= REFERENCE_S


def test_a_check_that_says_not_yet_is_asked_as_long_as_the_patience_lasts(time: Time) -> None:
    assert settled(time, Progress(right=None), settle_s=0.0) > 10.0


def test_a_killed_instance_that_is_on_its_way_is_waited_for(time: Time) -> None:
    """A run waits for a killed instance whose next process is being started, even if the outputs are correct.

    That process may write some of the outputs again.
    """
    looks = chain([[], [], []], repeat(["h:1"]))
    took_s = settled(time, Progress(right=True), settle_s=0.0, job=Instances(), peers=lambda: next(looks))
    assert took_s > 2 * 0.3 + SETTLES_S


def test_an_instance_that_dies_again_and_again_is_not_waited_for() -> None:
    job = Instances()
    arrivals = Arrivals(cast(Any, job), cast(Any, SimpleNamespace(peers=list)), 1)
    assert not arrivals.are_complete
    job.exits += [Exit(1, 1)] * DEATHS
    assert arrivals.are_complete


def test_nothing_is_awaited_of_a_job_in_which_nothing_died() -> None:
    assert Arrivals(cast(Any, Job()), cast(Any, None), 1).are_complete
