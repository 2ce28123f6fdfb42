"""ElectLeaders on three brokers, some of them fenced: the elected leaders, and the errors of failed elections."""

from __future__ import annotations

import pytest

from broker.apis.elect_leaders import elect_leaders
from broker.metadata import ClusterMetadata, NewTopic
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.broker.metadata.world import away, context_of

OK = ErrorCode.none
PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
async def three(cluster: ClusterMetadata) -> ClusterMetadata:
    """A cluster with the topic `t`. Broker 2 is the preferred leader of its first partition, broker 1 that of its second
    partition. All replicas are in sync."""
    for node_id in (2, 3):
        away(cluster, node_id, fenced=False)
    await cluster.replication_control.create_topics([NewTopic("t", assignments=((0, (2, 1)), (1, (1, 2))))])
    return cluster


async def ask(cluster, partitions, kind=PREFERRED, *, topic="t", version=2, denied=()):
    """Send ElectLeaders and return (error of the request, errors by partition)."""
    rows = None if partitions is None else [TopicPartitions(topic=topic, partitions=partitions)]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=rows)
    response = await elect_leaders(request, context_of(cluster, version, denied=denied))
    encoded = b"".join(bytes(chunk) for chunk in request_codec(43, version).encode(response))
    answer = client_codec(43, version).decode(encoded, 0)
    found = {
        (row.topic, each.partition_id): each.error_code
        for row in answer.replica_election_results
        for each in row.partition_result
    }
    return answer.error_code, found


def leaders(cluster: ClusterMetadata) -> list[int]:
    return [state.leader for state in cluster.topics["t"].partitions]


@pytest.mark.parametrize("version", range(3))
async def test_the_preferred_replica_is_elected(three, version):
    await three.cluster_control.fence(2)
    assert leaders(three) == [1, 1]
    error, found = await ask(three, [0, 1], version=version)
    assert (error, found) == (
        OK,
        {
            ("t", 0): ErrorCode.preferred_leader_not_available,
            ("t", 1): ErrorCode.election_not_needed,
        },
    )

    away(three, 2, fenced=False)
    state = three.topics["t"].partitions[0]
    await three.replication_control.alter_partition("t", 0, state.leader_epoch, (1, 2))
    assert (await ask(three, [0], version=version))[1] == {("t", 0): OK}
    assert leaders(three) == [2, 1]
    assert three.topics["t"].partitions[0].leader_epoch == state.leader_epoch + 1


async def test_an_election_of_all_partitions_lists_only_changes_and_failures(three):
    await three.cluster_control.fence(2)
    assert await ask(three, None) == (OK, {("t", 0): ErrorCode.preferred_leader_not_available})


async def test_an_unclean_election_where_no_replica_in_sync_is_left(three):
    """Broker 1 has left the ISR, and broker 2, the last replica in the ISR, is fenced. An unclean election makes broker 1
    the leader."""
    first = three.topics["t"].partitions[0]
    await three.replication_control.alter_partition("t", 0, first.leader_epoch, (2,))
    assert (await ask(three, [0], UNCLEAN))[1] == {("t", 0): ErrorCode.election_not_needed}
    await three.cluster_control.fence(2)
    assert leaders(three) == [-1, 1]
    assert (await ask(three, [0, 1], UNCLEAN))[1] == {
        ("t", 0): OK,
        ("t", 1): ErrorCode.election_not_needed,
    }
    state = three.topics["t"].partitions[0]
    assert (state.leader, state.isr) == (1, (1,))


async def test_an_unclean_election_with_no_live_replica(three):
    await three.replication_control.create_topics([NewTopic("u", assignments=((0, (3,)),))])
    await three.cluster_control.fence(3)
    assert (await ask(three, [0], UNCLEAN, topic="u"))[1] == {
        ("u", 0): ErrorCode.eligible_leaders_not_available
    }


async def test_unknown_topics_and_partitions(three):
    missing = ErrorCode.unknown_topic_or_partition
    assert (await ask(three, [2, -1]))[1] == {("t", 2): missing, ("t", -1): missing}
    assert (await ask(three, [0], topic="missing"))[1] == {("missing", 0): missing}


async def test_an_unknown_election_type_and_an_unauthorized_client(three):
    for refusal, options in (
        (ErrorCode.invalid_request, {"kind": 7}),
        (ErrorCode.cluster_authorization_failed, {"denied": {("ALTER", "CLUSTER", "kafka-cluster")}}),
    ):
        assert await ask(three, [0, 1], **options) == (refusal, {("t", 0): refusal, ("t", 1): refusal})


async def test_many_elections_are_one_commit(three):
    await three.replication_control.create_topics(
        [NewTopic("many", assignments=tuple((n, (2, 1)) for n in range(20)))]
    )
    await three.cluster_control.fence(2)
    away(three, 2, fenced=False)
    for state in three.topics["many"].partitions:
        await three.replication_control.alter_partition("many", state.index, state.leader_epoch, (1, 2))
    before = three.epoch
    assert set((await ask(three, range(20), topic="many"))[1].values()) == {OK}
    assert three.epoch == before + 20
    assert {state.leader for state in three.topics["many"].partitions} == {2}
