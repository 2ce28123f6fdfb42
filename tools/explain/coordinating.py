"""Queries the coordinator of a group or a transactional id once. An error is not retried: it is a fact to be explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lab.explain.facts import PartitionFacts
from protocol.hashing import partition_for
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataResponseTopic
from tools.client.cluster import GROUP, Cluster
from tools.client.errors import error_name
from tools.explain.asking import Asking

TOPICS: Final = {GROUP: "__consumer_offsets"}
OTHER: Final = "__transaction_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """The coordinator of a group or a transactional id."""

    home: str
    """Partition with the state of the group or transactional id, such as ``__transaction_state-12``; only the topic's
    name if the topic does not exist yet."""
    index: int | None
    node: int | None
    error: str | None
    at: PartitionFacts | None


def find_coordinator(asking: Asking, kind: int, name: str) -> Coordinator:
    """The coordinator that FindCoordinator returns; if that fails, the leader of the partition that has the state."""
    topic_name = TOPICS.get(kind, OTHER)
    topics = asking.any("Metadata", lambda: asking.cluster.refresh([topic_name])) or ()
    topic = next((each for each in topics if not each.error_code), None)
    index = partition_for(name, len(topic.partitions)) if topic is not None and topic.partitions else None
    place = None if topic is None or index is None else _place(topic, index)
    answered = asking.any("FindCoordinator", lambda: _ask(asking.cluster, kind, name))
    error = answered if isinstance(answered, str) else None
    node = answered if isinstance(answered, int) else place.leader if place is not None else None
    return Coordinator(
        home=topic_name if index is None else f"{topic_name}-{index}",
        index=index,
        node=node,
        error=error,
        at=place,
    )


def _ask(cluster: Cluster, kind: int, name: str) -> int | str:
    """Send FindCoordinator. Returns the coordinator's node id, or the name of the error."""
    request = FindCoordinatorRequest(key=name, key_type=kind, coordinator_keys=[name])
    response = cluster.ask("find_coordinator", request)
    found = response.coordinators[0] if response.coordinators else response
    if found.error_code:
        return error_name(found.error_code)
    cluster.nodes.setdefault(found.node_id, (found.host, found.port))
    return int(found.node_id)


def _place(topic: MetadataResponseTopic, index: int) -> PartitionFacts | None:
    for each in topic.partitions:
        if each.partition_index == index:
            return PartitionFacts(
                topic=topic.name or "",
                index=index,
                leader=each.leader_id if each.leader_id >= 0 else None,
                leader_epoch=each.leader_epoch,
                replicas=tuple(each.replica_nodes),
                isr=tuple(each.isr_nodes),
            )
    return None
