"""Every version of every API once, with a simple request.

This includes the lowest, the highest and the first flexible version.
"""

from __future__ import annotations

from typing import Any

from tests.differential.story import Story, assignment, story, subscription

# Versions of Kafka 4.4 (Produce is announced from 0).
RANGES = {
    "produce": (3, 13),
    "fetch": (4, 18),
    "list_offsets": (1, 11),
    "metadata": (0, 13),
    "offset_commit": (2, 10),
    "offset_fetch": (1, 10),
    "find_coordinator": (0, 6),
    "join_group": (0, 9),
    "heartbeat": (0, 4),
    "leave_group": (0, 5),
    "sync_group": (0, 5),
    "describe_groups": (0, 6),
    "list_groups": (0, 5),
    "api_versions": (0, 5),
    "create_topics": (2, 7),
    "delete_topics": (1, 6),
    "delete_records": (0, 2),
    "init_producer_id": (0, 5),
    "offset_for_leader_epoch": (2, 4),
    "add_partitions_to_txn": (0, 5),
    "add_offsets_to_txn": (0, 4),
    "end_txn": (0, 5),
    "write_txn_markers": (1, 2),
    "txn_offset_commit": (0, 6),
    "describe_configs": (1, 4),
    "create_partitions": (0, 3),
    "delete_groups": (0, 3),
    "offset_delete": (0, 0),
    "describe_cluster": (0, 2),
    "describe_topic_partitions": (0, 0),
}


def each(api: str) -> range:
    low, high = RANGES[api]
    return range(low, high + 1)


@story("versions")
def produce(s: Story) -> None:
    t = s.topic()
    for v in each("produce"):
        s.produce(t, s.batch(1), v=v)


@story("versions")
def fetch(s: Story) -> None:
    t = s.topic()
    s.produce(t, s.batch(2, headers=[(b"h", b"x"), (b"n", None)]))
    for v in each("fetch"):
        s.fetch(t, v=v)


@story("versions")
def list_offsets(s: Story) -> None:
    t = s.topic()
    s.produce(t, s.batch(2))
    for v in each("list_offsets"):
        parts = [{"partition_index": 0, "timestamp": -1}]
        s.ask("list_offsets", v, replica_id=-1, topics=[{"name": t.name, "partitions": parts}])


@story("versions")
def metadata(s: Story) -> None:
    t = s.topic(2)
    for v in each("metadata"):
        s.ask("metadata", v, topics=[{"name": t.name}], allow_auto_topic_creation=False)


@story("versions")
def offset_commit_and_fetch(s: Story) -> None:
    t, group = s.topic(), s.name("g")
    for v in each("offset_commit"):
        part = {
            "partition_index": 0,
            "committed_offset": v,
            "committed_leader_epoch": 0,
            "committed_metadata": f"m{v}",
        }
        s.ask("offset_commit", v, group_id=group, member_id="", topics=[t.by(v, 10) | {"partitions": [part]}])
    for v in each("offset_fetch"):
        wanted = [t.by(v, 10) | {"partition_indexes": [0]}]
        s.ask(
            "offset_fetch", v, group_id=group, topics=wanted, groups=[{"group_id": group, "topics": wanted}]
        )


@story("versions")
def find_coordinator(s: Story) -> None:
    for v in each("find_coordinator"):
        s.ask("find_coordinator", v, key=s.name(), key_type=0, coordinator_keys=[s.name()])
    for v in range(1, 7):
        s.ask(
            "find_coordinator", v, key=s.name(), key_type=1, coordinator_keys=[s.name()], note="transaction"
        )


@story("versions")
def group_life(s: Story) -> None:
    """A group's life (join, sync, heartbeat, describe, leave, delete), with the n-th version of each API in run n."""
    for v in each("join_group"):
        _life(s, v)


def _life(s: Story, v: int) -> None:
    group = s.name(f"g{v}")
    join: dict[str, Any] = {
        "group_id": group,
        "session_timeout": 30000,
        "rebalance_timeout": 30000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(["a"])}],
    }
    member = ""
    answer = s.ask("join_group", v, member_id=member, **join)
    if answer["error_code"] == 79:
        answer = s.ask("join_group", v, member_id=answer["member_id"], note="with the id given", **join)
    who = {"group_id": group, "generation_id": answer["generation_id"], "member_id": answer["member_id"]}
    parts = [{"member_id": answer["member_id"], "assignment": assignment({"a": [0]})}]
    s.ask("sync_group", min(v, 5), assignments=parts, protocol_type="consumer", protocol_name="range", **who)
    s.ask("heartbeat", min(v, 4), **who)
    s.ask("describe_groups", min(v, 6), groups=[group])
    s.ask("list_groups", min(v, 5))
    identity = [{"member_id": answer["member_id"], "reason": "done"}]
    s.ask("leave_group", min(v, 5), group_id=group, member_id=answer["member_id"], members=identity)
    s.ask("delete_groups", min(v, 2), groups_names=[group])


@story("versions")
def create_and_delete_topics(s: Story) -> None:
    for v in each("create_topics"):
        name = s.name(f"v{v}")
        s.ask("create_topics", v, topics=[{"name": name, "num_partitions": 2, "replication_factor": 1}])
    for v in each("delete_topics"):
        name = s.name(f"v{v + 1}")
        s.ask("delete_topics", v, topic_names=[name], topics=[{"name": name}], timeout=10000)


