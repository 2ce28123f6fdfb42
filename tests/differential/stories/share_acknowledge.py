"""ShareAcknowledge: checks, the order of checks, all or nothing, effects of each type."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from tests.differential.stories.share_clients import (
    ACCEPT,
    GAP,
    PROFILE,
    REJECT,
    RELEASE,
    RENEW,
    Acks,
    Member,
    alter_offsets,
    configure,
    count_of,
    delete_offsets,
    describe_offsets,
    filled,
    joined,
    state_log,
)
from tests.differential.story import Story, Topic, story

UNKNOWN = Topic("no-such-topic-anywhere", uuid.UUID("11111111-2222-3333-4444-555555555555"))


@story("share-acknowledge", PROFILE)
def bad_requests(s: Story) -> None:
    t = filled(s, 3)
    m = joined(s, t)
    good: Acks = {t: [(0, 0, ACCEPT)]}
    for v in (1, 2):
        for note, changes in (
            ("no group", {"group_id": None}),
            ("the group without a name", {"group_id": ""}),
            ("no member id", {"member_id": None}),
            ("empty member id", {"member_id": ""}),
            ("37 characters", {"member_id": "x" * 37}),
            ("epoch 0", {"share_session_epoch": 0}),
            ("no session", {"share_session_epoch": 1}),
            ("no session to end", {"share_session_epoch": -1}),
            ("epoch -2", {"share_session_epoch": -2}),
        ):
            m.acknowledge(note, good, v, **changes)
    m.fetch("opens a session", t)
    m.acknowledge("no topics")
    m.acknowledge("a topic without partitions", topics=[{"topic_id": t.id, "partitions": []}])
    m.acknowledge("no batches", {t: []})
    m.acknowledge("no batches, beside others", {(t, 7): [], t: [(0, 0, ACCEPT)]})
    twice = {"partition_index": 0, "acknowledgement_batches": [batch(1), batch(2)]}
    m.acknowledge("a partition twice", topics=[{"topic_id": t.id, "partitions": [twice, twice]}])
    m.end_session()


def batch(offset: int) -> dict[str, object]:
    return {"first_offset": offset, "last_offset": offset, "acknowledge_types": [ACCEPT]}


@story("share-acknowledge", PROFILE)
def wrong_batches(s: Story) -> None:
    """Batches that are refused before the share partition is asked."""
    t = filled(s, 20)
    m = joined(s, t)
    m.fetch("opens a session", t)
    wrong: Sequence[tuple[str, Acks]] = (
        ("an unknown topic id", {UNKNOWN: [(0, 0, ACCEPT)]}),
        ("no partition 7", {(t, 7): [(0, 0, ACCEPT)]}),
        ("the last before the first", {t: [(5, 4, ACCEPT)]}),
        ("not in order", {t: [(8, 8, ACCEPT), (5, 5, ACCEPT)]}),
        ("no types", {t: [(0, 0, ())]}),
        ("two types for four offsets", {t: [(0, 3, (ACCEPT, ACCEPT))]}),
        ("five types for four offsets", {t: [(0, 3, [ACCEPT] * 5)]}),
        ("type 5", {t: [(0, 0, 5)]}),
        ("type -1", {t: [(0, 0, -1)]}),
        ("renew, without IsRenewAck", {t: [(0, 0, RENEW)]}),
        ("negative offsets", {t: [(-3, -2, ACCEPT)]}),
        ("a wrong batch, then a good one", {t: [(5, 4, ACCEPT), (6, 6, ACCEPT)]}),
        ("a wrong partition beside a good one", {(t, 7): [(0, 0, ACCEPT)], (t, 0): [(0, 0, ACCEPT)]}),
    )
    for note, acks in wrong:
        m.acknowledge(note, acks)
    m.acknowledge("renew, v1", {t: [(1, 1, RENEW)]}, v=1)
    describe_offsets(s, "one is accepted", (t.name, [0]))
    sizes = {"max_wait": 0, "max_records": 0}
    m.fetch("in a ShareFetch", acks={t: [(5, 4, ACCEPT)], UNKNOWN: [(0, 0, ACCEPT)]}, **sizes)


@story("share-acknowledge", PROFILE)
def late_and_wrong(s: Story) -> None:
    t = filled(s, 10, 10, topic=s.topic(2))
    m = joined(s, t, partitions=2)
    m.acknowledge("nobody has fetched the partition", {t: [(0, 0, ACCEPT)]}, share_session_epoch=1)
    m.nothing("the other partition", (t, 1))
    m.acknowledge("nobody has fetched this one", {t: [(0, 0, ACCEPT)]})
    m.fetch("both batches", t)
    m.acknowledge("the first batch and more", {t: [(0, 14, ACCEPT), (15, 15, RELEASE), (18, 18, RELEASE)]})
    late: Sequence[tuple[str, Acks]] = (
        ("late", {t: [(10, 14, ACCEPT)]}),
        ("late, released", {t: [(10, 14, RELEASE)]}),
        ("partly late", {t: [(12, 15, ACCEPT)]}),
        ("past the end", {t: [(18, 30, ACCEPT)]}),
        ("far past the end", {t: [(100, 110, ACCEPT)]}),
        ("of an empty partition", {(t, 1): [(0, 0, ACCEPT)]}),
        ("what was released", {t: [(15, 15, ACCEPT)]}),
        ("over what was released", {t: [(14, 16, ACCEPT)]}),
    )
    for note, acks in late:
        m.acknowledge(note, acks)
    m.fetch("what was released")
    again: Sequence[tuple[str, Acks]] = (
        ("the same offset twice", {t: [(15, 15, RELEASE), (15, 15, RELEASE)]}),
        ("not in order", {t: [(18, 18, ACCEPT), (15, 15, ACCEPT)]}),
        ("over a hole", {t: [(15, 18, ACCEPT)]}),
        ("some that is not there", {t: [(15, 15, ACCEPT), (16, 20, ACCEPT)]}),
        ("all that is there", {t: [(15, 19, [ACCEPT, ACCEPT, ACCEPT, REJECT, GAP])]}),
        ("again", {t: [(15, 19, ACCEPT)]}),
    )
    for note, acks in again:
        m.acknowledge(note, acks)
    describe_offsets(s, "all is done", (t.name, [0]))


@story("share-acknowledge", PROFILE)
def all_or_nothing(s: Story) -> None:
    t = filled(s, 5, 5, topic=s.topic(2))
    filled(s, 5, topic=t, partition=1)
    m, other = joined(s, t, partitions=2), Member(s, "other")
    m.fetch("all of the first partition", t, max_records=500)
    m.fetch("all of the second one", (t, 1))
    m.acknowledge("releases some", {t: [(2, 3, RELEASE)]})
    other.fetch("another gets them", t)
    mixed: Acks = {(t, 0): [(0, 1, ACCEPT), (2, 2, ACCEPT)], (t, 1): [(0, 1, ACCEPT)]}
    m.acknowledge("one partition fails", mixed)
    describe_offsets(s, "the other one does not", (t.name, [0, 1]))
    m.acknowledge("in another order", {t: [(0, 4, [ACCEPT, ACCEPT, RELEASE, ACCEPT, ACCEPT])]})
    m.acknowledge("over two batches", {t: [(0, 1, ACCEPT), (4, 9, ACCEPT)]})
    renewed: Acks = {(t, 1): [(2, 2, RENEW), (0, 0, RENEW)]}
    m.acknowledge("renews in the wrong order", renewed, is_renew_ack=True)
    m.acknowledge("renews and releases", {(t, 1): [(2, 4, [RENEW, RELEASE, ACCEPT])]}, is_renew_ack=True)
    m.fetch("what was released")


@story("share-acknowledge", PROFILE)
def effects(s: Story) -> None:
    """What each type does to the stored state."""
    t = filled(s, 5)
    m = joined(s, t, share__delivery__count__limit="2")
    m.fetch("all", t)
    m.acknowledge("a type each", {t: [(0, 4, [GAP, RELEASE, ACCEPT, REJECT, RELEASE])]})
    describe_offsets(s, "one is at the start", (t.name, [0]))
    m.fetch("what was released")
    m.acknowledge("releases at the limit", {t: [(1, 1, RELEASE)]})
    describe_offsets(s, "it is archived", (t.name, [0]))
    m.acknowledge("the last one", {t: [(4, 4, REJECT)]})
    m.nothing("nothing is left")
    state_log(s, "of all types", "g", t)


@story("share-acknowledge", PROFILE)
def not_writable(s: Story) -> None:
    """The offsets of the group are deleted while a reader has records."""
    t = filled(s, 4)
    m = joined(s, t, share__record__lock__duration__ms="1500")
    m.fetch("all", t)
    m.leave()
    delete_offsets(s, "the group is empty", t.name)
    m.acknowledge("accepts", {t: [(0, 1, ACCEPT)]})
    m.acknowledge("once more", {t: [(0, 1, ACCEPT)]})
    m.nothing("in a ShareFetch", acks={t: [(2, 2, RELEASE)]})
    m.end_session("the end of the session", {t: [(3, 3, ACCEPT)]})
    m.nothing("not initialized any more", t)
    m.join("joins again", t)
    m.until(lambda answer: count_of(answer) == 1, "it is assigned")
    m.until_acquired("when their locks have ended", t)


@story("share-acknowledge", PROFILE)
def offsets_altered_behind_a_reader(s: Story) -> None:
    t = filled(s, 10)
    m = joined(s, t)
    m.fetch("all", t)
    m.acknowledge("some", {t: [(0, 2, ACCEPT)]})
    m.leave()
    alter_offsets(s, "back to 1", (t.name, 0, 1))
    describe_offsets(s, "altered", (t.name, [0]))
    m.acknowledge("the reader goes on", {t: [(3, 4, ACCEPT)]})
    describe_offsets(s, "overwritten", (t.name, [0]))
    state_log(s, "altered and written", "g", t)
    configure(s, share__auto__offset__reset="latest")
    m.end_session()
    m.until_acquired("read again", t)
