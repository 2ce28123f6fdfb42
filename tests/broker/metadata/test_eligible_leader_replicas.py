"""Stories of eligible leader replicas (KIP-966), each told by a running Apache Kafka 4.4.0, at our controller.

A line of a story is an event, and the partition after it: leader, leader epoch, ISR, eligible leader replicas (E), last
known leader (K), and whether the leader is recovering. "clean" stops a broker by a controlled shutdown, "kill" kills it and
waits until it is fenced, and "isr" is an AlterPartition of the leader.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.metadata import ApiError, ClusterMetadata, Endpoint, NewTopic
from broker.metadata.altering import Operation, Resource, altered, replaced
from broker.metadata.changes import records_for_features
from broker.metadata.features import INITIAL_LEVELS
from broker.metadata.files import LOG_DIRECTORY
from broker.metadata.framing import Quorum
from broker.metadata.partition_change import Election
from broker.metadata.snapshot import write_snapshot
from broker.metadata.values import BROKER_RESOURCE, TOPIC_RESOURCE, BrokerRegistration, PartitionState
from protocol.errors import ErrorCode
from protocol.records import cluster_metadata as schema
from tests.broker.metadata.test_cluster import records
from tests.broker.metadata.world import open_cluster

NAME = "min.insync.replicas"
CLUSTER = Resource(BROKER_RESOURCE, "")
TOPIC = Resource(TOPIC_RESOURCE, "t")


class Brokers:
    """A controller, and three brokers that register with it."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.cluster: ClusterMetadata = open_cluster(directory, **options)
        self.epochs: dict[int, int] = {}
        """Broker epoch in the clean shutdown file of each broker that was stopped cleanly."""

    @property
    def state(self) -> PartitionState:
        return self.cluster.topics["t"].partitions[0]

    def __str__(self) -> str:
        it = self.state
        isr, eligible, last = (
            ",".join(map(str, each))
            for each in (sorted(it.isr), it.eligible_leader_replicas, it.last_known_eligible)
        )
        recovery = " recovering" if it.leader_recovery_state else ""
        return f"L={it.leader} le={it.leader_epoch} I={isr} E={eligible} K={last}{recovery}"

    async def start(self, node: str) -> None:
        number = int(node)
        registration = self.cluster.new_registration(
            number,
            [Endpoint("PLAINTEXT", "broker.example", 19092 + number)],
            None,
            UUID(int=number),
            self.epochs.pop(number, -1),
        )
        await self.cluster.cluster_control.join(registration)

    async def kill(self, node: str) -> None:
        await self.cluster.cluster_control.fence(int(node))

    async def clean(self, node: str) -> None:
        number = int(node)
        self.epochs[number] = self.cluster.brokers[number].epoch
        await self.cluster.cluster_control.hand_over(number)
        await self.cluster.cluster_control.fence(number)

    async def unregister(self, node: str) -> None:
        await self.cluster.cluster_control.unregister(int(node))

    async def isr(self, nodes: str) -> None:
        isr = [int(each) for each in nodes.split(",")]
        await self.cluster.replication_control.alter_partition("t", 0, self.state.leader_epoch, isr)

    async def create(self, replicas: str, min_isr: str = "1") -> None:
        assignment = [int(each) for each in replicas.split(",")]
        configs = {} if min_isr == "1" else {NAME: min_isr}
        (created,) = await self.cluster.replication_control.create_topics(
            [NewTopic("t", assignments=[(0, assignment)], configs=configs)]
        )
        assert not isinstance(created, ApiError), created

    async def reassign(self, replicas: str) -> None:
        (refusal,) = await self.cluster.replication_control.reassign(
            [(("t", 0), [int(each) for each in replicas.split(",")])]
        )
        assert refusal is None

    async def elect(self, kind: str) -> None:
        (refusal,) = await self.cluster.replication_control.elect([("t", 0)], Election[kind.upper()])
        assert refusal is None

    async def refused(self, kind: str) -> None:
        (refusal,) = await self.cluster.replication_control.elect([("t", 0)], Election[kind.upper()])
        assert refusal is not None

    async def feature(self, level: str) -> None:
        await self.cluster.update_features({"eligible.leader.replicas.version": int(level)})

    async def min(self, value: str) -> None:
        assert await self.alter(TOPIC, {NAME: (Operation.SET, value)}) is None

    async def default(self, value: str) -> None:
        assert await self.alter(CLUSTER, {NAME: (Operation.SET, value)}) is None

    async def unclean(self, value: str) -> None:
        setting = {"unclean.leader.election.enable": (Operation.SET, value)}
        assert await self.alter(TOPIC, setting) is None

    async def failed(self, node: str) -> None:
        topic_id = self.cluster.topics["t"].topic_id
        await self.cluster.replication_control.lose_replica("t", topic_id, 0, int(node))

    async def alter(self, resource: Resource, operations: Any, **options: Any) -> ApiError | None:
        cluster = self.cluster

        def decide(image: Any) -> Any:
            return altered(image, cluster.settings.static, resource, operations, None)  # type: ignore[arg-type]

        (refusal,) = await cluster.config_control.alter([(resource, decide)], **options)
        return refusal


