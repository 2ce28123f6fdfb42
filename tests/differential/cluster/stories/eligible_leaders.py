"""Eligible leader replicas (KIP-966): replicas that were in sync when the ISR fell below min.insync.replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.differential.cluster.stories.asking import describe, list_offsets, metadata
from tests.differential.cluster.stories.elections import PREFERRED, UNCLEAN, elect
from tests.differential.cluster.stories.high_watermark import await_log_end
from tests.differential.cluster.stories.in_sync import body, set_config
from tests.differential.cluster.stories.reassignments import await_replicas, move
from tests.differential.cluster.story import ClusterStory, story
from tests.differential.story import Topic

HOME = 1
"""The node that runs all the time."""
MIN_ISR = "min.insync.replicas"
ELR_VERSION = "eligible.leader.replicas.version"
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND = 0, 1, 2
SAFE_DOWNGRADE, UPGRADE = 2, 1
PRODUCE_WAIT_MS = 4000
"""Long enough for a follower to leave the ISR of Apache Kafka meanwhile."""


def topics(s: ClusterStory, *replicas: list[int], **configs: str) -> list[Topic]:
    """Create topics of one partition, each with a record that all replicas know to be committed."""
    s.home = HOME
    created = [s.topic([each], **configs) for each in replicas]
    for t, each in zip(created, replicas, strict=True):
        s.produce(t, s.batch(1), at=each[0])
        s.await_replicated(t, 1, each)
    return created


def await_eligible(s: ClusterStory, t: Topic, eligible: set[int]) -> None:
    """Wait until all nodes have these eligible leader replicas in their metadata."""

    def of(at: int) -> set[int]:
        answer = s.look(at, "describe_topic_partitions", 0, topics=[{"name": t.name}])
        return set(answer["topics"][0]["partitions"][0]["eligible_leader_replicas"])

    s.until(lambda: all(of(at) == eligible for at in s.side.reachable()), f"{t.name} has {eligible} eligible")


def both_in_sync(s: ClusterStory, t: Topic, end: int) -> None:
    """Wait until nodes 2 and 3 are in sync, and both know that all records before ``end`` are committed."""
    s.await_isr(t, {2, 3})
    s.await_replicated(t, end, [2, 3])
    describe(s, t, HOME)


def no_leader(s: ClusterStory, t: Topic) -> None:
    s.await_leader(t, -1)
    metadata(s, t, HOME)
    describe(s, t, HOME)


@story("eligible-leaders", "two-killed")
def the_last_leader(s: ClusterStory) -> Iterator[None]:
    """No replica is eligible, since both may have lost records. So the last leader is elected, and no other replica."""
    (t,), (one,) = topics(s, [2, 3]), topics(s, [2, 3], min__insync__replicas="1")
    describe(s, t, HOME)
    yield
    for each in (t, one):
        s.await_isr(each, {2})
        describe(s, each, HOME)
        s.produce(each, s.batch(1), at=2, note="all")
        s.produce(each, s.batch(1), at=2, acks=1, note="leader only")
    for offset in (1, 2, 3):
        s.fetch(t, offset, at=2)
    yield
    for each in (t, one):
        no_leader(s, each)
        elect(s, each, PREFERRED)
        elect(s, each, UNCLEAN)
    yield
    await_eligible(s, t, {2})
    for each in (t, one):
        no_leader(s, each)
        elect(s, each, PREFERRED)
    yield
    for each, end in ((t, 2), (one, 3)):
        s.await_leader(each, 2, readable=False)
        both_in_sync(s, each, end)
        list_offsets(s, each, 2)
        s.fetch(each, 0, at=2)


@story("eligible-leaders", "two-killed")
def nobody_is_left(s: ClusterStory) -> Iterator[None]:
    """A change of min.insync.replicas removes the eligible replicas and the last leader: only an unclean election helps."""
    (t,) = topics(s, [2, 3])
    yield
    s.await_isr(t, {2})
    yield
    no_leader(s, t)
    set_config(s, t, MIN_ISR, "1")
    await_eligible(s, t, set())
    describe(s, t, HOME)
    yield
    no_leader(s, t)
    yield
    no_leader(s, t)
    elect(s, t, PREFERRED)
    elect(s, t, UNCLEAN)
    s.await_leader(t, 2)
    s.await_isr(t, {2, 3})
    describe(s, t, HOME)
    s.fetch(t, 0, at=2)


@story("eligible-leaders", "two-killed")
def unclean_elections(s: ClusterStory) -> Iterator[None]:
    """A replica that is not eligible leads by unclean.leader.election.enable, or by request."""
    (t,) = topics(s, [2, 3], unclean__leader__election__enable="true")
    (asked,) = topics(s, [2, 3])
    yield
    for each in (t, asked):
        s.await_isr(each, {2})
    yield
    for each in (t, asked):
        no_leader(s, each)
    yield
    await_eligible(s, asked, {2})
    elect(s, asked, UNCLEAN)
    for each in (t, asked):
        s.await_leader(each, 3, readable=False)
        describe(s, each, HOME)
    yield
    for each in (t, asked):
        s.await_isr(each, {2, 3})
        describe(s, each, HOME)


@story("eligible-leaders", "two-killed")
def three_replicas(s: ClusterStory) -> Iterator[None]:
    """Replicas that return after an unclean shutdown are not eligible; those that return to the ISR are not, either."""
    t, changed, moved = topics(s, [2, 3, 1], [2, 3, 1], [2, 3, 1], min__insync__replicas="3")
    yield
    for each in (t, changed, moved):
        s.await_isr(each, {1, 2})
        describe(s, each, HOME)
    for value in ("2", "3"):
        set_config(s, changed, MIN_ISR, value)
        await_eligible(s, changed, set())
    move(s, moved, [2, 1])
    await_replicas(s, moved, [2, 1])
    describe(s, moved, HOME)
    s.produce(moved, s.batch(1), at=2)
    yield
    for each in (t, changed, moved):
        s.await_leader(each, 1, readable=False)
        s.await_isr(each, {1})
        describe(s, each, HOME)
    yield
    for each in (t, changed):
        s.await_isr(each, {1, 3})
    await_eligible(s, moved, {2})
    for each in (t, changed, moved):
        describe(s, each, HOME)
    yield
    for each, isr in ((t, {1, 2, 3}), (changed, {1, 2, 3}), (moved, {1, 2})):
        s.await_isr(each, isr)
        describe(s, each, HOME)


def stopped_one_by_one(s: ClusterStory, t: Topic) -> Iterator[None]:
    """Nodes 3 and 2 stop, after a record that node 2 alone has."""
    yield
    s.await_isr(t, {2})
    s.produce(t, s.batch(1), at=2, acks=1, note="leader only")
    describe(s, t, HOME)
    yield
    no_leader(s, t)


@story("eligible-leaders", "two-stopped")
def another_returns_first(s: ClusterStory) -> Iterator[None]:
    """After clean stops an eligible replica leads, which was not the last leader. Records beyond the high watermark are
    lost."""
    (t,), (own,) = topics(s, [2, 3]), topics(s, [2], min__insync__replicas="1")
    yield from stopped_one_by_one(s, t)
    no_leader(s, own)
    yield
    s.await_leader(t, 3)
    describe(s, t, HOME)
    s.produce(t, s.batch(1), at=3, note="all")
    s.produce(t, s.batch(2), at=3, acks=1, note="leader only")
    list_offsets(s, t, 3)
    no_leader(s, own)
    yield
    s.await_leader(own, 2)
    describe(s, own, HOME)
    both_in_sync(s, t, 3)
    for at in (2, 3):
        s.fetch(t, 0, v=11, at=at)


@story("eligible-leaders", "last-stopped-first-back")
def the_last_leader_returns_first(s: ClusterStory) -> Iterator[None]:
    """The high watermark of the last leader is that of its log's start, until the other replica is back."""
    (t,) = topics(s, [2, 3])
    yield from stopped_one_by_one(s, t)
    yield
    s.await_leader(t, 2, readable=False)
    describe(s, t, HOME)
    for v in (4, 10):
        list_offsets(s, t, 2, v)
    s.fetch(t, 0, at=2)
    yield
    both_in_sync(s, t, 2)
    list_offsets(s, t, 2)


