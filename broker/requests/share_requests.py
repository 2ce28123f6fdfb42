"""What ShareFetch and ShareAcknowledge have in common: the checks of the request, its acknowledgements, current leaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.requests.authorization import unauthorized
from broker.requests.metadata_views import NO_NODE, topic_name
from broker.share.partition import Acknowledged
from broker.share.sessions import PartitionKey
from broker.share.state import MEMBER_ID_LENGTH_MAX, Outcome, SharePartitionKey
from protocol.errors import NONE, ErrorCode

if TYPE_CHECKING:
    from broker.node.context import RequestContext

RENEW_SINCE: Final = 2
"""First version of ShareFetch and ShareAcknowledge with renewals of locks (KIP-1222)."""
TYPE_MAX: Final = 3
"""Largest acknowledge type without renewals: 0 gap, 1 accept, 2 release, 3 reject."""
RENEW: Final = 4
NOT_A_LEADER_HERE: Final = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)
ALL_WELL: Final = Outcome(NONE)


def refusal(context: RequestContext, group_id: str | None, member_id: str | None) -> ErrorCode:
    """The top-level error for which a request is refused before its session is looked up, or NONE."""
    if not context.node.share.is_enabled:
        return ErrorCode.unsupported_version
    if group_id is None:
        return ErrorCode.invalid_request
    if not context.authorize("READ", "GROUP", group_id):
        return ErrorCode.group_authorization_failed
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        return ErrorCode.invalid_request
    return NONE


def unreadable(context: RequestContext, names: Sequence[str | None]) -> frozenset[str] | None:
    """The topics that the principal may not read. None if a topic is unknown, for which Kafka's authorization fails."""
    if context.node.authorizer is None:
        return frozenset()
    known = [name for name in names if name is not None]
    return unauthorized(context, "READ", "TOPIC", known) if len(known) == len(names) else None


def exists(context: RequestContext, name: str, index: int) -> bool:
    topic = context.node.metadata.topic(name)
    return topic is not None and topic.partition(index) is not None


Acknowledgements = Mapping[PartitionKey, Sequence[Any]]
"""(topic id, partition) -> the acknowledgement batches of the request."""


def acknowledgements(topics: Sequence[Any]) -> Acknowledgements:
    return {
        (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
        for topic in topics
        for partition in topic.partitions
    }


async def acknowledge(
    context: RequestContext,
    group_id: str,
    member_id: str,
    asked: Acknowledgements,
    denied: frozenset[str],
    *,
    is_renew_ack: bool,
) -> dict[PartitionKey, Outcome]:
    """Acknowledge the records of a ShareFetch or ShareAcknowledge request. Returns the results by partition.

    As in Kafka, a partition without batches has a result only if another one is acknowledged.
    """
    type_max = RENEW if context.api_version >= RENEW_SINCE else TYPE_MAX
    results: dict[PartitionKey, Outcome] = {}
    empty: list[PartitionKey] = []
    interested: dict[SharePartitionKey, Sequence[Acknowledged]] = {}
    for key, batches in asked.items():
        topic_id, index = key
        name = topic_name(context.node, topic_id)
        if name is None or topic_id is None:
            results[key] = Outcome(ErrorCode.unknown_topic_id)
        elif not _are_valid(batches, type_max, is_renew_ack=is_renew_ack):
            results[key] = Outcome(ErrorCode.invalid_request)
        elif name in denied:
            results[key] = Outcome(ErrorCode.topic_authorization_failed)
        elif not exists(context, name, index):
            results[key] = Outcome(ErrorCode.unknown_topic_or_partition)
        elif not batches:
            empty.append(key)
        else:
            interested[SharePartitionKey(group_id, topic_id, index)] = [
                Acknowledged(each.first_offset, each.last_offset, each.acknowledge_types) for each in batches
            ]
    if interested:
        outcomes = await context.node.share.acknowledge(member_id, interested)
        results.update((key[1:], outcome) for key, outcome in outcomes.items())
        results.update(dict.fromkeys(empty, ALL_WELL))
    return results


def _are_valid(batches: Sequence[Any], type_max: int, *, is_renew_ack: bool) -> bool:
    """``KafkaApis.validateAcknowledgementBatches``. A batch may begin at the last offset of the batch before."""
    previous_last = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last or first < previous_last or not types:
            return False
        if len(types) > 1 and last - first + 1 != len(types):
            return False
        if min(types) < 0 or max(types) > type_max or (RENEW in types and not is_renew_ack):
            return False
        previous_last = last
    return True


def current_leader(context: RequestContext, error: int, key: PartitionKey) -> tuple[int, int] | None:
    """(leader id, leader epoch) for an error that says that this node is not the leader (KIP-951), else None."""
    if error not in NOT_A_LEADER_HERE:
        return None
    topic = context.node.metadata.topic_by_id(key[0])
    state = topic.partition(key[1]) if topic is not None else None
    return (state.leader, state.leader_epoch) if state is not None else (NO_NODE, NO_NODE)