STORIES = {
    "the last leader returns last, and is elected although it may have lost records": """
        create 2,3 2    L=2 le=0 I=2,3 E= K=
        kill 3          L=2 le=0 I=2 E=3 K=
        kill 2          L=-1 le=1 I= E=2,3 K=2
        start 3         L=-1 le=1 I= E=2 K=2
        start 2         L=2 le=2 I=2 E= K= recovering
        isr 2,3         L=2 le=2 I=2,3 E= K=""",
    "another replica returns first after clean stops": """
        create 2,3 2    L=2 le=0 I=2,3 E= K=
        clean 3         L=2 le=0 I=2 E=3 K=
        clean 2         L=-1 le=1 I= E=2,3 K=2
        start 3         L=3 le=2 I=3 E=2 K=
        start 2         L=3 le=2 I=3 E=2 K=
        isr 2,3         L=3 le=2 I=2,3 E= K=""",
    "the last leader returns first after clean stops": """
        create 2,3 2    L=2 le=0 I=2,3 E= K=
        clean 3         L=2 le=0 I=2 E=3 K=
        clean 2         L=-1 le=1 I= E=2,3 K=2
        start 2         L=2 le=2 I=2 E=3 K=""",
    "a live last leader waits for an eligible replica": """
        create 2,3 2    L=2 le=0 I=2,3 E= K=
        clean 3         L=2 le=0 I=2 E=3 K=
        kill 2          L=-1 le=1 I= E=2,3 K=2
        start 2         L=-1 le=1 I= E=3 K=2
        start 3         L=3 le=2 I=3 E= K=""",
    "three replicas": """
        create 2,3,1 3  L=2 le=0 I=1,2,3 E= K=
        kill 3          L=2 le=0 I=1,2 E=3 K=
        kill 2          L=1 le=1 I=1 E=2,3 K=
        start 3         L=1 le=1 I=1 E=2 K=
        isr 3,1         L=1 le=1 I=1,3 E=2 K=
        start 2         L=1 le=1 I=1,3 E= K=
        isr 1,2,3       L=1 le=1 I=1,2,3 E= K=""",
    "three replicas, and min.insync.replicas is set to its value of all brokers meanwhile": """
        create 2,3,1 3  L=2 le=0 I=1,2,3 E= K=
        kill 3          L=2 le=0 I=1,2 E=3 K=
        default 1       L=2 le=0 I=1,2 E= K=
        kill 2          L=1 le=1 I=1 E=2 K=""",
    "lowering min.insync.replicas clears the eligible replicas, and raising it does not fill them": """
        create 2,3,1 3  L=2 le=0 I=1,2,3 E= K=
        kill 3          L=2 le=0 I=1,2 E=3 K=
        min 2           L=2 le=0 I=1,2 E= K=
        min 3           L=2 le=0 I=1,2 E= K=
        kill 2          L=1 le=1 I=1 E=2 K=""",
    "without eligible replicas and last leader only an unclean election helps": """
        create 2,3 2    L=2 le=0 I=2,3 E= K=
        kill 3          L=2 le=0 I=2 E=3 K=
        kill 2          L=-1 le=1 I= E=2,3 K=2
        min 1           L=-1 le=1 I= E= K=
        start 2         L=-1 le=1 I= E= K=
        start 3         L=-1 le=1 I= E= K=
        refused preferred   L=-1 le=1 I= E= K=
        elect unclean   L=2 le=2 I=2 E= K= recovering""",
    "unclean.leader.election.enable": """
        create 2,3 2    L=2 le=0 I=2,3 E= K=
        unclean true    L=2 le=0 I=2,3 E= K=
        kill 3          L=2 le=0 I=2 E=3 K=
        kill 2          L=-1 le=1 I= E=2,3 K=2
        start 3         L=3 le=2 I=3 E= K= recovering""",
    "min.insync.replicas 1": """
        create 2,3      L=2 le=0 I=2,3 E= K=
        kill 3          L=2 le=0 I=2 E= K=
        kill 2          L=-1 le=1 I= E=2 K=2
        start 3         L=-1 le=1 I= E=2 K=2
        start 2         L=2 le=2 I=2 E= K= recovering""",
    "a replica with failed files is eligible, and not elected before its broker returns": """
        create 3,2 2    L=3 le=0 I=2,3 E= K=
        failed 3        L=2 le=1 I=2 E=3 K=
        kill 2          L=-1 le=2 I= E=2,3 K=2
        start 2         L=-1 le=2 I= E=3 K=2
        kill 3          L=-1 le=2 I= E=3 K=2
        start 3         L=2 le=3 I=2 E= K= recovering""",
    "an unregistered broker stays eligible until it registers": """
        create 2,3 2    L=2 le=0 I=2,3 E= K=
        clean 3         L=2 le=0 I=2 E=3 K=
        unregister 3    L=2 le=0 I=2 E=3 K=
        start 3         L=2 le=0 I=2 E= K=
        isr 2,3         L=2 le=0 I=2,3 E= K=""",
    "a reassignment away from an eligible replica leaves it eligible": """
        create 2,3,1 3  L=2 le=0 I=1,2,3 E= K=
        kill 3          L=2 le=0 I=1,2 E=3 K=
        reassign 2,1    L=2 le=1 I=1,2 E=3 K=
        kill 1          L=2 le=1 I=2 E=1,3 K=""",
    "the feature is disabled, and enabled again without a leader": """
        create 2,3 2    L=2 le=0 I=2,3 E= K=
        kill 3          L=2 le=0 I=2 E=3 K=
        feature 0       L=2 le=0 I=2 E=3 K=
        kill 2          L=-1 le=1 I=2 E= K=
        feature 1       L=-1 le=1 I=2 E= K=
        start 2         L=-1 le=1 I= E= K=""",
    "replicas that are fenced at the creation are not eligible": """
        kill 3          -
        create 3,2 2    L=2 le=0 I=2 E= K=
        start 3         L=2 le=0 I=2 E= K=""",
    "a single replica": """
        create 2        L=2 le=0 I=2 E= K=
        clean 2         L=-1 le=1 I= E=2 K=2
        start 2         L=2 le=2 I=2 E= K=
        kill 2          L=-1 le=3 I= E=2 K=2
        start 2         L=2 le=4 I=2 E= K= recovering
        clean 2         L=-1 le=5 I= E=2 K=2 recovering
        start 2         L=2 le=6 I=2 E= K= recovering""",
    "without the feature the last replica stays in the ISR": """
        feature 0       -
        create 2,3 2    L=2 le=0 I=2,3 E= K=
        kill 3          L=2 le=0 I=2 E= K=
        clean 2         L=-1 le=1 I=2 E= K=
        start 3         L=-1 le=1 I=2 E= K=
        start 2         L=2 le=2 I=2 E= K=""",
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
async def test_a_story(tmp_path: Path, story: str) -> None:
    brokers = Brokers(tmp_path)
    await brokers.start("2")
    await brokers.start("3")
    for line in story.strip().splitlines():
        words, _, expected = line.strip().partition("  ")
        name, *arguments = words.split()
        await getattr(brokers, name)(*arguments)
        if expected.strip() != "-":
            assert str(brokers) == expected.strip(), line
    brokers.cluster.abandon()


async def test_an_unclean_election_elects_a_live_replica_that_is_not_eligible(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    await brokers.start("2")
    await brokers.start("3")
    await brokers.create("2,3")
    await brokers.kill("3")
    await brokers.kill("2")
    await brokers.start("3")
    await brokers.refused("preferred")
    await brokers.elect("unclean")
    assert str(brokers) == "L=3 le=2 I=3 E= K= recovering"
    brokers.cluster.abandon()


async def altering(
    brokers: Brokers, resource: Resource, value: str | None, **options: bool
) -> ApiError | None:
    operation = Operation.SET if value is not None else Operation.DELETE
    return await brokers.alter(resource, {NAME: (operation, value)}, **options)


async def test_brokers_have_one_value_of_min_insync_replicas(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    await brokers.create("1")
    cluster = brokers.cluster
    assert cluster.image.cluster_configs == {NAME: "1"}
    own = Resource(BROKER_RESOURCE, "1")
    refusals = [await altering(brokers, *each) for each in ((own, "2"), (own, None), (CLUSTER, None))]
    refusals.append(await altering(brokers, own, "2", validate_only=True))

    def leaves_it_out(image: Any) -> Any:
        other = {"log.retention.ms": "5"}
        return replaced(image, cluster.settings.static, CLUSTER, other, None)  # type: ignore[arg-type]

    refusals += await cluster.config_control.alter([(CLUSTER, leaves_it_out)])
    altered_not = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    removed_not = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    assert [(each.error, each.message) for each in refusals if each is not None] == [
        (ErrorCode.invalid_config, message)
        for message in (altered_not, altered_not, removed_not, altered_not, removed_not)
    ]
    await brokers.feature("0")
    for resource, value in ((own, "2"), (own, None), (CLUSTER, None)):
        assert await altering(brokers, resource, value) is None
    cluster.abandon()


async def test_records_of_min_insync_replicas_are_followed_by_a_clear_elr_record(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path)
    await brokers.create("1", "2")
    topic, config, clear, partition = records(tmp_path)[-4:]
    assert [type(each) for each in (topic, config, partition)] == [
        schema.TopicRecord,
        schema.ConfigRecord,
        schema.PartitionRecord,
    ]
    assert clear == schema.ClearElrRecord(topic_name="t")
    count = len(records(tmp_path))
    await brokers.min("2")  # has this value already
    assert len(records(tmp_path)) == count
    await altering(brokers, TOPIC, None)
    assert records(tmp_path)[-1] == schema.ClearElrRecord(topic_name="t")
    await brokers.default("1")  # even the same value: a broker's settings are always written
    assert records(tmp_path)[-2:] == [
        schema.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=NAME, value="1"),
        schema.ClearElrRecord(topic_name=""),
    ]
    brokers.cluster.abandon()


async def test_enabling_the_feature_writes_min_insync_replicas_first(tmp_path: Path) -> None:
    levels = {"eligible.leader.replicas.version": 0}
    brokers = Brokers(tmp_path, features=levels, min_insync_replicas="3")
    assert brokers.cluster.image.configs == {}
    await altering(brokers, Resource(BROKER_RESOURCE, "1"), "2")
    brokers.cluster.abandon()
    # A directory keeps its level.
    brokers = Brokers(tmp_path, min_insync_replicas="3")
    assert "eligible.leader.replicas.version" not in brokers.cluster.features
    await brokers.feature("1")
    level = schema.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)

    def setting(name: str, value: str | None) -> schema.ConfigRecord:
        return schema.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=NAME, value=value)

    assert records(tmp_path)[-3:] == [setting("", "3"), setting("1", None), level]
    await brokers.feature("1")
    assert records(tmp_path)[-2:] == [level, level]
    brokers.cluster.abandon()


