"""Topics that are created, grown and deleted, and descriptions of the cluster, while a node is down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.differential.cluster.stories.asking import describe, list_offsets, metadata
from tests.differential.cluster.story import ClusterStory, assignments, story
from tests.differential.story import Body, Topic


def create(s: ClusterStory, suffix: str, note: str, v: int = 7, **fields: Any) -> Topic | None:
    """Send CreateTopics, and omit the settings in the response, which other stories compare."""
    row = {"name": s.name(suffix), "num_partitions": -1, "replication_factor": -1, **fields}
    answer = s.ask("create_topics", v, quiet=True, topics=[row], timeout=30_000, validate_only=False)
    told = {name: value for name, value in answer["topics"][0].items() if name != "configs"}
    s.put(f"create_topics v{v} ({note})", s.normal.answer("create_topics", told))
    if told["error_code"]:
        return None
    topic = Topic(told["name"], told["topic_id"])
    s.settled(topic)
    return topic


def kinds(s: ClusterStory, t: Topic, away: int) -> None:
    """Record a summary of a random placement: replica counts, and whether node ``away`` is a replica or a leader."""
    rows = s.partitions(t, 3).values()
    s.put(
        "placed",
        {
            "replicas": sorted({len(row["replica_nodes"]) for row in rows}),
            "in sync": sorted({len(row["isr_nodes"]) for row in rows}),
            "away": any(away in row["replica_nodes"] for row in rows),
            "away in sync": any(away in row["isr_nodes"] for row in rows),
            "away leads": any(away == row["leader_id"] for row in rows),
            "offline": sorted({tuple(row["offline_replicas"]) for row in rows}),
            "epochs": sorted({row["leader_epoch"] for row in rows}),
        },
    )


@story("administration", "killed")
def topics_without_a_node(s: ClusterStory) -> Iterator[None]:
    """While node 1 is down, new topics get replicas on node 1, which are not in the ISR."""
    made: dict[int, Topic] = {}
    yield
    for factor, partitions in ((3, 4), (1, 6), (4, 1), (-1, 1)):
        note = f"factor {factor}"
        t = create(s, f"f{factor}", note, num_partitions=partitions, replication_factor=factor)
        if t is not None:
            kinds(s, t, 1)
    by_hand: dict[str, Sequence[Sequence[int]]] = {
        "the dead node alone": [[1]],
        "the dead node leads": [[1, 2]],
        "the dead node follows": [[2, 1, 3]],
        "an unknown node": [[2, 4]],
        "one of two on the dead node alone": [[2], [1]],
    }
    for number, (note, replicas) in enumerate(by_hand.items()):
        t = create(s, f"m{number}", note, assignments=assignments(replicas))
        if t is not None:
            made[number] = t
            metadata(s, t, 2)
            describe(s, t, 3)
            s.produce(t, s.batch(1), at=2, timeout=200)
    yield
    for number, in_sync in ((1, {1, 2}), (2, {1, 2, 3})):
        s.await_isr(made[number], in_sync)
        metadata(s, made[number], 2)


@story("administration", "killed")
def deleted_without_a_node(s: ClusterStory) -> Iterator[None]:
    """A topic is deleted and created again while a node is down: the node comes back without the old records."""
    gone, again = s.topic([[1, 2]]), s.topic([[1, 2]])
    for t in (gone, again):
        s.produce(t, s.batch(2), at=1)
        s.await_replicated(t, 2, [1, 2])
    yield
    rows = [{"name": t.name} for t in (gone, again)]
    s.ask("delete_topics", 6, topics=rows, timeout=30_000)
    s.until(lambda: not any(s.partitions(again, at) for at in (2, 3)), "the topics are gone")
    new = create(s, "t2", "again", assignments=assignments([[2, 1]]))
    assert new is not None
    s.produce(new, s.batch(1), at=2, acks=1)
    yield
    s.await_isr(new, {1, 2})
    s.await_replicated(new, 1, [1, 2])
    metadata(s, new, 1)
    s.until(lambda: set(log_sizes(s, 1)) == {(new.name, 0)}, "node 1 has deleted its replicas")
    s.fetch(new, 0, v=16, at=1)
    list_offsets(s, new, 2)
    list_offsets(s, gone, 1)


def log_sizes(s: ClusterStory, at: int) -> dict[tuple[str, int], int]:
    answer = s.look(at, "describe_log_dirs", 4, topics=None)
    return {
        (topic["name"], row["partition_index"]): row["partition_size"]
        for directory in answer["results"]
        for topic in directory["topics"]
        for row in topic["partitions"]
        if topic["name"].startswith(s.prefix)
    }


@story("administration")
def log_directories(s: ClusterStory) -> None:
    """Each node describes its own replicas."""
    t = s.topic([[1, 2], [2, 3]])
    s.produce([(t, 0, s.batch(2))], at=1)
    s.produce([(t, 1, s.batch(3))], at=2)
    s.await_replicated(t, 2, [1, 2])
    s.await_replicated(t, 3, [2, 3], 1)
    for at in (1, 2, 3):
        for v in (1, 4, 5):
            s.ask("describe_log_dirs", v, at=at, topics=[{"topic": t.name, "partitions": [0, 1, 2]}])


@story("administration", "killed")
def the_cluster(s: ClusterStory) -> Iterator[None]:
    """DescribeCluster, with and without fenced brokers, and Metadata: before a node is killed, while it is down,
    and after."""

    def told(at: int) -> None:
        for v in (0, 1, 2):
            s.ask("describe_cluster", v, at=at)
        for fenced in (False, True):
            s.ask("describe_cluster", 2, at=at, include_fenced_brokers=fenced, note=f"fenced too: {fenced}")
        s.ask("metadata", 12, at=at, topics=[])

    told(1)
    yield
    for at in (2, 3):
        told(at)
    yield
    for at in (1, 2):
        told(at)


@story("administration", "unregistered")
def unregistered(s: ClusterStory) -> Iterator[None]:
    """A node that is down is unregistered, and registers again."""
    t, onto = s.topic([[1, 2]]), s.topic([[2, 3]])
    s.ask("unregister_broker", 0, broker_id=7, note="unknown")
    yield
    s.await_leader(t, 2)
    s.ask("unregister_broker", 0, broker_id=1)
    s.ask("unregister_broker", 0, broker_id=1, note="again")
    s.until(lambda: not any(row["broker_id"] == 1 for row in all_brokers(s, 3)), "node 1 is unregistered")
    s.ask("describe_cluster", 2, at=3, include_fenced_brokers=True)
    metadata(s, t, 3)
    describe(s, t, 3)
    for factor in (2, 3):
        create(s, f"f{factor}", f"factor {factor}", num_partitions=1, replication_factor=factor)
    create(s, "m", "on the node that is forgotten", assignments=assignments([[2, 1]]))
    rows = [{"partition_index": 0, "replicas": [2, 1]}]
    body: Body = {"topics": [{"name": onto.name, "partitions": rows}], "timeout": 30_000}
    s.ask("alter_partition_reassignments", 1, note="onto the node that is forgotten", **body)
    yield
    s.await_isr(t, {1, 2})
    metadata(s, t, 3)


def all_brokers(s: ClusterStory, at: int) -> list[Body]:
    return s.look(at, "describe_cluster", 2, include_fenced_brokers=True)["brokers"]


@story("administration", "killed")
def producer_ids(s: ClusterStory) -> Iterator[None]:
    """Each node assigns producer ids from blocks of its own, and gets a new block when it is restarted."""
    block = 1000
    ids: dict[int, list[int]] = {at: [producer_id(s, at) for _ in range(3)] for at in (1, 2, 3)}
    yield
    for at in (2, 3):
        ids[at].append(producer_id(s, at))
    yield
    ids[1].append(producer_id(s, 1))
    for at, given in ids.items():
        s.put(f"ids of {at}", [given[i + 1] - given[i] for i in range(2)])
        s.put(f"blocks of {at}", given[-1] // block == given[0] // block)
    s.put("no block twice", len({given[-1] // block for given in ids.values()}))


def producer_id(s: ClusterStory, at: int) -> int:
    answer = s.quiet("init_producer_id", 4, at=at, transactional_id=None, transaction_timeout=60_000)
    return int(answer["producer_id"])


@story("administration", "killed")
def features(s: ClusterStory) -> Iterator[None]:
    """All nodes return the same features of the cluster."""

    def finalized(at: int) -> dict[str, object]:
        asked = {"client_software_name": "raw", "client_software_version": "1"}
        rows = s.look(at, "api_versions", 4, **asked)["finalized_features"]
        return {row["name"]: [row["min_version_level"], row["max_version_level"]] for row in rows}

    ours = ("metadata.version", "transaction.version", "group.version")
    s.put("features", {name: levels for name, levels in finalized(1).items() if name in ours})
    s.put("the same", all(finalized(at) == finalized(1) for at in (2, 3)))
    yield
    s.put("the same", finalized(2) == finalized(3))
    yield
    s.until(lambda: finalized(1) == finalized(2), "node 1 has the features")
    s.put("the same", all(finalized(at) == finalized(1) for at in (2, 3)))


@story("administration")
def a_cordoned_node(s: ClusterStory) -> None:
    """A node whose log directory is cordoned gets no new replicas (KIP-1066), and keeps those that it has."""
    t = s.topic([[1, 2, 3]])
    row: Body = {"name": s.name("probe"), "num_partitions": 1, "replication_factor": 3}

    def cordon(operation: int, value: str | None, code: int) -> None:
        entry = {"name": "cordoned.log.dirs", "config_operation": operation, "value": value}
        resource = {"resource_type": 4, "resource_name": "3", "configs": [entry]}
        s.ask("incremental_alter_configs", 1, at=3, resources=[resource], validate_only=False)
        # The controller of Kafka learns it by the broker's next heartbeat.
        s.until(lambda: probe() == code, "the controller knows what is cordoned")

    def probe() -> int:
        body = s.look(1, "create_topics", 7, topics=[row], timeout=30_000, validate_only=True)
        return int(body["topics"][0]["error_code"])

    cordon(0, "*", 38)
    try:
        for at in (1, 3):
            s.ask("describe_log_dirs", 5, at=at, topics=[{"topic": t.name, "partitions": [0]}])
        for factor, partitions in ((3, 1), (2, 6)):
            made = create(
                s, f"f{factor}", f"factor {factor}", num_partitions=partitions, replication_factor=factor
            )
            if made is not None:
                kinds(s, made, 3)
        for number, replicas in enumerate(([[3]], [[1, 3]], [[9, 3]], [[3, 3]], [[1, 2]])):
            create(s, f"m{number}", f"on {replicas}", assignments=assignments(replicas))
        for assigned in (None, [{"broker_ids": [1, 2, 3]}]):
            more = [{"name": t.name, "count": 2, "assignments": assigned}]
            s.ask("create_partitions", 3, topics=more, timeout=30_000, validate_only=True)
        for onto in ([3], [3, 2, 1], [1, 2]):
            rows = [{"partition_index": 0, "replicas": onto}]
            body: Body = {"topics": [{"name": t.name, "partitions": rows}], "timeout": 30_000}
            s.ask("alter_partition_reassignments", 1, note=f"to {onto}", **body)
        s.await_isr(t, {1, 2})
        s.produce(t, s.batch(1), at=1)
    finally:
        cordon(1, None, 0)
    create(s, "later", "factor 3", num_partitions=1, replication_factor=3)