@story("eligible-leaders", "stopped-and-killed")
def the_last_leader_waits(s: ClusterStory) -> Iterator[None]:
    """The last leader was killed, so that it is not eligible: the partition waits for the other replica."""
    (t,), (own,) = topics(s, [2, 3]), topics(s, [2], min__insync__replicas="1")
    yield from stopped_one_by_one(s, t)
    yield
    no_leader(s, t)
    s.await_leader(own, 2)
    describe(s, own, HOME)
    yield
    s.await_leader(t, 3, readable=False)
    s.await_isr(t, {2, 3})
    s.await_replicated(t, 1, [3])
    describe(s, t, HOME)
    s.fetch(t, 0, at=3)


def acknowledged(s: ClusterStory, *written: Topic) -> None:
    """Produce a record, so that only the leader knows that it is committed."""
    s.produce([(t, 0, s.batch(1)) for t in written], at=2)


@story("eligible-leaders", "killed-at-once")
def acknowledged_and_killed(s: ClusterStory) -> Iterator[None]:
    """Only the killed leader knows that the last record is committed. A new leader below min.insync.replicas does not
    learn it before the old one is back."""
    narrow, wide = topics(s, [2, 3], [2, 1, 3])
    acknowledged(s, narrow, wide)
    yield
    s.await_leader(wide, 1)
    s.await_replicated(wide, 2, [1, 3])
    describe(s, wide, HOME)
    list_offsets(s, wide, 1)
    hidden_record(s, narrow)
    yield
    s.await_isr(wide, {1, 2, 3})
    s.await_isr(narrow, {2, 3})
    s.await_replicated(narrow, 2, [2, 3])
    for t in (narrow, wide):
        describe(s, t, HOME)
    s.fetch(narrow, 0, at=3)