async def test_an_early_metadata_version_has_no_eligible_replicas_by_default(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, features={"metadata.version": 25})
    assert "eligible.leader.replicas.version" not in brokers.cluster.features
    brokers.cluster.abandon()


async def test_what_a_single_node_writes_at_its_starts_and_stops(tmp_path: Path) -> None:
    """A clean stop leaves the partition without a leader, and a start after a kill does that, and clears the eligible
    leader replicas, in one record for each partition."""
    first = open_cluster(tmp_path)
    await first.replication_control.create_topics([NewTopic("t", 1)])
    count, epoch = len(records(tmp_path)), first.brokers[1].epoch
    await first.leave()
    await first.close()
    change: dict[str, Any] = {"partition_id": 0, "topic_id": first.topics["t"].topic_id}
    lost = schema.PartitionChangeRecord(
        **change, isr=(), leader=-1, eligible_leader_replicas=(1,), last_known_elr=(1,)
    )
    assert records(tmp_path)[count:] == [
        schema.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, in_controlled_shutdown=1),
        lost,
        schema.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1),
    ]

    count = len(records(tmp_path))
    second = open_cluster(tmp_path, seed=2, previous_epoch=epoch)
    second.abandon()
    registered, unfenced, elected = records(tmp_path)[count:]
    assert isinstance(registered, schema.RegisterBrokerRecord)
    assert registered.fenced
    epoch = registered.broker_epoch
    assert unfenced == schema.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=-1)
    assert elected == schema.PartitionChangeRecord(
        **change, isr=(1,), leader=1, eligible_leader_replicas=(), last_known_elr=()
    )

    count = len(records(tmp_path))
    third = open_cluster(tmp_path, seed=3)
    third.abandon()
    unclean, fenced, registered, unfenced, elected = records(tmp_path)[count:]
    assert unclean == schema.PartitionChangeRecord(**change, isr=(), leader=-1, last_known_elr=(1,))
    assert fenced == schema.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1)
    assert isinstance(registered, schema.RegisterBrokerRecord)
    assert elected == schema.PartitionChangeRecord(
        **change, isr=(1,), leader=1, leader_recovery_state=1, last_known_elr=()
    )
    state = third.topics["t"].partitions[0]
    assert (state.leader_epoch, state.leader_recovery_state) == (4, 1)


