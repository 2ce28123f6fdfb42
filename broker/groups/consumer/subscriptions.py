"""Subscription counts of a consumer group or share group, by topic name and by regular expression. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from broker.groups.consumer.resolved import ResolvedRegex
from protocol.named_tuple import NamedTuple


class Subscriber(Protocol):
    """A member of a consumer group or share group, with its subscription."""

    @property
    def subscribed_topic_names(self) -> frozenset[str]: ...
    @property
    def regex(self) -> str | None: ...


class SubscriptionCount(NamedTuple):
    """Number of members that subscribe to a topic by name, and number of regular expressions that match the topic."""

    by_name: int = 0
    by_regex: int = 0


class Subscriptions:
    """The subscription counts of one group. `changed` and `without` return the counts after a change as a copy."""

    __slots__ = ("regexes", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, SubscriptionCount] = {}
        self.regexes: dict[str, int] = {}
        """Regular expression -> number of members that subscribe to it."""

    def copy(self) -> Subscriptions:
        other = Subscriptions()
        other.topics.update(self.topics)
        other.regexes.update(self.regexes)
        return other

    def replace_member(self, old: Subscriber | None, new: Subscriber | None) -> None:
        self._count_names(() if old is None else old.subscribed_topic_names, -1)
        self._count_names(() if new is None else new.subscribed_topic_names, 1)
        self._count_regex(None if old is None else old.regex, -1)
        self._count_regex(None if new is None else new.regex, 1)

    def replace_resolved(self, old: ResolvedRegex | None, new: ResolvedRegex | None) -> None:
        """Update the numbers of matching regular expressions after the topics of one expression changed to ``new``.

        ``old`` is None if the expression had no topics yet, ``new`` is None if no member subscribes to it any more.
        """
        for resolved, difference in ((old, -1), (new, 1)):
            for topic in () if resolved is None else resolved.topics:
                by_name, by_regex = self.topics.get(topic, SubscriptionCount())
                self._put(topic, SubscriptionCount(by_name, by_regex + difference))

    def without(self, members: Iterable[Subscriber], resolved: Mapping[str, ResolvedRegex]) -> Subscriptions:
        """Return the counts without these members, and without regular expressions to which only they subscribe.

        ``resolved``: regular expression -> the topics that match.
        """
        after = self.copy()
        for member in members:
            after.replace_member(member, None)
        for regex in self.regexes:
            if regex not in after.regexes:
                after.replace_resolved(resolved.get(regex), None)
        return after

    def changed(
        self, old: Subscriber, new: Subscriber, resolved: Mapping[str, ResolvedRegex]
    ) -> Subscriptions:
        """Return the counts after the member ``new`` has replaced ``old``.

        ``resolved``: regular expression -> its topics, which no longer count if no member subscribes to it.
        """
        after = self.copy()
        after.replace_member(old, new)
        if old.regex is not None and old.regex != new.regex and self.regexes.get(old.regex) == 1:
            after.replace_resolved(resolved.get(old.regex), None)
        return after

    def are_homogeneous(self, members: int) -> bool:
        """Whether all of the ``members`` members subscribe to the same topics, by name or by one regular expression."""
        if not self.regexes:
            return all(count.by_name == members for count in self.topics.values())
        if next(iter(self.regexes.values())) != members:
            return False
        return all(count == SubscriptionCount(0, 1) for count in self.topics.values())

    def _count_names(self, topics: Iterable[str], difference: int) -> None:
        for topic in topics:
            by_name, by_regex = self.topics.get(topic, SubscriptionCount())
            self._put(topic, SubscriptionCount(by_name + difference, by_regex))

    def _put(self, topic: str, count: SubscriptionCount) -> None:
        # After compaction a log may have the record that removes a subscription without the record that added it.
        count = SubscriptionCount(max(count.by_name, 0), max(count.by_regex, 0))
        if count == SubscriptionCount():
            self.topics.pop(topic, None)
        else:
            self.topics[topic] = count

    def _count_regex(self, regex: str | None, difference: int) -> None:
        if regex is None:
            return
        count = self.regexes.get(regex, 0) + difference
        if count > 0:
            self.regexes[regex] = count
        else:
            self.regexes.pop(regex, None)
