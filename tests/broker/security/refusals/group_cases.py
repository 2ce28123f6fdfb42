"""Requests about groups, and FindCoordinator."""

from __future__ import annotations

from typing import Any

from tests.broker.security.refusals.cases import ALL_TOPICS, by, case
from tests.broker.security.refusals.sides import Body
from tests.broker.security.refusals.world import CONSUMER_GROUPS, GROUPS, SHARE_GROUPS, World, subscription

EVERY_GROUP = (*GROUPS, *CONSUMER_GROUPS, "open-absent", "shut-absent")
UNKNOWN: Body = {"generation_id": 1, "member_id": "unknown"}


def _keys(version: int, kind: int, *keys: str) -> Body:
    if version >= 4:
        return {"key_type": kind, "coordinator_keys": list(keys)}
    return {"key_type": kind, "key": keys[-1]}


@case("find_coordinator", "groups")
def find_groups(world: World, version: int) -> Body:
    return _keys(version, 0, "open-g", "shut-g")


@case("find_coordinator", "transactional ids", since=1)
def find_transactional_ids(world: World, version: int) -> Body:
    return _keys(version, 1, "open-t", "shut-t")


@case("find_coordinator", "open", until=3)
def find_open(world: World, version: int) -> Body:
    return _keys(version, 0, "open-g")


def _join(group: str) -> Body:
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": "unknown",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("open-a")}],
    }


@case("join_group", "open")
def join_open(world: World, version: int) -> Body:
    return _join("open-g")


@case("join_group", "shut")
def join_shut(world: World, version: int) -> Body:
    return _join("shut-g")


def _sync(group: str) -> Body:
    return {
        "group_id": group,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
        **UNKNOWN,
    }


@case("sync_group", "open")
def sync_open(world: World, version: int) -> Body:
    return _sync("open-g")


@case("sync_group", "shut")
def sync_shut(world: World, version: int) -> Body:
    return _sync("shut-g")


@case("sync_group", "no protocol", since=5)
def sync_without_protocol(world: World, version: int) -> Body:
    """A SyncGroup request without a protocol name, which is rejected before the authorization."""
    return _sync("shut-g") | {"protocol_name": None}


@case("heartbeat", "open")
def heartbeat_open(world: World, version: int) -> Body:
    return {"group_id": "open-g", **UNKNOWN}


@case("heartbeat", "shut")
def heartbeat_shut(world: World, version: int) -> Body:
    return {"group_id": "shut-g", **UNKNOWN}


def _leave(group: str, version: int) -> Body:
    if version >= 3:
        return {"group_id": group, "members": [{"member_id": "unknown"}, {"member_id": "other"}]}
    return {"group_id": group, "member_id": "unknown"}


@case("leave_group", "open")
def leave_open(world: World, version: int) -> Body:
    return _leave("open-g", version)


@case("leave_group", "shut")
def leave_shut(world: World, version: int) -> Body:
    return _leave("shut-g", version)


def _commit(world: World, version: int, group: str) -> Body:
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topics = [{**by(world, version, name, 10), "partitions": [part]} for name in ALL_TOPICS]
    return {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}


@case("offset_commit", "open")
def commit_open(world: World, version: int) -> Body:
    return _commit(world, version, "open-g")


@case("offset_commit", "shut")
def commit_shut(world: World, version: int) -> Body:
    return _commit(world, version, "shut-g")


def _fetch(world: World, version: int, group: str, *, everything: bool) -> Body:
    topics: list[Any] | None = [
        {**by(world, version, name, 10), "partition_indexes": [0]} for name in ALL_TOPICS
    ]
    return {"group_id": group, "topics": None if everything else topics}


@case("offset_fetch", "open", until=7)
def fetch_open(world: World, version: int) -> Body:
    return _fetch(world, version, "open-g", everything=False)


@case("offset_fetch", "shut", until=7)
def fetch_shut(world: World, version: int) -> Body:
    return _fetch(world, version, "shut-g", everything=False)


@case("offset_fetch", "all of open", since=2, until=7)
def fetch_all_open(world: World, version: int) -> Body:
    return _fetch(world, version, "open-g", everything=True)


@case("offset_fetch", "all of shut", since=2, until=7)
def fetch_all_shut(world: World, version: int) -> Body:
    return _fetch(world, version, "shut-g", everything=True)


@case("offset_fetch", "many", since=8)
def fetch_many(world: World, version: int) -> Body:
    return {"groups": [_fetch(world, version, group, everything=False) for group in GROUPS]}


@case("offset_fetch", "all of many", since=8)
def fetch_all_of_many(world: World, version: int) -> Body:
    return {"groups": [_fetch(world, version, group, everything=True) for group in GROUPS]}


@case("describe_groups")
def describe_groups(world: World, version: int) -> Body:
    return {"groups": list(EVERY_GROUP), "include_authorized_operations": version >= 3}


@case("list_groups")
def list_groups(world: World, version: int) -> Body:
    return {}


def _old_groups(world: World) -> None:
    for group in ("open-old", "shut-old"):
        world.commit(group)


@case("delete_groups", prepare=_old_groups)
def delete_groups(world: World, version: int) -> Body:
    return {"groups_names": ["open-old", "shut-old", "open-absent", "shut-absent", "open-absent"]}


