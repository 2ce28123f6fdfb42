"""Requests about topics, settings and the cluster."""

from __future__ import annotations

from typing import Any

from tests.broker.security.refusals.cases import ALL_TOPICS, case
from tests.broker.security.refusals.sides import Body
from tests.broker.security.refusals.world import TOPICS, World

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET = 0


def _operations(version: int) -> Body:
    if version < 8:
        return {}
    asked: Body = {"include_topic_authorized_operations": True}
    return asked | ({"include_cluster_authorized_operations": True} if version <= 10 else {})


@case("metadata", "names")
def metadata_names(world: World, version: int) -> Body:
    names = ALL_TOPICS if version >= 4 else TOPICS  # versions below 4 always create missing topics
    asked = {"allow_auto_topic_creation": False} if version >= 4 else {}
    return {"topics": [{"name": name} for name in names], **asked, **_operations(version)}


@case("metadata", "all")
def metadata_all(world: World, version: int) -> Body:
    return {"topics": [] if version == 0 else None, **_operations(version)}


@case("metadata", "none", since=1)
def metadata_none(world: World, version: int) -> Body:
    return {"topics": [], **_operations(version)}


@case("metadata", "ids", since=12)
def metadata_ids(world: World, version: int) -> Body:
    topics = [{"name": None, "topic_id": world.id_of(name)} for name in (*TOPICS, "open-new")]
    return {"topics": topics, **_operations(version)}


@case("metadata", "missing")
def metadata_missing(world: World, version: int) -> Body:
    names = [world.fresh("open"), world.fresh("shut"), "shut-%"]
    return {"topics": [{"name": name} for name in names], **_operations(version)}


@case("describe_topic_partitions", "names")
def describe_names(world: World, version: int) -> Body:
    return {"topics": [{"name": name} for name in ALL_TOPICS], "response_partition_limit": 100}


@case("describe_topic_partitions", "all")
def describe_all(world: World, version: int) -> Body:
    return {"topics": [], "response_partition_limit": 2000}


def _new(name: str) -> Body:
    return {"name": name, "num_partitions": 1, "replication_factor": 1}


@case("create_topics")
def create_topics(world: World, version: int) -> Body:
    names = ("open-made", "shut-made", *TOPICS, "open-twice", "open-twice", "__cluster_metadata", "shut-%")
    return {"topics": [_new(name) for name in names], "timeout": 30_000, "validate_only": True}


def _doomed(world: World) -> None:
    for name in ("open-doomed", "shut-doomed"):
        world.create(name)


DOOMED = ("open-doomed", "shut-doomed", "open-new", "shut-new", "shut-twice", "shut-twice")


@case("delete_topics", "names", prepare=_doomed)
def delete_names(world: World, version: int) -> Body:
    if version >= 6:
        return {"topics": [{"name": name} for name in DOOMED], "timeout": 30_000}
    return {"topic_names": list(DOOMED), "timeout": 30_000}


@case("delete_topics", "ids", since=6, prepare=_doomed)
def delete_ids(world: World, version: int) -> Body:
    topics = [
        {"name": None, "topic_id": world.id_of(name)} for name in ("open-doomed", "shut-doomed", "open-new")
    ]
    return {"topics": topics, "timeout": 30_000}


@case("delete_topics", "name and id", since=6, prepare=_doomed)
def delete_name_and_id(world: World, version: int) -> Body:
    topics: list[Any] = []
    for name in ("open-doomed", "shut-doomed"):
        topics += [{"name": name}, {"name": None, "topic_id": world.id_of(name)}]
    return {"topics": topics, "timeout": 30_000}


@case("create_partitions")
def create_partitions(world: World, version: int) -> Body:
    topics = [{"name": name, "count": 5, "assignments": None} for name in ALL_TOPICS]
    return {"topics": topics, "timeout": 30_000, "validate_only": True}


# -- settings ----------------------------------------------------------------------------------------------------


RESOURCES = (
    (TOPIC, "open-a", "retention.ms"),
    (TOPIC, "shut-a", "retention.ms"),
    (TOPIC, "open-new", "retention.ms"),
    (TOPIC, "shut-new", "retention.ms"),
    (BROKER, "", "background.threads"),
    (BROKER, "1", "background.threads"),
    (GROUP, "open-g", "consumer.session.timeout.ms"),
    (GROUP, "shut-g", "consumer.session.timeout.ms"),
    (METRICS, "shut-m", "interval.ms"),
)
VALUES = {
    "retention.ms": "1000000",
    "background.threads": "11",
    "consumer.session.timeout.ms": "50000",
    "interval.ms": "1000",
}


