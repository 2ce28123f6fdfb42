"""Effects of a changed subscription on the group epoch, and resolution of regular expressions. Pure.

The broker resolves regular expressions in a later turn of the event loop (KIP-848), so a new regular expression has no
effect before the next group epoch. All regular expressions are resolved again after a topic was created, and after
``group.consumer.regex.refresh.interval.ms``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final
from uuid import UUID

from broker.config.patterns import InvalidPattern, full_match
from broker.groups.consumer import records
from broker.groups.consumer.context import Context, Decision, MayDescribe, refused
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from broker.groups.consumer.resolved import ResolvedRegex
from broker.groups.consumer.topics import metadata_hash, topic_ids
from broker.groups.records import LogRecord
from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple

REGEX_INTERVAL_MS: Final = 10_000
"""Minimum time between two resolutions in a group (``REGEX_BATCH_REFRESH_MIN_INTERVAL_MS``)."""
NOTHING_RESOLVED: Final = ResolvedRegex(frozenset(), -1, -1)


def subscribed_topic_ids(
    context: Context, group: ConsumerGroup, member: ConsumerGroupMember
) -> frozenset[UUID]:
    """Ids of the existing topics to which a member subscribes, by name or by its regular expression."""
    names = member.subscribed_topic_names
    resolved = group.resolved.get(member.regex) if member.regex is not None else None
    if resolved is not None:
        names = names | resolved.topics
    return topic_ids(context.topics, names)


class RegexStatus(Enum):
    """The effect of a member's request on the member's regular expression."""

    UNCHANGED = "unchanged"
    UPDATED = "updated"
    UPDATED_AND_RESOLVED = "updated and resolved"
    """The member has dropped its regular expression, or its new one is already resolved for another member."""


class RegexUpdate(NamedTuple):
    status: RegexStatus
    to_resolve: frozenset[str] = frozenset()


def update_regex(
    context: Context,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    *,
    resolving: bool,
    out: list[LogRecord],
) -> RegexUpdate:
    """Compare the regular expressions of ``old`` and ``new``: return the effect, and the expressions to resolve.

    ``resolving``: whether a resolution is already scheduled; then no expressions are returned.
    """
    status, is_new = RegexStatus.UNCHANGED, False
    if old.subscribed_topic_regex != new.subscribed_topic_regex:
        status = RegexStatus.UPDATED
        subscribers = group.subscriptions.regexes
        if old.regex is not None and subscribers.get(old.regex) == 1:
            out.append(records.regular_expression_tombstone(group.group_id, old.regex))
        if new.regex is None:
            status = RegexStatus.UPDATED_AND_RESOLVED if old.regex is not None else status
        elif new.regex not in subscribers:
            _check(new.regex)
            is_new = True
        elif new.regex in group.resolved:
            status = RegexStatus.UPDATED_AND_RESOLVED
    return RegexUpdate(status, _to_resolve(context, group, old, new, is_new=is_new, resolving=resolving))


def _check(regex: str) -> None:
    try:
        full_match(regex)
    except InvalidPattern as error:
        raise refused(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None


def _to_resolve(
    context: Context,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    *,
    is_new: bool,
    resolving: bool,
) -> frozenset[str]:
    if resolving or not (is_new or group.subscriptions.regexes):
        return frozenset()
    last_ms = group.regexes_resolved_at_ms
    if last_ms is not None and context.now_ms <= last_ms + REGEX_INTERVAL_MS:
        return frozenset()
    after = group.subscriptions.changed(old, new, {}).regexes
    settings, topics = context.settings, context.topics
    if (
        is_new
        or len(after) != len(group.resolved)
        or group.regexes_resolved_in < topics.last_version_with_new_topics
        or (last_ms is not None and context.now_ms > last_ms + settings.regex_refresh_interval_ms)
    ):
        return frozenset(after)
    return frozenset()


def resolve_regexes(
    context: Context, group: ConsumerGroup, regexes: Iterable[str], may_describe: MayDescribe | None = None
) -> Decision[None]:
    """Resolve regular expressions against the present topics. If the matches change, the group gets a new epoch."""
    decision: Decision[None] = Decision(None)
    after = group.subscriptions.copy()
    is_changed = False
    for regex in sorted(regexes):
        if regex not in group.subscriptions.regexes:
            continue
        matches = full_match(regex)
        found = frozenset(
            name
            for name in context.topics.names()
            if matches(name) and (may_describe is None or may_describe(name))
        )
        resolved = ResolvedRegex(found, context.topics.version, context.now_ms)
        before = group.resolved.get(regex)
        if (before or NOTHING_RESOLVED).topics != found:
            is_changed = True
            after.replace_resolved(before, resolved)
        decision.records.append(records.regular_expression(group.group_id, regex, resolved))
    found_hash = metadata_hash(context.topics, after.topics)
    if is_changed or found_hash != group.metadata_hash:
        decision.records.append(records.group_epoch(group.group_id, group.epoch + 1, found_hash))
        decision.is_refreshed = True
    return decision


class Epoch(NamedTuple):
    """The group epoch, and whether all members subscribe to the same topics."""

    epoch: int
    is_homogeneous: bool
    is_refreshed: bool = False


def update_epoch(
    context: Context,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    *,
    bump: bool,
    out: list[LogRecord],
) -> Epoch:
    """Return the group epoch after ``new`` has replaced ``old``.

    The epoch is incremented if ``bump`` is true, or if the hash of the subscribed topics has changed.
    """
    if not bump and group.compared_at == context.topics.changes:
        return Epoch(group.epoch, group.subscriptions.are_homogeneous(len(group.members)))
    after = group.subscriptions.changed(old, new, group.resolved)
    found_hash = metadata_hash(context.topics, after.topics)
    is_known = new.member_id in group.members or new.instance_id in group.static_members
    homogeneous = after.are_homogeneous(len(group.members) + (not is_known))
    epoch = group.epoch
    if bump or found_hash != group.metadata_hash:
        epoch += 1
        out.append(records.group_epoch(group.group_id, epoch, found_hash))
    if group.has_obsolete_metadata:
        out.append(records.obsolete_metadata_tombstone(group.group_id))
    return Epoch(epoch, homogeneous, is_refreshed=True)