@pytest.mark.parametrize("clean", [True, False])
async def test_the_brokers_of_a_process_leave_and_return_at_once(tmp_path: Path, clean: bool) -> None:
    """Every replica that was in sync when the process stopped is eligible. After a kill the last leader leads again."""
    brokers = Brokers(tmp_path)
    await brokers.start("2")
    await brokers.start("3")
    await brokers.create("2,3,1")
    await brokers.cluster.replication_control.move_leader("t", 0, 3)
    stopped = {number: broker.epoch for number, broker in brokers.cluster.brokers.items()}
    if clean:
        await brokers.cluster.leave()
        assert str(brokers) == "L=-1 le=2 I= E=1,2,3 K=3"
        await brokers.cluster.close()
    else:
        brokers.cluster.abandon()
        stopped = {}

    def others(cluster: ClusterMetadata) -> list[BrokerRegistration]:
        return [
            cluster.new_registration(number, [], None, UUID(int=number), stopped.get(number, -1))
            for number in (2, 3)
        ]

    brokers.cluster = open_cluster(tmp_path, previous_epoch=stopped.get(1, -1), others=others)
    expected = "L=2 le=3 I=2 E=1,3 K=" if clean else "L=3 le=3 I=3 E= K= recovering"
    assert str(brokers) == expected
    brokers.cluster.abandon()


async def test_a_directory_that_kafka_has_formatted_gets_min_insync_replicas(tmp_path: Path) -> None:
    """``kafka-storage format`` of Kafka 4.4 writes the feature levels into a snapshot at offset 0, and no setting."""
    folder = tmp_path / LOG_DIRECTORY
    open_cluster(tmp_path).abandon()
    for path in folder.iterdir():
        path.unlink()
    levels = records_for_features(INITIAL_LEVELS)
    write_snapshot(folder, levels, 0, 0, last_record_ms=0, now_ms=0, quorum=Quorum())
    cluster = open_cluster(tmp_path)
    assert cluster.features == INITIAL_LEVELS
    assert cluster.image.cluster_configs == {"min.insync.replicas": "1"}
    await cluster.close()
