"""Which instances of a job have asked the broker for anything since they were started."""

from __future__ import annotations

from typing import Final

from odradek.certify.jobs.instance import Instance
from odradek.certify.jobs.job import Job
from odradek.certify.runs.observation import Observation

DEATHS: Final = 3


class Arrivals:
    """Of one run with so many instances. An instance is told by its connections."""

    def __init__(self, job: Job, observation: Observation, instances: int) -> None:
        self._job, self._observation, self._instances = job, observation, instances
        self._arrived: set[Instance] = set()
        self._asked: set[str] = set()
        """Connections whose instance was looked for already."""

    @property
    def are_complete(self) -> bool:
        """No instance is on its way: killed or ended, and started again, but not yet known to the broker."""
        job = self._job
        if not job.exits and not job.kills:
            return True
        alive = job.alive
        if len(alive) < self._instances - job.given_up - len(job.completed):
            return False
        awaited = {each for each in alive if not self._dies(each.number)} - self._arrived
        return not awaited or self._have_come(awaited)

    def _have_come(self, awaited: set[Instance]) -> bool:
        for peer in self._observation.peers():  # the newest first: to look for an owner takes milliseconds
            if peer not in self._asked:
                self._asked.add(peer)
                if (owner := self._job.owner(peer)) is not None:
                    self._arrived.add(owner)
                    if awaited <= self._arrived:
                        return True
        return False

    def _dies(self, number: int) -> bool:
        """It has ended so often with an error that it will not come."""
        return sum(each.instance == number and each.code != 0 for each in self._job.exits) >= DEATHS
