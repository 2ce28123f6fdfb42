"""The progress of a run's job, according to the broker and the user's check."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from typing import Any, Final

from odradek.certify.jobs.job import Job
from odradek.certify.judging.findings import Outputs
from odradek.certify.runs.acknowledged import Acknowledged
from odradek.certify.runs.cluster import Cluster
from odradek.certify.runs.commits import Commits
from odradek.certify.runs.idleness import Idleness
from odradek.certify.runs.observation import Observation
from odradek.certify.runs.until import Until
from odradek.certify.services.service import Services
from odradek.deadlines import stretched
from odradek.errors import OdradekError

IsRight = Callable[[Outputs], bool | None]
"""Function that returns whether the outputs are correct; None if records are missing that may still be written."""
Position = tuple[str, int]
"""Topic and partition."""
LOOK_PAUSE_S: Final = 0.1
"""Interval between two queries of the trace, in seconds."""
LAG_PAUSE_S: Final = 0.25
VISIBLE_S: Final = 0.2
"""How long after the response to a commit the group may still show the previous offset, in seconds."""
BEGINS_S: Final = stretched(30.0)
REBALANCES_S: Final = stretched(10.0)
RESTS_S: Final = stretched(3.0)
ASK_PAUSE_S: Final = 0.5
"""Interval between two calls of the user's check while the job is idle, in seconds."""


def is_lag_zero(groups: Iterable[Mapping[str, Any]], last: Mapping[Position, int]) -> bool:
    """Whether each group that reads the input has committed all of it. A share group has a lag instead of committed offsets.

    ``groups`` are those of ``GET /v1/views/groups``, ``last`` maps each input partition to its last offset.
    """
    committed = [
        {
            **{(each["topic"], each["partition"]): each["committed"] or 0 for each in group["offsets"]},
            **{
                (each["topic"], each["partition"]): inf if each["lag"] == 0 else 0
                for each in group.get("shares", ())
            },
        }
        for group in groups
    ]
    reading = [each for each in committed if any(key in each for key in last)]
    return bool(reading) and all(each.get(key, 0) > end for each in reading for key, end in last.items())