@story("versions")
def create_partitions(s: Story) -> None:
    t = s.topic()
    for v in each("create_partitions"):
        topics = [{"name": t.name, "count": v + 2, "assignments": None}]
        s.ask("create_partitions", v, topics=topics, timeout=10000, validate_only=False)


@story("versions")
def delete_records(s: Story) -> None:
    t = s.topic()
    s.produce(t, s.batch(5))
    for v in each("delete_records"):
        parts = [{"partition_index": 0, "offset": v + 1}]
        s.ask("delete_records", v, topics=[{"name": t.name, "partitions": parts}], timeout=10000)


@story("versions")
def init_producer_id(s: Story) -> None:
    for v in each("init_producer_id"):
        s.ask("init_producer_id", v, transactional_id=None, transaction_timeout=60000)
    for v in each("init_producer_id"):
        s.ask("init_producer_id", v, transactional_id=s.name(), transaction_timeout=60000)


@story("versions")
def offset_for_leader_epoch(s: Story) -> None:
    t = s.topic()
    s.produce(t, s.batch(5))
    for v in each("offset_for_leader_epoch"):
        parts = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
        s.ask("offset_for_leader_epoch", v, replica_id=-1, topics=[{"topic": t.name, "partitions": parts}])


@story("versions")
def transaction_old(s: Story) -> None:
    """One TV1 transaction for each version of its requests."""
    t, tx, group = s.topic(), s.name("tx"), s.name("g")
    pid, epoch = s.producer_id(tx)
    seq = 0
    for v in range(5):
        who: dict[str, Any] = {"transactional_id": tx, "producer_id": pid, "producer_epoch": epoch}
        old: dict[str, Any] = {f"v3_and_below_{k}": value for k, value in who.items()}
        topics = [{"name": t.name, "partitions": [0]}]
        if v < 4:
            old["v3_and_below_topics"] = topics
            s.ask("add_partitions_to_txn", v, retry=(51,), **old)
            s.produce(t, s.batch(1, pid=pid, epoch=epoch, seq=seq, txn=True), v=7 + v, tx=tx)
            seq += 1
        s.ask("add_offsets_to_txn", v, retry=(51,), group_id=group, **who)
        part = {"partition_index": 0, "committed_offset": v, "committed_metadata": None}
        offsets = [{"name": t.name, "partitions": [part]}]
        s.ask("txn_offset_commit", v, group_id=group, topics=offsets, **who)
        s.ask("end_txn", v, committed=v % 2 == 0, **who)
        s.settle(tx)
    s.fetch(t, isolation_level=1)


@story("versions")
def transaction_new(s: Story) -> None:
    """AddPartitionsToTxn v4 and v5 as brokers send it, TxnOffsetCommit v5, EndTxn v5."""
    t, tx, group = s.topic(2), s.name("tx"), s.name("g")
    pid, epoch = s.producer_id(tx)
    for v in (4, 5):
        row = {"transactional_id": tx, "producer_id": pid, "producer_epoch": epoch, "verify_only": False}
        row["topics"] = [{"name": t.name, "partitions": [v - 4]}]
        s.ask("add_partitions_to_txn", v, retry=(51,), transactions=[row])
    part = {"partition_index": 0, "committed_offset": 3, "committed_metadata": None}
    offsets = [{"name": t.name, "partitions": [part]}]
    who: dict[str, Any] = {"transactional_id": tx, "producer_id": pid, "producer_epoch": epoch}
    s.ask("txn_offset_commit", 5, retry=(51,), group_id=group, topics=offsets, **who)
    s.ask("end_txn", 5, committed=True, **who)


@story("versions")
def write_txn_markers(s: Story) -> None:
    t = s.topic()
    for v in each("write_txn_markers"):
        marker = {
            "producer_id": 700_000 + v,
            "producer_epoch": 0,
            "transaction_result": True,
            "topics": [{"name": t.name, "partition_indexes": [0]}],
            "coordinator_epoch": 0,
        }
        s.ask("write_txn_markers", v, markers=[marker])


@story("versions")
def describe_configs(s: Story) -> None:
    t = s.topic(retention__ms="12345", compression__type="zstd")
    for v in each("describe_configs"):
        s.ask(
            "describe_configs",
            v,
            resources=[{"resource_type": 2, "resource_name": t.name, "configuration_keys": None}],
        )


@story("versions")
def describe_cluster(s: Story) -> None:
    for v in each("describe_cluster"):
        s.ask("describe_cluster", v, include_cluster_authorized_operations=False)


@story("versions")
def describe_topic_partitions(s: Story) -> None:
    t = s.topic(2)
    s.ask("describe_topic_partitions", 0, topics=[{"name": t.name}])


@story("versions")
def offset_delete(s: Story) -> None:
    t, group = s.topic(), s.name("g")
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    s.ask("offset_commit", 8, group_id=group, member_id="", topics=[{"name": t.name, "partitions": [part]}])
    s.ask(
        "offset_delete", 0, group_id=group, topics=[{"name": t.name, "partitions": [{"partition_index": 0}]}]
    )
    s.ask("offset_fetch", 7, group_id=group, topics=None)
