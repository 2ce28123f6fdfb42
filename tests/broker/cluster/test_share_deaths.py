"""The node of a share group dies at each injection point and crash point of share groups, at each passage, and starts again.

Records whose acknowledgement was answered are never delivered again. All others are, except those that were acknowledged
without an answer, which may be. Rejected records are in the dead-letter queue at least once, or are delivered again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker.cluster.runtime import NodeState
from broker.injection.crash import CRASH_POINTS, on_passage
from broker.injection.points import POINTS
from protocol.record import Record
from tests.support import raw
from tests.support.clients import eventually
from tests.support.share_group import ACCEPT, REJECT, RELEASE, Member, ShareBroker

QUEUE = "dlq.g"
OF_SHARE_GROUPS = sorted(each for each in POINTS | CRASH_POINTS if each.startswith("share."))
GROUP_RESOURCE = 32
RECORDS = 5


@contextmanager
def dies_at(broker: ShareBroker, group: str, point: str, passage: int) -> Iterator[Callable[[], bool]]:
    """Kill the node at this passage of the point. Yields the function that tells whether it is dead."""
    left = [passage]

    def passing(name: str) -> None:
        left[0] -= name == point
        if name == point and left[0] == 0:
            broker.cluster.kill_node(1)

    with on_passage(passing):
        if point in POINTS:
            broker.stage(f"{point} group={group} nth={passage} -> kill")
        yield lambda: broker.call(lambda: broker.cluster.nodes[1].state is NodeState.KILLED)
    broker.call(broker.faults.clear)


@dataclass
class Group:
    """A share group with five records of its own, and what its members have seen."""

    broker: ShareBroker
    name: str
    base: int
    answered: set[int] = field(default_factory=set)
    """The records that are accepted or rejected, and whose acknowledgement was answered."""
    unanswered: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    """The records whose rejection was sent."""
    delivered_again: set[int] = field(default_factory=set)

    def acknowledge(self, member: Member, kind: int, *indexes: int) -> None:
        offsets = {self.base + index for index in indexes}
        if kind != RELEASE:
            self.unanswered |= offsets
        if kind == REJECT:
            self.rejected |= offsets
        assert member.acknowledge(*((offset, offset, kind) for offset in sorted(offsets))) == 0
        if kind != RELEASE:
            self.unanswered -= offsets
            self.answered |= offsets

    def read(self, is_dead: Callable[[], bool]) -> None:
        """Deliver and acknowledge all records, until the start offset is behind them."""
        (member,) = self.broker.members("m1", group=self.name)
        try:
            assert member.fetch_until_acquired() == [(self.base, self.base + RECORDS - 1, 1)]
            self.acknowledge(member, ACCEPT, 0)
            self.acknowledge(member, RELEASE, 1)
            self.acknowledge(member, REJECT, 2)
            self.broker.advance("1h", ["groups"])
            member.fetch_until_acquired()
            self.acknowledge(member, ACCEPT, 1, 3, 4)
            eventually(lambda: is_dead() or self.start_offset() == self.base + RECORDS)
        except raw.Closed:
            assert is_dead()
        finally:
            member.wire.close()

    def start_offset(self) -> int:
        loaded = self.broker.call(lambda: dict(self.broker.cluster.nodes[1].node.share.loaded()))
        [offset] = [
            managed.state.start_offset for key, managed in loaded.items() if key.group_id == self.name
        ]
        return offset

    def read_again(self) -> set[int]:
        """The offsets that a new member gets up to a record that is produced now."""
        self.broker.produce(1)
        delivered = self.delivered_again
        (member,) = self.broker.members("m2", group=self.name)
        while self.base + RECORDS not in delivered:
            for first, last, _ in member.fetch():
                delivered.update(range(first, last + 1))
        member.wire.close()
        return delivered

    def has_its_dead_letters(self) -> bool:
        """Whether all rejected records of the group are in the dead-letter queue, or were delivered again."""
        headers = [dict(record.headers) for record in self.broker.call(self._letters)]
        ours = [each for each in headers if each["__dlq.errors.group"] == self.name.encode()]
        return {
            int(each["__dlq.errors.offset"] or b"") for each in ours
        } >= self.rejected - self.delivered_again

    def _letters(self) -> list[Record]:
        queue = self.broker.cluster.nodes[1].node.replicas.get(QUEUE, 0)
        return [] if queue is None else [each for batch in queue.log.batches() for each in batch.records()]


def with_dead_letters(broker: ShareBroker, group: str) -> None:
    """Set the group's dead-letter queue."""
    (admin,) = broker.members("admin")
    config = {"name": "errors.deadletterqueue.topic.name", "config_operation": 0, "value": QUEUE}
    resource: dict[str, Any] = {
        "resource_type": GROUP_RESOURCE,
        "resource_name": group,
        "configs": [config],
    }
    answer = admin.ask("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    assert answer["responses"][0]["error_code"] == 0
    admin.wire.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ShareBroker]:
    with ShareBroker(
        tmp_path, settings={"errors.deadletterqueue.auto.create.topics.enable": "true"}
    ) as broker:
        yield broker


@pytest.mark.parametrize("point", OF_SHARE_GROUPS)
def test_a_node_dies_at_each_passage_of_a_point(broker: ShareBroker, point: str) -> None:
    base = 0
    for passage in count(1):
        group = Group(broker, f"g{passage}", base)
        broker.initialize(group.name, start_offset=base)
        with_dead_letters(broker, group.name)
        broker.produce(RECORDS)
        with dies_at(broker, group.name, point, passage) as is_dead:
            group.read(is_dead)
        if not is_dead():
            break
        broker.run(broker.cluster.start_node(1))
        delivered = group.read_again()
        assert not delivered & group.answered, f"{passage}"
        everything = set(range(base, base + RECORDS))
        assert delivered >= everything - group.answered - group.unanswered, f"{passage}"
        eventually(group.has_its_dead_letters)
        base += RECORDS + 1
    assert passage > 1, "the point is not passed"