class Progress:
    """The progress of one run. ``collect`` reads its outputs."""

    def __init__(
        self,
        cluster: Cluster,
        services: Services,
        job: Job,
        outputs: Collection[str],
        last: Mapping[Position, int],
        collect: Callable[[], Outputs],
        commits: Commits,
        acknowledged: Acknowledged,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._job, self._outputs, self._last = cluster, job, outputs, last
        self._services = services
        self._collect, self._commits, self._now_s = collect, commits, now_s
        self._acknowledged = acknowledged
        self._observation = Observation(cluster.handle)
        self._writes, self._work, self._records = Idleness(now_s), Idleness(now_s), Idleness(now_s)
        self._looked = self._asked = -ASK_PAUSE_S
        self._asked_at: tuple[int, int] | None = None
        self._lag_asked = -LAG_PAUSE_S
        self._is_lag_zero = False
        self._answer: bool | None = None
        self._counted = -1, 0
        """`Cluster.reach` of the outputs when their records were last counted, and the number of records then."""

    # -- until -------------------------------------------------------------------------------------------------

    def state(self, until: Until, is_right: IsRight | None) -> tuple[bool, bool]:
        """Whether the job has done its work, and if so, whether an open transaction holds back consumers of the outputs."""
        try:
            is_done = self._is_done(until, is_right)
            is_open = is_done and bool(
                self._cluster.open_transactions(self._outputs) or self._services.open_transactions()
            )
            return is_done, is_open
        except OdradekError:
            return False, False  # a node is restarting

    def _is_done(self, until: Until, is_right: IsRight | None) -> bool:
        if until.what == "exit":
            return self._job.has_ended and bool(self._job.completed)
        if until.what == "records":
            return self._records_now() >= until.number
        if until.what == "idle":
            is_at_rest = self.idle_s() >= until.number and not self._observation.is_rebalancing()
            return is_at_rest and self.has_begun()
        if until.what == "check":
            return is_right is not None and self.says(is_right) is True
        return self.is_lag_zero()

    def _records_now(self) -> int:
        """Number of output records. The records are read again only when there are new ones."""
        self._records.lasts_s(self._reach())
        if self._counted[0] != self._records.newest:
            count = len(self._cluster.records(self._outputs)) + len(self._services.records())
            self._counted = self._records.newest, count
        return self._counted[1]

    def _reach(self) -> int:
        """A number that grows with each record in the outputs, each commit, and each change of a service besides Kafka."""
        return self._cluster.reach(self._outputs) + self._services.handled

    def is_lag_zero(self) -> bool:
        """Whether the lag of the input is 0. The lag is queried after commits of offsets, and at intervals."""
        now = self._now_s()
        if self._commits.last_s + VISIBLE_S > self._lag_asked or now - self._lag_asked >= LAG_PAUSE_S:
            self._is_lag_zero = is_lag_zero(self._cluster.groups(), self._last) or self._are_acknowledged()
            self._lag_asked = now
        return self._is_lag_zero

    def _are_acknowledged(self) -> bool:
        return bool(self._last) and self._acknowledged.are_all

    def rest_s(self) -> float:
        """Time in seconds without a request after which the job counts as idle.

        The time is longer before the job's first request, after its group has committed a part of the input, and during a
        rebalance: clients learn of a rebalance with their next heartbeat, three seconds later by default.
        """
        if not self.has_begun():
            return BEGINS_S
        committed = (each for group in self._cluster.groups() for each in group["offsets"])
        is_on_its_way = any((each["topic"], each["partition"]) in self._last for each in committed)
        return REBALANCES_S if is_on_its_way or self._observation.is_rebalancing() else RESTS_S

    def has_begun(self) -> bool:
        """Whether the job has begun its work.

        Beside a service, it has changed the service or an output: a worker of Kafka Connect writes to its own topics
        seconds before its tasks run.
        """
        if self._services.has_writes:
            return True
        if self._services.names:
            return self._cluster.reach(self._outputs) > 0
        return self._observation.has_begun()

    def says(self, is_right: IsRight) -> bool | None:
        """Whether the outputs are correct; None if missing records may still come. Calls `asked` at intervals.

        The result is cached until the job's next request, but not longer than `ASK_PAUSE_S`.
        """
        if self._asked_at is not None:
            self._look()
        at = (self._work.newest, self._records.newest)
        if at != self._asked_at or self._now_s() - self._asked >= ASK_PAUSE_S:
            self._asked_at = at
            self._answer = self.asked(is_right)
            self._asked = self._now_s()
        return self._answer

    def asked(self, is_right: IsRight) -> bool | None:
        """Whether the outputs are correct now, without a cache; False while a node is restarting."""
        try:
            return is_right(self._collect())
        except OdradekError:
            return False  # a node was killed and is restarting

    # -- idle times --------------------------------------------------------------------------------------------

    def idle_s(self) -> float:
        """Seconds since the job's last request that changes something, or since `begin_again` if that was later.

        If the job has sent no such request, the seconds since its last request that an idle client would not send, such
        as JoinGroup or a Fetch that returned records; 0 if it has sent none of these either.
        """
        self._look()
        if self._writes.newest:
            return self._writes.since_s
        return self._work.since_s if self._work.newest else 0.0

    @property
    def longest_pause_s(self) -> float:
        """The longest time between two requests of the job that change something."""
        return self._writes.longest_s

    @property
    def work_idle_s(self) -> float:
        """Seconds since the last request that an idle client would not send."""
        self._look()
        return self._work.since_s

    @property
    def records_still_s(self) -> float:
        """Seconds since the outputs last changed: a record was written or committed."""
        with contextlib.suppress(OdradekError):
            self._records.lasts_s(self._reach())
        return self._records.since_s

    def newest_write(self) -> int:
        self._look()
        return self._writes.newest

    def newest_work(self) -> int:
        self._look()
        return self._work.newest

    def begin_again(self) -> None:
        """Restart the idle times after the run was held."""
        self._writes.begin_again()
        self._work.begin_again()

    def _look(self) -> None:
        now = self._now_s()
        if now - self._looked >= LOOK_PAUSE_S:
            self._looked = now
            writes, work = self._observation.newest_writes_and_work()
            self._writes.lasts_s(writes + self._services.writes)
            self._work.lasts_s(work + self._services.writes)
