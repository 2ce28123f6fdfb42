"""Decides whether a request, or a step inside the broker, matches a rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from broker.peers.senders import comes_from
from lab.faults.declaration import Match
from lab.faults.login_rules import mechanism_of
from lab.faults.rules import matches
from lab.faults.values import parse_span

if TYPE_CHECKING:
    from broker.injection.points import InjectionPoint
    from broker.net.calls import Call
    from lab.faults.request_subjects import RequestSubjects


def circumstances_meet(match: Match, call: Call) -> bool:
    """Whether a request's node, connection, client and version match.

    The content of the request is not examined.
    """
    context = call.context
    version = context.api_version
    if match.version is not None:
        first, last = parse_span("version", match.version)
        if not first <= version <= last:
            return False
    if match.sender is not None and not comes_from(match.sender, context.client_id):
        return False
    return (
        all(
            asked is None or asked == said
            for asked, said in (
                (match.node, context.node.node_id),
                (match.connection, context.connection_id),
            )
        )
        and all(
            pattern is None or matches(pattern, name)
            for pattern, name in (
                (match.client_id, context.client_id),
                (match.listener, context.listener.name),
                (match.peer, context.peer.removeprefix("/")),
                (match.principal, context.principal),
            )
        )
        and (match.mechanism is None or matches(match.mechanism, mechanism_of(call)))
    )


def asks_for_subjects(match: Match) -> bool:
    """Whether ``match`` has conditions on a request's content: ids, group, topic, partition or offset."""
    wanted = (
        match.transactional_id,
        match.group,
        match.member,
        match.topic,
        match.partition,
        match.offset,
    )
    return any(each is not None for each in wanted)


def subjects_meet(match: Match, subjects: RequestSubjects) -> bool:
    """Whether the transactional ids, groups, members, partitions and offsets of a request or step match."""
    return (
        _any(match.transactional_id, subjects.transactional_ids)
        and _any(match.group, subjects.groups)
        and _any(match.member, subjects.members)
        and _has_partition(match, subjects)
    )


def acquired_meets(match: Match, acquired: RequestSubjects) -> bool:
    """Whether the records that a response delivers match."""
    return _has_partition(msgspec.structs.replace(match, offset=match.acquired), acquired)


def _has_partition(match: Match, subjects: RequestSubjects) -> bool:
    if match.offset is not None:
        return any(
            first <= match.offset <= last and _is_partition(match, topic, index)
            for topic, index, first, last in subjects.offsets
        )
    if match.topic is None and match.partition is None:
        return True
    return any(_is_partition(match, topic, index) for topic, index in subjects.partitions)


def _is_partition(match: Match, topic: str, index: int | None) -> bool:
    return (match.topic is None or matches(match.topic, topic)) and match.partition in (None, index)


def _any(pattern: str | None, names: Iterable[str]) -> bool:
    return pattern is None or any(matches(pattern, name) for name in names)


def step_meets(match: Match, at: InjectionPoint) -> bool:
    """Whether a step inside the broker matches."""
    return (
        match.node in (None, at.node_id)
        and match.partition in (None, at.partition)
        and (match.offset is None or any(first <= match.offset <= last for first, last in at.offsets))
        and all(
            pattern is None or matches(pattern, name)
            for pattern, name in (
                (match.topic, at.topic or None),
                (match.transactional_id, at.transactional_id),
                (match.group, at.group_id),
            )
        )
    )