@case("describe_configs")
def describe_configs(world: World, version: int) -> Body:
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
        for kind, name, key in (*RESOURCES, (LOGGER, "1", "root"), (BROKER, "7", "background.threads"))
    ]
    return {"resources": resources}


def _changes(key: str, *, incremental: bool) -> list[Body]:
    return [{"name": key, "value": VALUES[key], **({"config_operation": SET} if incremental else {})}]


@case("alter_configs")
def alter_configs(world: World, version: int) -> Body:
    resources = [
        {"resource_type": kind, "resource_name": name, "configs": _changes(key, incremental=False)}
        for kind, name, key in RESOURCES
        if name  # the cluster-wide defaults of brokers cannot be replaced without min.insync.replicas
    ]
    return {"resources": resources, "validate_only": True}


@case("incremental_alter_configs")
def incremental_alter_configs(world: World, version: int) -> Body:
    resources = [
        {"resource_type": kind, "resource_name": name, "configs": _changes(key, incremental=True)}
        for kind, name, key in RESOURCES
    ]
    level = {"name": "root", "config_operation": SET, "value": "INFO"}
    resources.append({"resource_type": LOGGER, "resource_name": "1", "configs": [level]})
    return {"resources": resources, "validate_only": True}


@case("incremental_alter_configs", "wrong")
def incremental_alter_wrong(world: World, version: int) -> Body:
    """A request with invalid resources and settings. The broker checks their form and, with the permission, settings of
    brokers. Then the permissions for the other resources are checked, and these resources by the controller."""
    rows: list[tuple[int, str, str, str | None]] = [
        (TOPIC, "shut-a", "retention.ms", None),
        (TOPIC, "shut-new", "retention.ms", "x"),
        (BROKER, "1", "background.threads", "x"),
        (BROKER, "7", "background.threads", "11"),
        (LOGGER, "7", "root", "INFO"),
        (9, "what", "is", "it"),
    ]
    resources = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": key, "config_operation": SET, "value": value}],
        }
        for kind, name, key, value in rows
    ]
    return {"resources": resources, "validate_only": True}


@case("list_config_resources")
def list_config_resources(world: World, version: int) -> Body:
    return {"resource_types": [METRICS]} if version >= 1 else {}


@case("list_config_resources", "topics", since=1)
def list_topics(world: World, version: int) -> Body:
    return {"resource_types": [TOPIC]}


# -- the cluster ---------------------------------------------------------------------------------------------------


@case("describe_cluster")
def describe_cluster(world: World, version: int) -> Body:
    return {"include_cluster_authorized_operations": True}


@case("describe_quorum")
def describe_quorum(world: World, version: int) -> Body:
    return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}


@case("describe_log_dirs")
def describe_log_dirs(world: World, version: int) -> Body:
    return {"topics": [{"topic": name, "partitions": [0]} for name in TOPICS]}


@case("alter_replica_log_dirs")
def alter_replica_log_dirs(world: World, version: int) -> Body:
    topics = [{"name": name, "partitions": [0]} for name in TOPICS]
    return {"dirs": [{"path": "/nowhere", "topics": topics}]}


@case("elect_leaders")
def elect_leaders(world: World, version: int) -> Body:
    topics = [{"topic": name, "partitions": [0]} for name in (*TOPICS, "shut-new")]
    return {"election_type": 0, "topic_partitions": topics, "timeout": 30_000}


@case("alter_partition_reassignments")
def alter_partition_reassignments(world: World, version: int) -> Body:
    part = {"partition_index": 0, "replicas": None}
    return {"topics": [{"name": name, "partitions": [part]} for name in TOPICS], "timeout": 30_000}


@case("list_partition_reassignments")
def list_partition_reassignments(world: World, version: int) -> Body:
    topics = [{"name": name, "partition_indexes": [0]} for name in ALL_TOPICS]
    return {"topics": topics, "timeout": 30_000}


@case("list_partition_reassignments", "all")
def list_all_reassignments(world: World, version: int) -> Body:
    return {"topics": None, "timeout": 30_000}


@case("update_features")
def update_features(world: World, version: int) -> Body:
    return {"feature_updates": [{"feature": "absent", "max_version_level": 1}], "timeout": 30_000}


@case("unregister_broker")
def unregister_broker(world: World, version: int) -> Body:
    return {"broker_id": 77}


@case("unregister_controller")
def unregister_controller(world: World, version: int) -> Body:
    return {"controller_id": 77}


@case("add_raft_voter")
def add_raft_voter(world: World, version: int) -> Body:
    return {"cluster_id": None, "voter_id": -1, "listeners": [], "timeout": 1000}


@case("remove_raft_voter")
def remove_raft_voter(world: World, version: int) -> Body:
    return {"cluster_id": None, "voter_id": -1}
