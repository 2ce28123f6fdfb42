"""Faults of single replicas: loss of the last in-sync replica, unclean elections, delayed writes of a follower."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from broker.cluster import Cluster
from broker.injection.points import InjectionPoint
from broker.metadata.partition_change import Election
from broker.metadata.results import ApiError
from broker.metadata.values import NO_LEADER, PartitionState
from broker.replicas.replication.leading import Leading
from tests.simulation.ledger import Spot

LOG_WRITE: Final = "log.write"
WRITE_S_MAX: Final = 20.0
"""Maximum seconds for which the fault ``hold_write`` waits for a write of a follower."""
HELD_S: Final = (0.05, 5.0)
CUT: Final = 0.5
UNCLEAN: Final = 0.7
AHEAD_S: Final = (0.5, 3.0)
ALONE_S: Final = ((0.1, 2.0), (5.0, 8.0))
"""Ranges of seconds for which the last in-sync replica leads before it is killed: too short for an fsync of the other
logs, or long enough for a checkpoint of the high watermark."""
LEADERLESS_S: Final = (0.5, 10.0)


Held = tuple[InjectionPoint, Callable[[], object]]


class ReplicaFaults:
    """Faults of the replicas of ``topic``, whose partitions lose their leaders.

    ``kill`` kills a node and starts it again after a while.
    """

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        say: Callable[[str], None],
        kill: Callable[[int], Awaitable[None]],
        topic: str,
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._say = say
        self._kill = kill
        self._topic = topic
        self._wanted: list[asyncio.Future[Held]] = []
        """Futures of ``hold_write`` calls that wait for a write of a follower."""

    async def lose_leader(self) -> None:
        """Kill a partition's last in-sync replica, while other replicas have records that it lacks.

        Sometimes another replica is then elected (unclean). The other replicas have these records from the
        previous leader, and do not fetch afterwards, as if their links were cut.
        """
        topic = self._cluster.metadata.topics[self._topic]
        spot = (self._topic, self._random.randrange(len(topic.partitions)))
        leader, replicas = self._state(spot).leader, self._state(spot).replicas
        others = [each for each in replicas if each != leader]
        if leader == NO_LEADER or len(others) < 2:
            return
        last = self._random.choice(others)
        self._say(f"fault: {spot} is to lose its leader {leader}, and then node {last}")
        links = self._cluster.injection.links
        links.pause(last, *spot)
        await asyncio.sleep(self._random.uniform(*AHEAD_S))
        for each in replicas:
            links.pause(each, *spot)
        if await self._lead_alone(spot, last):
            await asyncio.sleep(self._random.uniform(*self._random.choice(ALONE_S)))
            killing = asyncio.ensure_future(self._kill_last(spot, last))
            await asyncio.sleep(self._random.uniform(*LEADERLESS_S))
            if self._random.random() < UNCLEAN:
                self._say(f"fault: whichever replica runs is elected for {spot}")
                await self._cluster.metadata.replication_control.elect([spot], Election.UNCLEAN)
            await killing
        for each in (last, *replicas):
            links.resume(each, *spot)

    def _state(self, spot: Spot) -> PartitionState:
        return self._cluster.metadata.topics[spot[0]].partitions[spot[1]]

    async def _lead_alone(self, spot: Spot, node_id: int) -> bool:
        """Make a node the leader and propose to remove all others from the ISR, as if they had been too slow.

        Returns whether the removal was proposed.
        """
        with contextlib.suppress(ApiError):  # the node may have left the ISR meanwhile
            await self._cluster.metadata.replication_control.move_leader(*spot, node_id)
        node = self._cluster.running(node_id)
        partition = node.replicas.get(*spot) if node is not None else None
        leading = partition.leading if partition is not None else None
        if not isinstance(leading, Leading) or leading._proposed is not None:
            return False
        leading._propose((node_id,))
        return True

    async def _kill_last(self, spot: Spot, leader: int) -> None:
        if self._state(spot).leader == leader and tuple(self._state(spot).isr) == (leader,):
            await self._kill(leader)

    # ---- writes of a follower (`Chaos.reached`)

    def watches(self, point: str) -> bool:
        return bool(self._wanted) and point == LOG_WRITE

    def takes(self, at: InjectionPoint, go_on: Callable[[], object]) -> bool:
        """Delay the step ``at`` if ``hold_write`` waits for such a step, and return whether it is delayed.

        ``go_on``, which takes the step, is called later.
        """
        if not self.watches(at.point) or self._state((at.topic, at.partition)).leader in (
            at.node_id,
            NO_LEADER,
        ):
            return False
        self._wanted.pop().set_result((at, go_on))
        return True

    async def hold_write(self) -> None:
        """Delay one write of a follower, and perhaps cut its link to the leader during the delay."""
        wanted: asyncio.Future[Held] = asyncio.get_running_loop().create_future()
        self._wanted.append(wanted)
        await asyncio.wait([wanted], timeout=WRITE_S_MAX)
        if not wanted.done():
            self._wanted.remove(wanted)
            return
        at, go_on = wanted.result()
        links, leader = self._cluster.injection.links, self._state((at.topic, at.partition)).leader
        held_s, cut = self._random.uniform(*HELD_S), leader != NO_LEADER and self._random.random() < CUT
        self._say(f"fault: a write of follower {at.node_id} takes {held_s:.3f} s, link to it cut: {cut}")
        if cut:
            links.cut(leader, at.node_id)
        await asyncio.sleep(held_s)
        go_on()
        if cut:
            await asyncio.sleep(self._random.uniform(*HELD_S))
            links.mend(leader, at.node_id)
