"""Extracts the topics, partitions, offsets, groups, members and ids of a request, by the names of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from broker.node.fetch_sessions import NO_SESSION
from lab.faults.fields import (
    BATCH_ARRAYS,
    FIND_COORDINATOR,
    PARTITION_ARRAYS,
    PARTITION_NUMBERS,
    SHARE_FETCH,
    TOPIC_NAMES,
    roles,
)
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.injection.points import InjectionPoint
    from broker.node.context import RequestContext
    from broker.node.served import ServedNode

FETCH: Final = 1
SHARE_ACKNOWLEDGE: Final = 79
NEW_SESSION: Final = 0
"""Epoch of a ShareFetch that names all partitions of a new share session."""
END_OF_SESSION: Final = -1
"""Epoch of a ShareAcknowledge that releases what the member holds in all partitions of its share session."""
COORDINATOR_OF_A_GROUP: Final = 0
COORDINATOR_OF_A_TRANSACTION: Final = 1
TOPIC_RESOURCE: Final = 2
GROUP_RESOURCE: Final = 32

TopicName = Callable[[UUID], str | None]
"""Returns the name of the topic with an id; None if the metadata has no such topic."""


@slotted
class RequestSubjects:
    """The topics, partitions, offsets, groups, members and transactional ids that one request names.

    A topic without partitions, as in Metadata, has the partition None.
    """

    transactional_ids: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    partitions: list[tuple[str, int | None]] = field(default_factory=list)
    offsets: list[tuple[str, int | None, int, int]] = field(default_factory=list)
    """(topic, partition, first offset, last offset) of what a share group's request acknowledges or writes."""


def subjects_of(request: Any, context: RequestContext) -> RequestSubjects:
    """The subjects of a request, with the partitions of its fetch session or share session.

    The node that has received the request resolves topic ids.
    """
    node: ServedNode = context.node
    found = subjects_in(context.api_key, request, node.topic_name)
    if context.api_key == FETCH and request.session_id != NO_SESSION:
        found.partitions += node.session_partitions(request.session_id)
    elif _is_about_its_session(context.api_key, request):
        found.partitions += node.share_session_partitions(request.group_id or "", request.member_id or "")
    return found


def _is_about_its_session(api_key: int, request: Any) -> bool:
    """Whether a request of a share group's member is about all partitions of its share session (KIP-932)."""
    if api_key == SHARE_FETCH:
        return bool(request.share_session_epoch != NEW_SESSION)
    return api_key == SHARE_ACKNOWLEDGE and bool(request.share_session_epoch == END_OF_SESSION)


def acquired_in(response: Any, name_of: TopicName) -> RequestSubjects:
    """The partitions and offsets of the records that the response to a ShareFetch delivers."""
    found = RequestSubjects()
    for topic in response.responses:
        name = name_of(topic.topic_id) or ""
        for partition in topic.partitions:
            for each in partition.acquired_records:
                found.offsets.append((name, partition.partition_index, each.first_offset, each.last_offset))
    return found


def subjects_at(at: InjectionPoint) -> RequestSubjects:
    """The topic, partition, offsets, group and transactional id of a step inside the broker."""
    return RequestSubjects(
        {at.transactional_id} if at.transactional_id is not None else set(),
        {at.group_id} if at.group_id is not None else set(),
        set(),
        [(at.topic, at.partition)] if at.topic else [],
        [(at.topic, at.partition, first, last) for first, last in at.offsets],
    )


def subjects_in(api_key: int, request: Any, name_of: TopicName) -> RequestSubjects:
    """The subjects that a decoded request names itself."""
    found = RequestSubjects()
    _look(request, type(request).__union__, api_key, name_of, found)
    if api_key == FIND_COORDINATOR:
        _look_for_keys(request, found)
    found.transactional_ids.discard("")  # default of a version without the field
    found.groups.discard("")
    found.members.discard("")
    return found


def _look(value: Any, union: type, api_key: int, name_of: TopicName, found: RequestSubjects) -> None:
    for name, role, struct in roles(union, api_key):
        content = getattr(value, name)
        if content is None:
            continue
        if role == "transactional_id":
            found.transactional_ids.update([content] if isinstance(content, str) else content)
        elif role == "group":
            found.groups.update([content] if isinstance(content, str) else content)
        elif role == "member":
            found.members.add(content)
        elif role == "topics":
            for each in content:
                _look_at_topic(each, name_of, found)
        elif role == "resources":
            _look_at_resources(content, found)
        else:
            for each in content:
                _look(each, struct, api_key, name_of, found)


def _look_at_topic(topic: Any, name_of: TopicName, found: RequestSubjects) -> None:
    if isinstance(topic, str):
        found.partitions.append((topic, None))
        return
    name = next((getattr(topic, each) for each in TOPIC_NAMES if getattr(topic, each, None)), None)
    topic_id = getattr(topic, "topic_id", None)
    if not name and topic_id is not None:
        name = name_of(topic_id)
    if not name:
        return
    for each in PARTITION_ARRAYS:
        if hasattr(topic, each):
            for partition in getattr(topic, each):
                index = partition if isinstance(partition, int) else _number(partition)
                found.partitions.append((name, index))
                found.offsets += [(name, index, *batch) for batch in _batches(partition)]
            return
    found.partitions.append((name, None))


def _number(partition: Any) -> int:
    return int(next(getattr(partition, each) for each in PARTITION_NUMBERS if hasattr(partition, each)))


def _batches(partition: Any) -> Iterator[tuple[int, int]]:
    for each in BATCH_ARRAYS:
        for batch in getattr(partition, each, ()):
            yield batch.first_offset, batch.last_offset


def _look_at_resources(resources: Iterable[Any], found: RequestSubjects) -> None:
    for resource in resources:
        if resource.resource_type == TOPIC_RESOURCE:
            found.partitions.append((resource.resource_name, None))
        elif resource.resource_type == GROUP_RESOURCE:
            found.groups.add(resource.resource_name)


def _look_for_keys(request: Any, found: RequestSubjects) -> None:
    keys = {request.key, *request.coordinator_keys} - {""}
    if request.key_type == COORDINATOR_OF_A_GROUP:
        found.groups |= keys
    elif request.key_type == COORDINATOR_OF_A_TRANSACTION:
        found.transactional_ids |= keys
