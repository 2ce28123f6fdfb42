"""`__consumer_offsets`, `__transaction_state` and `__share_group_state`, created and changed in different ways.

Each story has a new broker of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.differential.stories.transactional import Producer
from tests.differential.story import Body, Story, Topic, java_hash, story

OFFSETS, STATE, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"
INTERNAL = (OFFSETS, STATE, SHARES)
GROUP, TRANSACTION = 0, 1
SHOWN = {
    OFFSETS: ["cleanup.policy", "compression.type", "retention.ms", "segment.bytes"],
    STATE: [
        "cleanup.policy",
        "compression.type",
        "min.insync.replicas",
        "retention.ms",
        "segment.bytes",
        "unclean.leader.election.enable",
    ],
    SHARES: ["cleanup.policy", "compression.type", "min.insync.replicas", "retention.ms", "segment.bytes"],
}
SET = 0
NOT_YET = (3, 5, 6, 14, 15, 16, 51)


def named(*names: str) -> list[Body]:
    return [{"name": name} for name in names]


def key(s: Story, partitions: Mapping[int, int]) -> str:
    """A group or transactional id that hashes to the given partition for each number of partitions.

    ``partitions`` is {number of partitions: partition}.
    """
    return next(
        name
        for name in (s.name(f"k{number}") for number in range(1_000_000))
        if all(java_hash(name) % count == index for count, index in partitions.items())
    )


def metadata(s: Story, note: str, *names: str, creates: bool = False, retry: Any = (5,), v: int = 12) -> Body:
    return s.ask(
        "metadata", v, retry=retry, topics=named(*names), allow_auto_topic_creation=creates, note=note
    )


def settings(s: Story, note: str, *names: str) -> None:
    rows = [{"resource_type": 2, "resource_name": name, "configuration_keys": SHOWN[name]} for name in names]
    s.ask("describe_configs", 4, resources=rows, note=note, retry=NOT_YET)


def create(s: Story, note: str, name: str, partitions: int = 3, **configs: str) -> None:
    values = [{"name": one.replace("__", "."), "value": value} for one, value in configs.items()]
    row = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": values}
    answer = s.quiet("create_topics", 7, retry=(), topics=[row])["topics"][0]
    brief = ("name", "error_code", "num_partitions", "replication_factor", "error_message")
    s.put(
        f"create_topics v7 ({note})", {field: s.normal.value(answer[field], field, True) for field in brief}
    )


def find(s: Story, note: str, kind: int, *keys: str, retry: Any = ()) -> None:
    s.ask("find_coordinator", 4, retry=retry, key_type=kind, coordinator_keys=list(keys), note=note)


def commit(s: Story, note: str, group: str, t: Topic, offset: int, retry: Any = ()) -> None:
    rows = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
    s.ask(
        "offset_commit",
        8,
        retry=retry,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": t.name, "partitions": rows}],
        note=note,
    )


def committed(s: Story, note: str, group: str, t: Topic, retry: Any = ()) -> None:
    rows = [{"group_id": group, "topics": [{"name": t.name, "partition_indexes": [0]}]}]
    s.ask("offset_fetch", 8, retry=retry, groups=rows, require_stable=False, note=note)


def init(s: Story, note: str, tx: str, retry: Any = ()) -> Body:
    return s.ask(
        "init_producer_id", 4, retry=retry, transactional_id=tx, transaction_timeout=60_000, note=note
    )


# -- creation --------------------------------------------------------------------------------------------------------


@story("internal-topics", "unused")
def by_metadata(s: Story) -> None:
    """Internal topics get their own numbers of partitions and settings, beside an ordinary topic in the same request."""
    metadata(s, "not there", *INTERNAL)
    names = (*INTERNAL, s.name("t"))
    metadata(s, "first", *names, creates=True)
    metadata(s, "at last", *names, creates=True, retry=(3, 5))
    settings(s, "all", *INTERNAL)
    for kind in (GROUP, TRANSACTION):
        find(s, f"type {kind}", kind, "a", "b", "c", retry=NOT_YET)
    s.ask("describe_topic_partitions", 0, topics=named(SHARES), response_partition_limit=2)
    for note in ("first", "never"):
        metadata(s, f"the metadata log, {note}", "__cluster_metadata", creates=True)


@story("internal-topics", "unused")
def by_metadata_of_old_clients(s: Story) -> None:
    for v, name in ((0, OFFSETS), (1, STATE), (4, SHARES)):
        metadata(s, "first", name, creates=True, v=v)
        metadata(s, "at last", name, creates=True, v=v, retry=(3, 5))
        settings(s, "all", name)


@story("internal-topics", "unused")
def by_find_coordinator(s: Story) -> None:
    for kind, name in ((GROUP, OFFSETS), (TRANSACTION, STATE)):
        find(s, f"type {kind}", kind, "a", retry=NOT_YET)
        metadata(s, "made", name)
        settings(s, "all", name)


@story("internal-topics", "unused")
def by_create_topics(s: Story) -> None:
    """CreateTopics creates internal topics with any number of partitions, and only the settings of the request.

    Until the broker is restarted, the coordinators continue with the number of partitions at its start.
    """
    create(s, "offsets", OFFSETS)
    create(s, "state", STATE)
    create(s, "share groups", SHARES)
    create(s, "again", OFFSETS)
    metadata(s, "three partitions", *INTERNAL, retry=NOT_YET)
    settings(s, "of ordinary topics", *INTERNAL)
    t = s.topic()
    here, there, lost = key(s, {50: 1, 3: 1}), key(s, {50: 2, 3: 0}), key(s, {50: 7, 3: 1})
    for kind in (GROUP, TRANSACTION):
        find(s, f"the partition is there, type {kind}", kind, here, retry=NOT_YET)
        find(s, f"the partition is not there, type {kind}", kind, lost)
    commit(s, "the partition is there", here, t, 1, retry=NOT_YET)
    commit(s, "the partition is another one after a restart", there, t, 2, retry=NOT_YET)
    commit(s, "the partition is not there", lost, t, 3)
    committed(s, "the partition is not there", lost, t)
    init(s, "the number of partitions has changed", here)
    init(s, "the partition is not there", lost)
    s.restart()
    for kind in (GROUP, TRANSACTION):
        find(s, f"after a restart, type {kind}", kind, here, there, lost, retry=NOT_YET)
    for note, group in (("the same partition", here), ("another partition", there), ("none before", lost)):
        committed(s, f"{note}, after a restart", group, t, retry=NOT_YET)
        init(s, f"{note}, after a restart", group, retry=NOT_YET)
    commit(s, "after a restart", lost, t, 4)
    committed(s, "after a restart", lost, t)


@story("internal-topics", "unused")
def by_create_topics_with_settings(s: Story) -> None:
    create(s, "compacted", OFFSETS, 2, cleanup__policy="compact", segment__bytes="1048576")
    create(s, "both", STATE, -1, cleanup__policy="compact,delete")
    create(s, "one that there is not", SHARES, nonsense="1")
    settings(s, "as asked for", OFFSETS, STATE)
    metadata(s, "num.partitions", OFFSETS, STATE, retry=NOT_YET)
    create(s, "the metadata log", "__cluster_metadata")
    metadata(s, "the metadata log", "__cluster_metadata")


# -- changes ---------------------------------------------------------------------------------------------------------


@story("internal-topics", "unused")
def more_partitions(s: Story) -> None:
    """Groups and transactional ids keep their coordinators until the broker is restarted."""
    for kind in (GROUP, TRANSACTION):
        find(s, f"type {kind}", kind, "a", retry=NOT_YET)
    t = s.topic()
    here, there = key(s, {50: 1, 53: 1}), key(s, {50: 2, 53: 51})
    for number, group in enumerate((here, there)):
        commit(s, "50 partitions", group, t, number, retry=NOT_YET)
        init(s, "50 partitions", group, retry=NOT_YET)
    rows = [{"name": name, "count": 53, "assignments": None} for name in (OFFSETS, STATE)]
    s.ask("create_partitions", 3, topics=rows, timeout=10_000, validate_only=False)
    s.wait_for(OFFSETS, 53)
    metadata(s, "53 partitions", OFFSETS, STATE)
    for kind in (GROUP, TRANSACTION):
        find(s, f"53 partitions, type {kind}", kind, here, there)
    for group in (here, there):
        committed(s, "53 partitions", group, t)
        init(s, "53 partitions", group)
    s.ask("list_transactions", 1, note="the new partitions are never loaded")
    s.restart()
    for kind in (GROUP, TRANSACTION):
        find(s, f"after a restart, type {kind}", kind, here, there, retry=NOT_YET)
    for note, group in (("the same partition", here), ("another partition", there)):
        committed(s, f"{note}, after a restart", group, t, retry=NOT_YET)
        init(s, f"{note}, after a restart", group, retry=NOT_YET)
    s.ask("list_transactions", 1, note="after a restart", retry=NOT_YET)


@story("internal-topics", "unused")
def other_settings(s: Story) -> None:
    """Settings of internal topics can be changed as for any topic.

    With retention, offsets are readable as long as their records exist.
    """
    for kind in (GROUP, TRANSACTION):
        find(s, f"type {kind}", kind, "a", retry=NOT_YET)
    t = s.topic()
    commit(s, "compacted", "a", t, 1, retry=NOT_YET)
    for name in (OFFSETS, STATE):
        change = {"name": "cleanup.policy", "config_operation": SET, "value": "delete"}
        row = {"resource_type": 2, "resource_name": name, "configs": [change]}
        s.ask("incremental_alter_configs", 1, resources=[row], validate_only=False, note=name)
        s.ask(
            "alter_configs", 2, resources=[row | {"configs": []}], validate_only=False, note=f"none: {name}"
        )
        s.ask("incremental_alter_configs", 1, resources=[row], validate_only=False, note=name)
    settings_settled(s)
    settings(s, "changed", OFFSETS, STATE)
    commit(s, "not compacted", "a", t, 2, retry=NOT_YET)
    init(s, "not compacted", "a", retry=NOT_YET)
    s.restart()
    find(s, "after a restart", GROUP, "a", retry=NOT_YET)
    committed(s, "after a restart", "a", t, retry=NOT_YET)
    init(s, "after a restart", "a", retry=NOT_YET)
    settings(s, "after a restart", OFFSETS, STATE)


def settings_settled(s: Story) -> None:
    """Wait for the settings: Kafka's controller responds before its broker has read the records."""
    rows = [
        {"resource_type": 2, "resource_name": name, "configuration_keys": ["cleanup.policy"]}
        for name in (OFFSETS, STATE)
    ]
    for _ in range(200):
        answer = s.quiet("describe_configs", 4, resources=rows)
        if all(row["configs"][0]["value"] == "delete" for row in answer["results"]):
            return
    raise AssertionError("the broker does not read the settings")


