"""Faults inside the broker: half of the markers, a coordinator that dies, slow and full disks, paused replicas."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from broker.cluster.runtime import NodeState
from protocol.batch import batches
from tests.support.by_hand import ask
from tests.support.clients import ConfluentProducer, eventually, read, tidy, values
from tests.support.deadlines import HANG_S
from tests.support.in_process import InProcess

T = TypeVar("T")
NODES = pytest.mark.parametrize("nodes", [1, 3], ids=["one node", "three nodes"])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., InProcess]]:
    with ExitStack() as stack:

        def make(nodes: int, *arguments: str, **options: Any) -> InProcess:
            broker = InProcess(tmp_path, f"--nodes={nodes}", *arguments, **options)
            return stack.enter_context(broker)

        yield make
        tidy()


def everywhere(broker: InProcess) -> str:
    """Addresses of all nodes, so that a client does not depend on a node that is killed."""
    return ",".join(f"127.0.0.1:{runtime.listeners[0].port}" for runtime in broker.cluster.nodes.values())


class Doing:
    """A call of a client in a thread, which the test may wait for."""

    def __init__(self, what: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._what = what
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._what()
        except BaseException as error:
            self.error = error

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> Any:
        self._thread.join(HANG_S)
        assert self.is_over
        if self.error is not None:
            raise self.error
        return self.result


def of_length(length: int, found: list[T]) -> list[T]:
    """Return ``found`` if it has this length, otherwise an empty list, for which `eventually` tries again."""
    return found if len(found) == length else []


@NODES
def test_of_four_markers_two_are_written_and_the_rest_held(start: Callable[..., InProcess], nodes: int):
    """EndTxn succeeds before all markers are written. Consumers see half of the records until the others are written."""
    broker = start(nodes, "--topic", "orders:4")
    producer = ConfluentProducer(everywhere(broker), transactional_id="payments")
    producer.init()
    rule = broker.stage("txn.marker transactional_id=payments after=2 -> hold")
    producer.begin()
    for partition in range(4):
        producer.send("orders", [f"{partition}"], partition=partition)
    producer.commit()
    broker.reached(rule, 2)
    seen = eventually(lambda: of_length(2, values(everywhere(broker), "orders")))
    assert set(seen) < {"0", "1", "2", "3"}
    assert len(rule.held) == 2

    # The next transaction of the id waits for the remaining markers of this one.
    following = Doing(lambda: transact(producer, "next"))
    assert broker.release(rule, 1) == 1
    eventually(lambda: len(values(everywhere(broker), "orders")) == 3)
    assert not following.is_over
    broker.call(lambda: broker.faults.remove(rule.id))
    following.wait()
    assert sorted(str(each) for each in values(everywhere(broker), "orders")) == ["0", "1", "2", "3", "next"]


def transact(producer: ConfluentProducer, value: str) -> None:
    producer.begin()
    producer.send("orders", [value])
    producer.commit()


@pytest.mark.parametrize("where", ["EndTxn", "txn.prepare.append", "txn.marker", "txn.complete.append"])
def test_the_coordinator_dies_on_the_way_of_a_commit(start: Callable[..., InProcess], where: str):
    """A coordinator dies during a commit. Another one takes over with the state in the log, the client retries,
    and the commit takes effect once."""
    broker = start(3, "--topic", "orders:3")
    producer = ConfluentProducer(everywhere(broker), transactional_id="payments")
    producer.init()
    transact(producer, "before")
    producer.begin()
    for partition in range(3):
        producer.send("orders", [f"{partition}"], partition=partition)
    # The rule is added only now, as markers of the previous transaction may still be written when this one begins.
    rule = broker.stage(f"{where} transactional_id=payments nth=1 -> kill")
    producer.commit()
    broker.reached(rule)
    dead = [
        node_id
        for node_id in broker.cluster.nodes
        if broker.call(partial(broker.cluster.running, node_id)) is None
    ]
    assert len(dead) == 1
    broker.run(broker.cluster.start_node(dead[0]))
    transact(producer, "after")
    found = eventually(lambda: of_length(5, read(everywhere(broker), "orders")), "all five records")
    assert sorted(str(record.value) for record in found) == ["0", "1", "2", "after", "before"]


@NODES
def test_the_coordinator_dies_after_exactly_three_markers(
    start: Callable[..., InProcess], nodes: int, tmp_path: Path
):
    """Three markers are written and the fourth attempt kills the coordinator, whichever nodes lead the partitions."""
    broker = start(nodes, "--topic", "orders:6")
    producer = ConfluentProducer(everywhere(broker), transactional_id="payments")
    producer.init()
    producer.begin()
    for partition in range(6):
        producer.send("orders", [f"{partition}"], partition=partition)
    rule = broker.stage("txn.marker transactional_id=payments after=3 times=1 -> kill")
    # With three nodes another coordinator takes over at once. Its markers are held until the first three are counted.
    broker.stage("txn.marker transactional_id=payments after=3 -> hold")
    committing = Doing(producer.commit)
    broker.reached(rule)
    [dead] = [node_id for node_id, node in broker.cluster.nodes.items() if node.state is NodeState.KILLED]
    assert [markers_in(tmp_path, index) for index in range(6)] == [1, 1, 1, 0, 0, 0]
    assert rule.matches == 4
    broker.call(broker.faults.clear)
    broker.run(broker.cluster.start_node(dead))
    committing.wait()
    eventually(lambda: len(values(everywhere(broker), "orders")) == 6, "all six")


def markers_in(path: Path, index: int) -> int:
    """Number of markers in the partition. Fails if the replicas have different numbers."""
    logs = path.glob(f"**/orders-{index}/*.log")
    [markers] = {sum(batch.is_control for batch in batches(log.read_bytes())) for log in logs}
    return markers


@NODES
def test_a_slow_disk_delays_what_is_written_there_and_nothing_else(
    start: Callable[..., InProcess], nodes: int
):
    broker = start(nodes, "--topic", "orders:1", "--topic", "quick:1")
    slow, quick = ConfluentProducer(everywhere(broker)), ConfluentProducer(everywhere(broker))
    slow.send("orders", ["before"])
    rule = broker.stage("slow-disk topic=orders delay=1h")
    sending = Doing(lambda: slow.send("orders", ["slow"]))
    broker.reached(rule)
    quick.send("quick", ["quick"])
    assert values(everywhere(broker), "quick") == ["quick"]
    assert values(everywhere(broker), "orders") == ["before"], (
        "a consumer sees no record that is not written yet"
    )
    assert not sending.is_over
    broker.call(lambda: broker.faults.remove(rule.id))
    assert sending.wait() == [(0, 1)]
    assert values(everywhere(broker), "orders") == ["before", "slow"]


def test_if_the_disk_of_the_leader_is_full_another_replica_leads(start: Callable[..., InProcess]):
    """If the leader's disk is full, another replica becomes the leader, and the client retries and loses nothing.

    After a restart with space on the disk the old leader is in sync again.
    """
    broker = start(3, "--topic", "orders:1", settings={"default.replication.factor": 3})
    producer = ConfluentProducer(everywhere(broker))
    producer.send("orders", ["before"])
    leader = in_sync(broker)[0]
    rule = broker.stage(f"full-disk node={leader} topic=orders")
    assert producer.send("orders", ["on another"]) == [(0, 1)]
    assert rule.hits == 1
    assert leader not in in_sync(broker)
    assert offline_as_seen_by_each_node(broker) == [[leader]] * 3

    broker.call(lambda: broker.faults.remove(rule.id))
    broker.run(broker.cluster.stop_node(leader))
    broker.run(broker.cluster.start_node(leader))
    eventually(lambda: leader in in_sync(broker), "the replica has caught up")
    assert offline_as_seen_by_each_node(broker) == [[]] * 3
    assert values(everywhere(broker), "orders") == ["before", "on another"]


def offline_as_seen_by_each_node(broker: InProcess) -> list[list[int]]:
    seen = []
    for node in broker.cluster.nodes.values():
        answer = ask("127.0.0.1", node.listeners[0].port, "metadata", 12, {"topics": [{"name": "orders"}]})
        seen.append(list(answer["topics"][0]["partitions"][0]["offline_replicas"]))
    return seen


def test_a_paused_replica_leaves_the_isr_and_rejoins_it(start: Callable[..., InProcess]):
    broker = start(3, "--topic", "orders:1", settings={"default.replication.factor": 3})
    producer = ConfluentProducer(everywhere(broker))
    producer.send("orders", ["one"])
    leader = in_sync(broker)[0]
    follower = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    rule = broker.stage(f"pause node={follower} topic=orders")
    sending = Doing(lambda: producer.send("orders", ["two"]))

    def is_out() -> bool:
        broker.advance("10s", ["replication"])
        return follower not in in_sync(broker)

    eventually(is_out, "the paused replica has left the ISR")
    assert sending.wait() == [(0, 1)]
    broker.call(lambda: broker.faults.remove(rule.id))
    eventually(lambda: follower in in_sync(broker), "the replica is in sync again")
    assert values(everywhere(broker), "orders") == ["one", "two"]


def in_sync(broker: InProcess) -> list[int]:
    """Node ids of the in-sync replicas, the leader among them."""

    def look() -> list[int]:
        topic = broker.cluster.metadata.topic("orders")
        assert topic is not None
        state = topic.partitions[0]
        return [state.leader, *(node_id for node_id in state.isr if node_id != state.leader)]

    return broker.call(look)
