"""Consumer and classic groups: the cost of a heartbeat with few and with many groups, and of rebalancing a large group."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from statistics import mean, median
from typing import Any, Final
from uuid import UUID

from benchmarks.client import (
    CREATE_TOPICS,
    Api,
    Client,
    WrongResponse,
    create_topic_frame,
    find_group_coordinator,
    frame,
    in_flight,
    parse,
)
from benchmarks.figures import Figure, Run
from benchmarks.process import cost_of, used_by
from benchmarks.targets import Running
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.records.consumer_protocol import Subscription

JOIN_GROUP: Final[Api] = (11, 3)
"""The last version of JoinGroup in which a member joins without a member id."""
HEARTBEAT: Final[Api] = (12, 3)
SYNC_GROUP: Final[Api] = (14, 3)
DESCRIBE_GROUPS: Final[Api] = (15, 4)
CONSUMER_GROUP_HEARTBEAT: Final[Api] = (68, 1)
TOPIC: Final = "shared"
PARTITIONS: Final = 200
MEMBERS: Final = 5
LARGE: Final = 100
FEW: Final = 10
PIPELINE: Final = 50
"""Number of heartbeats in flight."""
FLAT: Final = 1.3
"""Upper limit for the cost of a heartbeat with a hundred times as many groups, as a multiple of the cost with few."""
PAUSE_S: Final = 0.2
AT_ONCE: Final = {"group.consumer.assignment.interval.ms": "0"}
"""Setting that assigns each member at once. By default, members that join within a second are assigned together."""
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "group.consumer.session.timeout.ms": "60000"}


class Groups(ABC):
    """Groups of one protocol with their members."""

    name: str

    def __init__(self, target: Running, topic: str = TOPIC) -> None:
        self._target = target
        self.topic = topic
        self.client = Client(target.connect())
        self.client.send(create_topic_frame(topic, PARTITIONS))
        answer = parse(CREATE_TOPICS, bytes(self.client.receive()))
        if answer.topics[0].error_code:
            raise WrongResponse(f"CreateTopics: error {answer.topics[0].error_code}")
        find_group_coordinator(self.client, "first")

    @abstractmethod
    def join(self, group: str, count: int) -> None:
        """Add ``count`` members, and wait until the group is stable."""

    @abstractmethod
    def beats(self) -> list[bytes]:
        """A frame with the next heartbeat of each member of the stable groups."""

    @abstractmethod
    def check(self, answer: bytes) -> None: ...

    def close(self) -> None:
        self.client.close()


class Member:
    """A member of a consumer group."""

    def __init__(self, member_id: str, group: str, topic: str) -> None:
        self.id, self.group, self.topic = member_id, group, topic
        self.epoch = 0
        self.owned: dict[UUID, list[int]] = {}
        self.is_behind = True

    def frame(self) -> bytes:
        fields: dict[str, Any] = {"topic_partitions": None}
        if self.epoch == 0:
            fields = {
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": [self.topic],
                "topic_partitions": [],
            }
        elif self.is_behind:
            rows = [TopicPartitions(topic_id=topic, partitions=of) for topic, of in self.owned.items()]
            fields = {"topic_partitions": rows}
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.id, member_epoch=self.epoch, **fields
        )
        return frame(CONSUMER_GROUP_HEARTBEAT, request)

    def heard(self, answer: bytes) -> None:
        said = parse(CONSUMER_GROUP_HEARTBEAT, answer)
        if said.error_code:
            raise WrongResponse(f"ConsumerGroupHeartbeat: error {said.error_code} {said.error_message}")
        self.is_behind = said.member_epoch != self.epoch or said.assignment is not None
        self.epoch = said.member_epoch
        if said.assignment is not None:
            self.owned = {row.topic_id: list(row.partitions) for row in said.assignment.topic_partitions}


class ConsumerGroups(Groups):
    """Consumer groups whose members behave like clients: each reports its partitions after an assignment, until the group is
    stable.
    """

    name = "consumer"

    def __init__(self, target: Running, topic: str = TOPIC) -> None:
        super().__init__(target, topic)
        self._members: dict[str, list[Member]] = {}

    def join(self, group: str, count: int) -> None:
        members = self._members.setdefault(group, [])
        members += [
            Member(f"{group}-{number}", group, self.topic)
            for number in range(len(members), len(members) + count)
        ]
        while True:
            answers = in_flight(self.client, [member.frame() for member in members])
            for member, answer in zip(members, answers, strict=True):
                member.heard(answer)
            if _are_shared(members) and not any(member.is_behind for member in members):
                return
            if len(members) > MEMBERS:
                time.sleep(PAUSE_S)  # their next heartbeat

    def beats(self) -> list[bytes]:
        return [member.frame() for members in self._members.values() for member in members]

    def check(self, answer: bytes) -> None:
        if parse(CONSUMER_GROUP_HEARTBEAT, answer).error_code:
            raise WrongResponse(f"ConsumerGroupHeartbeat: {parse(CONSUMER_GROUP_HEARTBEAT, answer)}")


def _are_shared(members: Sequence[Member]) -> bool:
    """Whether every partition is assigned once, as evenly as possible."""
    owned = [[partition for of in member.owned.values() for partition in of] for member in members]
    sizes = [len(each) for each in owned]
    return sorted(chain.from_iterable(owned)) == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1


class ClassicGroups(Groups):
    """Classic groups whose members have one connection each, because JoinGroup waits for the other members."""

    name = "classic"

    def __init__(self, target: Running, topic: str = TOPIC) -> None:
        super().__init__(target, topic)
        self._ids: dict[str, list[str]] = {}
        self._generations: dict[str, int] = {}
        self._connections: list[Client] = []

    def join(self, group: str, count: int) -> None:
        ids = self._ids.setdefault(group, [])
        while len(self._connections) < len(ids) + count:
            self._connections.append(Client(self._target.connect()))
        if not ids:
            joined = self._connections[0].ask(JOIN_GROUP, self._join_request(group, ""))
            ids.append(joined.member_id)
            self._sync(group, joined.generation_id, joined.member_id, 1)
            count -= 1
        before = len(ids)
        for connection in self._connections[before : before + count]:
            connection.send(frame(JOIN_GROUP, self._join_request(group, "")))
        self._wait_for(group, before + count)
        if before > 1:
            in_flight(self.client, self._beats_of(group))  # the responses announce the rebalance
        for connection, member_id in zip(self._connections, ids, strict=False):
            connection.send(frame(JOIN_GROUP, self._join_request(group, member_id)))
        answers = [parse(JOIN_GROUP, bytes(each.receive())) for each in self._connections[: before + count]]
        if any(answer.error_code for answer in answers):
            raise WrongResponse(f"JoinGroup: {answers[0]}")
        self._ids[group] = [answer.member_id for answer in answers]
        self._sync(group, answers[0].generation_id, answers[0].leader, before + count)

    def _join_request(self, group: str, member_id: str) -> JoinGroupRequest:
        offered = JoinGroupRequestProtocol(name="range", metadata=Subscription(topics=[self.topic]).encode(1))
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=600_000,
            rebalance_timeout_ms=600_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[offered],
        )

    def _wait_for(self, group: str, members: int) -> None:
        """Wait until the group has ``members`` members, including those whose JoinGroup waits for the earlier members."""
        while True:
            answer = self.client.ask(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group]))
            if len(answer.groups[0].members) == members:
                return
            time.sleep(0.001)

    def _sync(self, group: str, generation: int, leader: str, count: int) -> None:
        self._generations[group] = generation
        each = PARTITIONS // count * 4 + 40
        for connection, member_id in zip(self._connections, self._ids[group], strict=False):
            given = [
                SyncGroupRequestAssignment(member_id=other, assignment=bytes(each))
                for other in self._ids[group]
                if member_id == leader
            ]
            request = SyncGroupRequest(
                group_id=group, generation_id=generation, member_id=member_id, assignments=given
            )
            connection.send(frame(SYNC_GROUP, request))
        for connection in self._connections[:count]:
            if parse(SYNC_GROUP, bytes(connection.receive())).error_code:
                raise WrongResponse("SyncGroup")

    def _beats_of(self, group: str) -> list[bytes]:
        return [
            frame(
                HEARTBEAT,
                HeartbeatRequest(group_id=group, generation_id=self._generations[group], member_id=each),
            )
            for each in self._ids[group]
        ]

    def beats(self) -> list[bytes]:
        return [beat for group in self._ids for beat in self._beats_of(group)]

    def check(self, answer: bytes) -> None:
        if parse(HEARTBEAT, answer).error_code:
            raise WrongResponse(f"Heartbeat: {parse(HEARTBEAT, answer)}")

    def close(self) -> None:
        super().close()
        for connection in self._connections:
            connection.close()


def measure(run: Run) -> Iterator[Figure]:
    for protocol in (ConsumerGroups, ClassicGroups):
        yield from _heartbeats(run, protocol)
        yield from _rebalances(run, protocol)


def _heartbeats(run: Run, protocol: type[Groups]) -> Iterator[Figure]:
    costs = {}
    many = run.scaled(1_000, 100)
    for count in (FEW, many):
        directory = run.scratch / f"beats-{protocol.name}-{count}"
        with run.target.running(directory, SETTINGS | AT_ONCE) as target:
            groups = protocol(target)
            for number in range(count):
                groups.join(f"group-{number}", MEMBERS)
            beats = groups.beats()
            requests = run.scaled(10_000, 2_000) // PIPELINE * PIPELINE
            beats = (beats * (requests // len(beats) + 1))[:requests]

            def work(groups: Groups = groups, beats: Sequence[bytes] = beats) -> None:
                for first in range(0, len(beats), PIPELINE):
                    groups.check(in_flight(groups.client, beats[first : first + PIPELINE])[-1])

            costs[count] = cost_of(target.pid, run.scaled(5, 3), requests, work, work)
            groups.close()
    few, cost = costs[FEW], costs[many]
    yield Figure(
        f"CPU per heartbeat, {protocol.name} protocol, {many:,} groups of {MEMBERS} members",
        cost.cpu_s * 1e6,
        "us",
        limit=few.cpu_s * 1e6 * FLAT,
        baseline=f"{FEW} groups {few.cpu_s * 1e6:.0f} us",
        note=f"{cost.least_cpu_s * 1e6:.0f} to {cost.most_cpu_s * 1e6:.0f}; {PIPELINE} in flight on one connection",
        other_cpu=cost.other_cpu,
    )


def _rebalances(run: Run, protocol: type[Groups]) -> Iterator[Figure]:
    with run.target.running(run.scratch / f"rebalance-{protocol.name}", SETTINGS) as target:
        groups = protocol(target)
        usages: dict[str, list[Any]] = {"all join": [], "one more joins": []}
        for number in range(run.scaled(5, 2)):
            for what, count in (("all join", LARGE), ("one more joins", 1)):
                with used_by(target.pid) as usage:
                    groups.join(f"large-{number}", count)
                usages[what].append(usage)
        groups.close()
    for what, found in usages.items():
        cpu = [usage.target_cpu_s for usage in found]
        yield Figure(
            f"broker CPU of a rebalance of {LARGE} members, {protocol.name} protocol: {what}",
            mean(cpu) * 1e3,
            "ms",
            limit=1_000,
            note=f"{min(cpu) * 1e3:.0f} to {max(cpu) * 1e3:.0f}, {PARTITIONS} partitions; done in "
            f"{median(usage.wall_s for usage in found):.2f} s",
            other_cpu=median(usage.other_cpu for usage in found),
        )