# -- writes and deletions --------------------------------------------------------------------------------------------


@story("internal-topics", "unused")
def written_to(s: Story) -> None:
    """Only the client id `__admin_client` may produce to internal topics. Such records do not become part of any group."""
    metadata(s, "first", *INTERNAL, creates=True)
    metadata(s, "at last", *INTERNAL, retry=(3, 5))
    for name in INTERNAL:
        for client_id in ("raw", "__admin_client", "__admin_client2", None):
            rows = [{"index": 0, "records": s.batch([b"1"], keys=[b"k"])}]
            s.ask(
                "produce",
                9,
                transactional_id=None,
                acks=-1,
                timeout=10_000,
                topic_data=[{"name": name, "partition_data": rows}],
                retry=NOT_YET,
                client_id=client_id,
                note=f"{name}, {client_id}",
            )


@story("internal-topics", "unused")
def records_deleted(s: Story) -> None:
    metadata(s, "first", *INTERNAL, creates=True)
    metadata(s, "at last", *INTERNAL, retry=(3, 5))
    for name in INTERNAL:
        for offset in (0, -1):
            rows = [{"partition_index": 0, "offset": offset}]
            s.ask(
                "delete_records",
                2,
                topics=[{"name": name, "partitions": rows}],
                timeout=10_000,
                retry=NOT_YET,
                note=f"{name}, {offset}",
            )