def hidden_record(s: ClusterStory, t: Topic) -> None:
    s.await_leader(t, 3, readable=False)
    s.await_isr(t, {3})
    describe(s, t, HOME)
    for v in (1, 4, 10):
        list_offsets(s, t, 3, v)
    for timestamp in (-2, -3, 0):
        list_offsets(s, t, 3, timestamp=timestamp, note=str(timestamp))
    for offset in (0, 1, 2, 3):
        s.fetch(t, offset, at=3)


@story("eligible-leaders", "stopped-at-once")
def acknowledged_and_stopped(s: ClusterStory) -> Iterator[None]:
    """The same after a controlled shutdown. The old leader's high watermark is lowered to that of the new leader."""
    (t,) = topics(s, [2, 3])
    acknowledged(s, t)
    yield
    hidden_record(s, t)
    s.produce(t, s.batch(1), at=3, note="all")
    s.produce(t, s.batch(1), at=3, acks=1, note="leader only")
    yield
    both_in_sync(s, t, 3)
    for at in (2, 3):
        s.fetch(t, 0, v=11, at=at)


@story("eligible-leaders", "paused")
def in_flight(s: ClusterStory) -> Iterator[None]:
    """A Produce with acks=all waits while a follower that is paused leaves the ISR: below min.insync.replicas it times
    out, otherwise it succeeds."""
    (t,), (one,) = topics(s, [2, 3]), topics(s, [2, 3], min__insync__replicas="1")
    yield

    def waiting(each: Topic, on: str) -> Any:
        fields = {"acks": -1, "timeout": PRODUCE_WAIT_MS, **body(s, each)}
        return s.send("produce", 9, at=2, on=on, note=on, **fields)

    below, enough = waiting(t, "below min.insync.replicas"), waiting(one, "one is enough")
    yield
    for each, eligible in ((t, {3}), (one, set[int]())):
        s.await_isr(each, {2})
        await_eligible(s, each, eligible)
    s.take(enough)
    s.take(below)
    s.produce(t, s.batch(1), at=2)
    await_log_end(s, t, 2, 2)
    yield
    for each in (t, one):
        both_in_sync(s, each, 2)
    s.fetch(t, 0, at=2)


