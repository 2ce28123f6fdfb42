"""The problems of docs/troubleshooting.md on a broker of three nodes: one function for each row of the page's table, named
after the row.

All of them use the names ``orders``, ``readers`` and ``etl-1``, as the broker is reset after each problem.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import odradek
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.lab.explain.staged_groups import REJECT, RELEASE, Member, ShareMember, commit, commit_in
from tests.tools.conftest import invoke
from tools.client.cluster import TRANSACTION, Cluster
from tools.client.errors import ToolError
from tools.client.producing import Producer, now_ms
from tools.client.unverified import send_unverified

Make = Callable[["Stage"], None]
TROUBLES: dict[str, Make] = {}
ALONE = "a topic with one replica"


@dataclass
class Stage:
    """A broker, and the callbacks that undo a problem before the broker is reset."""

    broker: odradek.Broker
    cluster: Cluster = field(init=False)
    undo: ExitStack = field(default_factory=ExitStack)
    topic: str = "orders"
    partition: int = 0
    group: str = "readers"
    id: str = "etl-1"
    _clusters: ExitStack = field(default_factory=ExitStack)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = self.connect()
        self.undo.callback(self._join)  # runs last, when all requests can end

    def connect(self) -> Cluster:
        """Connect to the cluster. The connections are closed after everything else is undone."""
        return self._clusters.enter_context(Cluster(self.broker.bootstrap_servers))

    def close(self) -> None:
        with self._clusters:
            self.undo.close()

    def create(self, partitions: int = 1, replicas: int = 3, **settings: Any) -> None:
        words = [f"--config={key.replace('_', '.')}={value}" for key, value in settings.items()]
        self.run("topic", "create", f"{self.topic}:{partitions}", f"--replicas={replicas}", *words)

    def create_elsewhere(self) -> int:
        """Create the topic with one replica, and select a partition whose leader is not the coordinator of the transactional
        id. Returns the node id of the coordinator."""
        self.create(partitions=3, replicas=1)
        coordinator = self.cluster.coordinator(TRANSACTION, self.id)
        self.partition = next(
            each for each in range(3) if self.cluster.leader(self.topic, each) != coordinator
        )
        return coordinator

    def run(self, *words: str) -> None:
        done = invoke(self.broker.bootstrap_servers, *words)
        assert done.exit_code == 0, done.output

    def rule(self, text: str) -> odradek.remote.Rule:
        rule = self.broker.faults.add(text)
        self.undo.callback(rule.remove)
        return rule

    def kill(self, node_id: int) -> None:
        self.broker.nodes[node_id].kill()
        self.undo.callback(self.broker.nodes[node_id].start)

    def pause(self, node_id: int) -> None:
        self.broker.nodes[node_id].pause()
        self.undo.callback(self.broker.nodes[node_id].resume)

    def producer(self, transactional_id: str | None = None, **options: Any) -> Producer:
        producer = Producer(self.cluster, transactional_id, **options)
        producer.init()
        return producer

    def send(self, producer: Producer, *values: bytes) -> None:
        producer.send(self.topic, self.partition, [(now_ms(), None, value) for value in values or (b"a",)])

    def open(self) -> Producer:
        """Begin a transaction and write a record to the topic."""
        producer = self.producer(self.id)
        self.send(producer)
        return producer

    def end(self, producer: Producer, *, commit: bool = True) -> None:
        producer.end(commit=commit)

    def refused(self, act: Callable[[], object]) -> None:
        with suppress(ToolError):
            act()
            raise AssertionError("the request was not refused")

    def member(self) -> Member:
        member = Member(self)
        self.undo.callback(member.leave)
        return member

    def in_background(self, act: Callable[[], object]) -> None:
        """Run a request in a thread, as it gets no response before the problem is over."""

        def run() -> None:
            with suppress(ToolError):
                act()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()


def trouble(words: str) -> Callable[[Make], Make]:
    def note(make: Make) -> Make:
        TROUBLES[words] = make
        return make

    return note


# -- transactions -----------------------------------------------------------------------------------------------


@trouble("a transaction is open")
def _(stage: Stage) -> None:
    stage.create()
    stage.open()


@trouble("a rule holds its marker")
def _(stage: Stage) -> None:
    stage.create()
    producer = stage.open()
    rule = stage.rule(f"txn.marker transactional_id={stage.id} -> hold")
    stage.end(producer)
    rule.wait()


@trouble("a rule holds its WriteTxnMarkers")
def _(stage: Stage) -> None:
    stage.create_elsewhere()
    producer = stage.open()
    rule = stage.rule(f"WriteTxnMarkers topic={stage.topic} -> hold")
    stage.end(producer)
    rule.wait()


@trouble("the link to the leader of its partition is cut")
def _(stage: Stage) -> None:
    coordinator = stage.create_elsewhere()
    producer = stage.open()
    # The link is cut after the decision: the coordinator's partition is replicated over it too.
    with stage.broker.faults.add(f"txn.marker transactional_id={stage.id} -> hold") as rule:
        stage.end(producer)
        rule.wait()
        stage.rule(f"cut {coordinator} {stage.cluster.leader(stage.topic, stage.partition)}")


@trouble("the leader of its partition is down")
def _(stage: Stage) -> None:
    stage.create_elsewhere()
    producer = stage.open()
    stage.kill(stage.cluster.leader(stage.topic, stage.partition))
    stage.end(producer)


@trouble("a rule lost its marker")
def _(stage: Stage) -> None:
    stage.create()
    producer = stage.open()
    rule = stage.rule(f"txn.marker transactional_id={stage.id} -> lose")
    stage.end(producer)
    rule.wait()


@trouble("a marker was written manually")
def _(stage: Stage) -> None:
    TROUBLES["a rule lost its marker"](stage)
    stage.run("txn", "commit", "--partition", f"{stage.topic}/0", "--start-offset", "0")
    stage.broker.clock.advance("10s")  # times out the transaction
    stage.broker.clock.advance("10s", only="requests")  # times out the append of the decision


@trouble("a transaction hangs")
def _(stage: Stage) -> None:
    stage.create()
    producer = stage.producer(stage.id)
    send_unverified(producer, stage.topic, 0, [(now_ms(), None, b"a")])


@trouble("a transaction begins in the future")
def _(stage: Stage) -> None:
    stage.create()
    coordinator = stage.broker.nodes[stage.cluster.coordinator(TRANSACTION, stage.id)]
    coordinator.skew("1h")
    stage.open()
    coordinator.skew(0)


@trouble("a rule holds its EndTxn")
def _(stage: Stage) -> None:
    stage.create()
    producer = stage.open()
    rule = stage.rule(f"EndTxn transactional_id={stage.id} -> hold")
    stage.in_background(lambda: stage.end(producer))
    rule.wait()


@trouble("the coordinator is not available")
def _(stage: Stage) -> None:
    stage.create()
    stage.open()
    stage.pause(stage.cluster.coordinator(TRANSACTION, stage.id))


@trouble("a rule returns an error for FindCoordinator")
def _(stage: Stage) -> None:
    stage.producer(stage.id)
    stage.rule(f"FindCoordinator transactional_id={stage.id} -> error COORDINATOR_NOT_AVAILABLE")
    with stage.connect() as cluster, cluster.within(0.1):
        stage.refused(lambda: cluster.coordinator(TRANSACTION, stage.id))


@trouble("the coordinator cannot write")
def _(stage: Stage) -> None:
    stage.create()
    stage.open()
    coordinator = stage.cluster.coordinator(TRANSACTION, stage.id)
    for node_id in {1, 2, 3} - {coordinator}:
        stage.kill(node_id)


@trouble("the coordinator waits for a replica")
def _(stage: Stage) -> None:
    stage.create()
    stage.open()
    stage.pause(stage.cluster.coordinator(TRANSACTION, stage.id) % 3 + 1)


@trouble("the coordinator is loading")
def _(stage: Stage) -> None:
    stage.create()
    stage.open()
    coordinator = stage.cluster.coordinator(TRANSACTION, stage.id)
    to = coordinator % 3 + 1
    rule = stage.rule(f"coordinator.load node={to} topic=__transaction_state -> hold")
    stage.broker.move_coordinator(transactional_id=stage.id, to=to)
    rule.wait()


@trouble("a rule returns an error, and the trace is off")
def _(stage: Stage) -> None:
    stage.broker.trace.stop()
    TROUBLES["a rule returns an error for FindCoordinator"](stage)


@trouble("a rule holds each Fetch")
def _(stage: Stage) -> None:
    stage.create()
    stage.open()
    rule = stage.rule(f"Fetch topic={stage.topic} -> hold")
    stage.in_background(stage.member().fetch)
    rule.wait()


# -- refused requests -------------------------------------------------------------------------------------------


@trouble("a producer is fenced")
def _(stage: Stage) -> None:
    stage.create()
    before = stage.open()
    stage.end(before)
    stage.producer(stage.id)
    before.adds_partitions = False
    stage.refused(lambda: stage.send(before))


@trouble("an EndTxn is refused")
def _(stage: Stage) -> None:
    producer = stage.producer(stage.id)
    producer._added.add((stage.topic, 0))
    stage.refused(lambda: stage.end(producer))


@trouble("a batch is refused")
def _(stage: Stage) -> None:
    stage.create(max_message_bytes=1000)
    stage.refused(lambda: stage.send(stage.producer(), b"a" * 2000))


@trouble("a batch is out of order")
def _(stage: Stage) -> None:
    stage.create()
    producer = stage.producer()
    stage.send(producer)
    producer._sequences[stage.topic, 0] = 7
    stage.refused(lambda: stage.send(producer))


@trouble("a quota throttles a client")
def _(stage: Stage) -> None:
    stage.create()
    _set_quota(stage, OpData(key="producer_byte_rate", value=100.0, remove=False))
    stage.undo.callback(_set_quota, stage, OpData(key="producer_byte_rate", value=0.0, remove=True))
    stage.send(stage.producer(), b"a" * 1000)


def _set_quota(stage: Stage, operation: OpData) -> None:
    entity = [EntityData(entity_type="client-id", entity_name="odradek")]
    request = AlterClientQuotasRequest(
        entries=[EntryData(entity=entity, ops=[operation])], validate_only=False
    )
    with Cluster(stage.broker.bootstrap_servers) as cluster:
        cluster.ask_controller("alter_client_quotas", request)


@trouble("an ACL is missing")
def _(stage: Stage) -> None:
    stage.create()
    stage.run("acl", "add", "ANONYMOUS", "--operation", "DESCRIBE", "--topic", stage.topic)
    stage.refused(lambda: stage.send(stage.producer()))


# -- replicas ---------------------------------------------------------------------------------------------------


@trouble("too few replicas are in sync")
def _(stage: Stage) -> None:
    stage.create(min_insync_replicas=3)
    stage.kill(stage.cluster.leader(stage.topic, 0) % 3 + 1)


@trouble("a replica in sync is paused")
def _(stage: Stage) -> None:
    stage.create()
    stage.pause(stage.cluster.leader(stage.topic, 0) % 3 + 1)


@trouble("a partition has no leader")
def _(stage: Stage) -> None:
    stage.create(replicas=1)
    stage.kill(stage.cluster.leader(stage.topic, 0))


@trouble("a node is down")
def _(stage: Stage) -> None:
    stage.kill(2)


@trouble("a disk was full")
def _(stage: Stage) -> None:
    stage.create(replicas=1)
    leader = stage.cluster.leader(stage.topic, 0)
    rule = stage.rule(f"log.write topic={stage.topic} -> error KAFKA_STORAGE_ERROR")
    stage.refused(lambda: stage.send(stage.producer()))
    rule.remove()

    stage.undo.callback(stage.broker.nodes[leader].start)
    stage.undo.callback(stage.broker.nodes[leader].kill)


# -- the content of a log ---------------------------------------------------------------------------------------


@trouble("a topic is empty")
def _(stage: Stage) -> None:
    stage.create()


@trouble("the end of a log was aborted")
def _(stage: Stage) -> None:
    stage.create()
    stage.send(stage.producer())
    producer = stage.open()
    stage.end(producer, commit=False)


@trouble("the lag is markers")
def _(stage: Stage) -> None:
    stage.create()
    producer = stage.open()
    stage.end(producer)
    commit(stage, 1)
    stage.member().join()


# -- groups -----------------------------------------------------------------------------------------------------


@trouble("a group has no members")
def _(stage: Stage) -> None:
    stage.create()
    stage.send(stage.producer())
    commit(stage, 0)


@trouble("a group rebalances")
def _(stage: Stage) -> None:
    stage.create()
    member, other = stage.member(), stage.member()
    member.join()
    stage.in_background(other.join)
    member.until_rebalance()


@trouble("a group commits nothing")
def _(stage: Stage) -> None:
    stage.create()
    stage.send(stage.producer())
    stage.member().join()


@trouble("a rule holds the JoinGroup of a new group")
def _(stage: Stage) -> None:
    rule = stage.rule(f"JoinGroup group={stage.group} -> hold")
    stage.in_background(stage.member().join)
    rule.wait()


@trouble("a member does not poll")
def _(stage: Stage) -> None:
    stage.create()
    stage.send(stage.producer())
    commit(stage, 0)
    member = stage.member()
    member.join()
    member.fetch()
    stage.broker.clock.advance("5m", only="requests")
    member.heartbeat()


@trouble("offsets of a group wait for a transaction")
def _(stage: Stage) -> None:
    stage.create()
    stage.send(stage.producer())
    commit(stage, 0)
    stage.member().join()
    commit_in(stage, stage.producer(stage.id), 1)


# -- share groups -----------------------------------------------------------------------------------------------


def _sharing(stage: Stage, records: int, **configs: str) -> ShareMember:
    """A member of a share group, whose topic has records."""
    stage.create()
    stage.send(stage.producer(), *[b"a"] * records)
    member = ShareMember(stage)
    member.configure(**configs)
    member.join()
    return member


@trouble("a share group has no members")
def _(stage: Stage) -> None:
    member = _sharing(stage, 1)
    member.fetch()
    member.acknowledge(0, 0, RELEASE)
    member.leave()


@trouble("a record is locked")
def _(stage: Stage) -> None:
    _sharing(stage, 1).fetch()


@trouble("a record was released")
def _(stage: Stage) -> None:
    member = _sharing(stage, 1)
    member.fetch()
    member.acknowledge(0, 0, RELEASE)


@trouble("all locks of a share partition are used")
def _(stage: Stage) -> None:
    member = _sharing(stage, 100, share_partition_max_record_locks="100")
    stage.send(stage.producer())
    member.fetch(100)


@trouble("a dead letter could not be written")
def _(stage: Stage) -> None:
    member = _sharing(stage, 1, errors_deadletterqueue_topic_name="dlq.orders")
    member.fetch()
    member.acknowledge(0, 0, REJECT)