def _offset_delete(group: str) -> Body:
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ALL_TOPICS]
    return {"group_id": group, "topics": topics}


@case("offset_delete", "open", prepare=_old_groups)
def offset_delete_open(world: World, version: int) -> Body:
    return _offset_delete("open-old")


@case("offset_delete", "shut", prepare=_old_groups)
def offset_delete_shut(world: World, version: int) -> Body:
    return _offset_delete("shut-old")


@case("offset_delete", "absent")
def offset_delete_absent(world: World, version: int) -> Body:
    return _offset_delete("open-absent")


# -- consumer groups (KIP-848) -----------------------------------------------------------------------------------


def _beat(group: str, *topics: str) -> Body:
    return {
        "group_id": group,
        "member_id": "unknown",
        "member_epoch": 7,
        "rebalance_timeout": 30_000,
        "subscribed_topic_names": list(topics) or None,
    }


@case("consumer_group_heartbeat", "open")
def beat_open(world: World, version: int) -> Body:
    return _beat("open-c", "open-a")


@case("consumer_group_heartbeat", "shut")
def beat_shut(world: World, version: int) -> Body:
    return _beat("shut-c")


@case("consumer_group_heartbeat", "another's topic")
def beat_another(world: World, version: int) -> Body:
    return _beat("open-c", "open-a", "shut-a")


@case("consumer_group_heartbeat", "no topic")
def beat_nothing(world: World, version: int) -> Body:
    return _beat("open-c", "open-new", "shut-new")


@case("consumer_group_describe")
def consumer_group_describe(world: World, version: int) -> Body:
    return {"group_ids": list(EVERY_GROUP), "include_authorized_operations": True}


def _share_beat(group: str, *topics: str) -> Body:
    return {
        "group_id": group,
        "member_id": "unknown",
        "member_epoch": 7,
        "rack_id": None,
        "subscribed_topic_names": list(topics) or None,
    }


@case("share_group_heartbeat", "open", prepare=World.share)
def share_beat_open(world: World, version: int) -> Body:
    return _share_beat("open-s", "open-a")


@case("share_group_heartbeat", "shut", prepare=World.share)
def share_beat_shut(world: World, version: int) -> Body:
    return _share_beat("shut-s")


@case("share_group_heartbeat", "another's topic")
def share_beat_another(world: World, version: int) -> Body:
    return _share_beat("open-s", "open-a", "shut-a")


@case("share_group_heartbeat", "no topic")
def share_beat_nothing(world: World, version: int) -> Body:
    return _share_beat("open-s", "open-new", "shut-new")


@case("share_group_describe", prepare=World.share)
def share_group_describe(world: World, version: int) -> Body:
    return {"group_ids": [*SHARE_GROUPS, *EVERY_GROUP], "include_authorized_operations": True}


@case("describe_share_group_offsets", prepare=World.share)
def describe_share_offsets(world: World, version: int) -> Body:
    topics = [{"topic_name": name, "partitions": [0]} for name in ALL_TOPICS]
    return {
        "groups": [
            *({"group_id": group, "topics": None} for group in SHARE_GROUPS),
            *({"group_id": group, "topics": topics} for group in ("open-s", "shut-s")),
        ]
    }


def _altered_offsets(group: str) -> Body:
    partitions = [{"partition_index": 0, "start_offset": 1}]
    topics = [{"topic_name": name, "partitions": partitions} for name in ALL_TOPICS]
    return {"group_id": group, "topics": topics}


@case("alter_share_group_offsets", "open")
def alter_share_offsets_open(world: World, version: int) -> Body:
    return _altered_offsets("open-se")


@case("alter_share_group_offsets", "shut")
def alter_share_offsets_shut(world: World, version: int) -> Body:
    return _altered_offsets("shut-se")


def _share_offsets(world: World) -> None:
    for group in ("open-se", "shut-se"):
        world.alter_share_offsets(group)


def _deleted_offsets(group: str) -> Body:
    return {"group_id": group, "topics": [{"topic_name": name} for name in ALL_TOPICS]}


@case("delete_share_group_offsets", "open", prepare=_share_offsets)
def delete_share_offsets_open(world: World, version: int) -> Body:
    return _deleted_offsets("open-se")


@case("delete_share_group_offsets", "shut", prepare=_share_offsets)
def delete_share_offsets_shut(world: World, version: int) -> Body:
    return _deleted_offsets("shut-se")


def _share_states(world: World, version: int) -> Body:
    """Share partitions of a group without a name, to which a broker gets an empty response."""
    partitions = [{"partition": 0}, {"partition": 1}]
    topics = [{"topic_id": world.id_of(name), "partitions": partitions} for name in ALL_TOPICS]
    return {"group_id": "", "topics": topics}


for _operation in ("initialize_{}", "read_{}", "write_{}", "delete_{}", "read_{}_summary"):
    case(_operation.format("share_group_state"))(_share_states)


@case("find_coordinator", "share partitions", since=6)
def find_share_partitions(world: World, version: int) -> Body:
    return _keys(version, 2, "g", "g:topic:0")