def update_feature(s: ClusterStory, level: int, upgrade_type: int) -> None:
    row = {"feature": ELR_VERSION, "max_version_level": level, "upgrade_type": upgrade_type}
    s.ask(
        "update_features",
        2,
        timeout=30_000,
        feature_updates=[row],
        validate_only=False,
        note=f"level {level}",
    )


@story("eligible-leaders", "disabled")
def without_the_feature(s: ClusterStory) -> Iterator[None]:
    """The feature is disabled while a replica is eligible, and enabled again while a partition has no leader."""
    t, other = topics(s, [2, 3], [3, 2])
    yield
    s.await_isr(t, {2})
    await_eligible(s, other, {3})
    for level, upgrade_type in ((0, UPGRADE), (0, SAFE_DOWNGRADE)):
        update_feature(s, level, upgrade_type)
        describe(s, t, HOME)
    yield
    for each in (t, other):
        no_leader(s, each)
    update_feature(s, 1, UPGRADE)
    update_feature(s, 1, UPGRADE)
    describe(s, t, HOME)
    yield
    no_leader(s, t)
    yield
    await_eligible(s, t, set())
    for each in (t, other):
        s.await_isr(each, set())
        no_leader(s, each)
        elect(s, each, UNCLEAN)
        s.await_isr(each, {2, 3})
        describe(s, each, HOME)


def settings(s: ClusterStory, kind: int, name: str, at: int) -> None:
    row = {"resource_type": kind, "resource_name": name, "configuration_keys": [MIN_ISR]}
    note = "of the topic" if kind == TOPIC else repr(name)
    s.ask("describe_configs", 4, at=at, resources=[row], include_synonyms=True, note=note)


def alter(s: ClusterStory, name: str, operation: int, value: str | None, at: int = HOME, **more: Any) -> None:
    row = {"name": MIN_ISR, "config_operation": operation, "value": value}
    resource = {"resource_type": BROKER, "resource_name": name, "configs": [row]}
    s.keeps_topics = True
    body: dict[str, Any] = {"resources": [resource], "validate_only": False, "note": f"{name!r}"} | more
    s.ask("incremental_alter_configs", 1, at=at, **body)


@story("eligible-leaders", "setting")
def the_setting(s: ClusterStory) -> Iterator[None]:
    """All brokers have one value of min.insync.replicas. Each change of it removes the eligible replicas of all topics."""
    (t,), (own,) = topics(s, [2, 3]), topics(s, [2, 3], min__insync__replicas="2")
    for at in (1, 2, 3):
        settings(s, TOPIC, t.name, at)
        settings(s, BROKER, str(at), at)
    for at in (1, 3):
        settings(s, TOPIC, own.name, at)
        settings(s, BROKER, "", at)
    for operation, value in ((SET, "1"), (DELETE, None)):
        for dry in (True, False):
            note = f"at one broker, validate only: {dry}"
            alter(s, "2", operation, value, at=2, validate_only=dry, note=note)
    alter(s, "", DELETE, None)
    for value in ("0", "x"):
        alter(s, "", SET, value)
    alter(s, "", APPEND, "1")
    yield
    for each in (t, own):
        s.await_isr(each, {2})
        describe(s, each, HOME)
    alter(s, "", SET, "2", note="the value that it has")
    for each in (t, own):
        await_eligible(s, each, set())
        describe(s, each, HOME)
    yield
    for each in (t, own):
        s.await_isr(each, {2, 3})
        describe(s, each, HOME)