@story("internal-topics", "unused")
def deleted(s: Story) -> None:
    """When internal topics are deleted, the coordinators lose all state. FindCoordinator creates the topics again."""
    for kind in (GROUP, TRANSACTION):
        find(s, f"type {kind}", kind, "a", retry=NOT_YET)
    t = s.topic()
    commit(s, "before", "a", t, 1, retry=NOT_YET)
    p = Producer(s, "tx")
    p.start(t)
    s.ask("delete_topics", 6, topics=named(*INTERNAL), timeout=10_000)
    metadata(s, "deleted", OFFSETS, STATE)
    commit(s, "deleted", "a", t, 2, retry=(0, 15))
    committed(s, "deleted", "a", t, retry=(0,))
    init(s, "deleted", p.tx, retry=(0, 15))
    for kind in (GROUP, TRANSACTION):
        find(s, f"again, type {kind}", kind, "a", retry=NOT_YET)
    settings(s, "again", OFFSETS, STATE)
    committed(s, "again", "a", t, retry=NOT_YET)
    init(s, "again", p.tx, retry=NOT_YET)
    s.fetch(t, isolation_level=1, note="the open transaction")


@story("internal-topics", "unused")
def deleted_and_created_with_fewer(s: Story) -> None:
    """The coordinators continue with the earlier number of partitions when a topic is created again with fewer."""
    for kind in (GROUP, TRANSACTION):
        find(s, f"type {kind}", kind, "a", retry=NOT_YET)
    t = s.topic()
    s.ask("delete_topics", 6, topics=named(OFFSETS, STATE), timeout=10_000)
    for name in (OFFSETS, STATE):
        create(s, name, name, 2)
    here, lost = key(s, {50: 1}), key(s, {50: 7})
    for kind in (GROUP, TRANSACTION):
        find(s, f"the partition is there, type {kind}", kind, here, retry=NOT_YET)
        find(s, f"the partition is not there, type {kind}", kind, lost)
    commit(s, "the partition is there", here, t, 1, retry=NOT_YET)
    init(s, "the number of partitions has changed", here)


@story("internal-topics", "unused")
def offsets_in_a_missing_partition(s: Story) -> None:
    """A transaction may include a group whose partition does not exist: EndTxn succeeds without this marker."""
    create(s, "offsets", OFFSETS, 3)
    find(s, "transactions", TRANSACTION, "a", retry=NOT_YET)
    t, p, group = s.topic(), Producer(s, "tx"), key(s, {50: 7})
    s.ask("add_offsets_to_txn", 3, group_id=group, **p.who(), note="the partition is not there")
    rows = [
        {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    ]
    s.ask(
        "txn_offset_commit",
        3,
        group_id=group,
        generation_id=-1,
        member_id="",
        topics=[{"name": t.name, "partitions": rows}],
        **p.who(),
    )
    p.end(True, False)
    s.ask("describe_transactions", 0, transactional_ids=[p.tx])
