"""Requests of producers and consumers: records, offsets, transactions."""

from __future__ import annotations

from typing import Any

from tests.broker.security.refusals.cases import ALL_TOPICS, by, case
from tests.broker.security.refusals.sides import Body
from tests.broker.security.refusals.world import BATCH, NO_PRODUCER, TOPICS, World, transactional_batch

PRODUCER: Body = {"producer_id": NO_PRODUCER, "producer_epoch": 0}


def _produce(world: World, version: int, records: bytes, transactional_id: str | None = None) -> Body:
    return {
        "acks": -1,
        "timeout": 30_000,
        "transactional_id": transactional_id,
        "topic_data": [
            {**by(world, version, name, 13), "partition_data": [{"index": 0, "records": records}]}
            for name in ALL_TOPICS
        ],
    }


@case("produce", since=3)
def plain(world: World, version: int) -> Body:
    return _produce(world, version, BATCH)


@case("produce", "transactional", since=3)
def transactional(world: World, version: int) -> Body:
    return _produce(world, version, transactional_batch(), "open-t")


@case("produce", "transactional, another's id", since=3)
def transactional_of_another(world: World, version: int) -> Body:
    return _produce(world, version, transactional_batch(), "shut-t")


@case("produce", "transactional, no id", since=3)
def transactional_without_id(world: World, version: int) -> Body:
    return _produce(world, version, transactional_batch())


def _fetch(world: World, version: int) -> Body:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{**by(world, version, name, 13, "topic"), "partitions": [part]} for name in ALL_TOPICS],
    }


@case("fetch")
def by_consumer(world: World, version: int) -> Body:
    return _fetch(world, version) | ({"replica_id": -1} if version < 15 else {})


@case("fetch", "follower")
def by_follower(world: World, version: int) -> Body:
    follower: Body = {"replica_id": 2}
    if version >= 15:
        follower = {"replica_state": {"replica_id": 2, "replica_epoch": 1}}
    return _fetch(world, version) | follower


def _share(world: World, version: int, group: str, epoch: int, names: tuple[str, ...]) -> Body:
    """A ShareFetch or ShareAcknowledge that fetches nothing, and acknowledges a record in its later requests."""
    batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}] if epoch else []
    partitions = [{"partition_index": 0, "acknowledgement_batches": batches}]
    return {
        "group_id": group,
        "member_id": "reader",
        "share_session_epoch": epoch,
        "topics": [{"topic_id": world.id_of(name), "partitions": partitions} for name in names],
    }


def _share_fetch(world: World, version: int, group: str, names: tuple[str, ...]) -> Body:
    sizes = dict.fromkeys(("max_wait", "min_bytes", "max_bytes", "max_records", "batch_size"), 0)
    v2 = {"share_acquire_mode": 0, "is_renew_ack": False} if version >= 2 else {}
    return _share(world, version, group, 0, names) | sizes | v2 | {"forgotten_topics_data": []}


@case("share_fetch", "open")
def share_fetch_open(world: World, version: int) -> Body:
    return _share_fetch(world, version, "open-s", TOPICS)


@case("share_fetch", "shut")
def share_fetch_shut(world: World, version: int) -> Body:
    return _share_fetch(world, version, "shut-s", TOPICS)


@case("share_fetch", "unknown topics")
def share_fetch_of_unknown_topics(world: World, version: int) -> Body:
    return _share_fetch(world, version, "open-s", ALL_TOPICS)


def _open_session(world: World) -> None:
    """Open share sessions, so that the next request has the epoch 1."""
    for group in ("open-s", "shut-s"):
        world.admin("share_fetch", 2, _share_fetch(world, 2, group, TOPICS))


def _share_acknowledge(world: World, version: int, group: str, names: tuple[str, ...]) -> Body:
    return _share(world, version, group, 1, names) | ({"is_renew_ack": False} if version >= 2 else {})


@case("share_acknowledge", "open", prepare=_open_session)
def share_acknowledge_open(world: World, version: int) -> Body:
    return _share_acknowledge(world, version, "open-s", TOPICS)


@case("share_acknowledge", "shut", prepare=_open_session)
def share_acknowledge_shut(world: World, version: int) -> Body:
    return _share_acknowledge(world, version, "shut-s", TOPICS)


@case("share_acknowledge", "unknown topics", prepare=_open_session)
def share_acknowledge_of_unknown_topics(world: World, version: int) -> Body:
    return _share_acknowledge(world, version, "open-s", ALL_TOPICS)


