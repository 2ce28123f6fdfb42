"""Find out which instances of a job have sent requests to the broker since their start."""

from __future__ import annotations

from typing import Final

from odradek.certify.jobs.instance import Instance
from odradek.certify.jobs.job import Job
from odradek.certify.runs.observation import Observation
from odradek.certify.services.service import Services

DEATHS: Final = 3


class Arrivals:
    """The instances of a run that have sent a request since their start, found by their connections."""

    def __init__(
        self, job: Job, observation: Observation, instances: int, services: Services | None = None
    ) -> None:
        self._job, self._observation, self._instances = job, observation, instances
        self._services = services
        self._arrived: set[Instance] = set()
        self._asked: set[str] = set()
        """Connections whose instance was looked up already."""

    @property
    def are_complete(self) -> bool:
        """Whether each running instance has sent a request and no restart is pending; True if none has ended."""
        job = self._job
        if not job.exits and not job.kills:
            return True
        alive = job.alive
        if len(alive) < self._instances - job.given_up - len(job.completed):
            return False
        awaited = {each for each in alive if not self._dies(each.number)} - self._arrived
        return not awaited or self._have_come(awaited)

    def _have_come(self, awaited: set[Instance]) -> bool:
        # The newest first: finding the owner of a connection takes milliseconds.
        for peer in (*self._observation.peers(), *(self._services.peers() if self._services else ())):
            if peer not in self._asked:
                self._asked.add(peer)
                if (owner := self._job.owner(peer)) is not None:
                    self._arrived.add(owner)
                    if awaited <= self._arrived:
                        return True
        return False

    def _dies(self, number: int) -> bool:
        """Whether the instance has ended with an error so often that it is not expected to send a request."""
        return sum(each.instance == number and each.code != 0 for each in self._job.exits) >= DEATHS