@case("list_offsets")
def list_offsets(world: World, version: int) -> Body:
    part = {"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}
    return {"replica_id": -1, "topics": [{"name": name, "partitions": [part]} for name in ALL_TOPICS]}


@case("offset_for_leader_epoch")
def offset_for_leader_epoch(world: World, version: int) -> Body:
    part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return {"replica_id": -1, "topics": [{"topic": name, "partitions": [part]} for name in ALL_TOPICS]}


@case("delete_records")
def delete_records(world: World, version: int) -> Body:
    part = {"partition_index": 0, "offset": 0}
    return {"timeout": 30_000, "topics": [{"name": name, "partitions": [part]} for name in ALL_TOPICS]}


# -- transactions ------------------------------------------------------------------------------------------------


@case("init_producer_id", "idempotent", until=5)
def idempotent(world: World, version: int) -> Body:
    return {"transactional_id": None, "transaction_timeout": 60_000}


@case("init_producer_id", "half a producer", until=5)
def half_a_producer(world: World, version: int) -> Body:
    """An InitProducerId request with a producer id but no epoch, which is rejected after the authorization."""
    return {"transactional_id": "shut-i", "transaction_timeout": 60_000, "producer_id": 5}


@case("init_producer_id", "open", until=5)
def init_open(world: World, version: int) -> Body:
    return {"transactional_id": "open-i", "transaction_timeout": 60_000}


@case("init_producer_id", "shut", until=5)
def init_shut(world: World, version: int) -> Body:
    return {"transactional_id": "shut-i", "transaction_timeout": 60_000}


def _add_partitions(transactional_id: str, *names: str) -> Body:
    topics = [{"name": name, "partitions": [0]} for name in names]
    mine: Body = {"transactional_id": transactional_id, "topics": topics, **PRODUCER}
    return {f"v3_and_below_{name}": value for name, value in mine.items()}


@case("add_partitions_to_txn", "open", until=3)
def add_open(world: World, version: int) -> Body:
    return _add_partitions("open-t", "open-a")


@case("add_partitions_to_txn", "shut", until=3)
def add_shut(world: World, version: int) -> Body:
    return _add_partitions("shut-t", "open-a")


@case("add_partitions_to_txn", "all topics", until=3)
def add_all(world: World, version: int) -> Body:
    return _add_partitions("open-t", *ALL_TOPICS)


@case("add_partitions_to_txn", "another's topic", until=3)
def add_another(world: World, version: int) -> Body:
    return _add_partitions("open-t", *TOPICS)


@case("add_partitions_to_txn", "internal topic", until=3)
def add_internal(world: World, version: int) -> Body:
    return _add_partitions("open-t", "open-a", "__consumer_offsets")


@case("add_partitions_to_txn", "batched", since=4)
def add_batched(world: World, version: int) -> Body:
    topics = [{"name": name, "partitions": [0]} for name in TOPICS]
    return {
        "transactions": [
            {"transactional_id": "open-t", "topics": topics, "verify_only": False, **PRODUCER},
            {"transactional_id": "shut-t", "topics": topics, "verify_only": True, **PRODUCER},
        ]
    }


@case("add_offsets_to_txn", "open")
def add_offsets_open(world: World, version: int) -> Body:
    return {"transactional_id": "open-t", "group_id": "open-g", **PRODUCER}


@case("add_offsets_to_txn", "shut id")
def add_offsets_shut_id(world: World, version: int) -> Body:
    return {"transactional_id": "shut-t", "group_id": "shut-g", **PRODUCER}


@case("add_offsets_to_txn", "shut group")
def add_offsets_shut_group(world: World, version: int) -> Body:
    return {"transactional_id": "open-t", "group_id": "shut-g", **PRODUCER}


def _txn_offset_commit(world: World, version: int, transactional_id: str, group: str) -> Body:
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topics = [{**by(world, version, name, 6), "partitions": [part]} for name in ALL_TOPICS]
    return {
        "transactional_id": transactional_id,
        "group_id": group,
        "generation_id": -1,
        "member_id": "",
        "topics": topics,
        **PRODUCER,
    }


@case("txn_offset_commit", "open")
def txn_commit_open(world: World, version: int) -> Body:
    return _txn_offset_commit(world, version, "open-t", "open-g")


@case("txn_offset_commit", "shut id")
def txn_commit_shut_id(world: World, version: int) -> Body:
    return _txn_offset_commit(world, version, "shut-t", "shut-g")


@case("txn_offset_commit", "shut group")
def txn_commit_shut_group(world: World, version: int) -> Body:
    return _txn_offset_commit(world, version, "open-t", "shut-g")


@case("end_txn", "open")
def end_open(world: World, version: int) -> Body:
    return {"transactional_id": "open-t", "committed": True, **PRODUCER}


@case("end_txn", "shut")
def end_shut(world: World, version: int) -> Body:
    return {"transactional_id": "shut-t", "committed": False, **PRODUCER}


@case("write_txn_markers")
def write_txn_markers(world: World, version: int) -> Body:
    topics = [{"name": name, "partition_indexes": [0]} for name in ("open-new", "shut-new")]
    markers: list[Any] = [
        {
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": topics,
            **PRODUCER | {"producer_id": pid},
        }
        for pid in (NO_PRODUCER, NO_PRODUCER + 1)
    ]
    return {"markers": markers}


@case("write_txn_markers", "none")
def write_no_markers(world: World, version: int) -> Body:
    return {"markers": []}


@case("describe_transactions")
def describe_transactions(world: World, version: int) -> Body:
    return {"transactional_ids": ["open-x", "shut-x", "open-absent", "shut-absent", ""]}


@case("list_transactions")
def list_transactions(world: World, version: int) -> Body:
    return {"state_filters": ["Ongoing"]}


@case("describe_producers")
def describe_producers(world: World, version: int) -> Body:
    names = (*ALL_TOPICS, "shut-%")
    return {"topics": [{"name": name, "partition_indexes": [0, 7]} for name in names]}
