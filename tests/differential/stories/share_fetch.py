"""ShareFetch: checks, share sessions, acquired records, waiting, transactions, locks, the first offset."""

from __future__ import annotations

import time
import uuid

from tests.differential.stories import quotas
from tests.differential.stories.share_clients import (
    ACCEPT,
    GAP,
    NOT_LONG_MS,
    PROFILE,
    REJECT,
    RELEASE,
    RENEW,
    Batch,
    Member,
    acquired,
    alter_offsets,
    await_session_end,
    configure,
    delete_groups,
    describe_offsets,
    filled,
    joined,
    reconfigure,
    silent,
)
from tests.differential.stories.transactional import Producer
from tests.differential.story import Body, Story, Topic, story
from tests.support.deadlines import Deadline

UNKNOWN = Topic("no-such-topic-anywhere", uuid.UUID("11111111-2222-3333-4444-555555555555"))


def begun(s: Story, name: str, t: Topic, count: int) -> Producer:
    """A transaction with one batch."""
    producer = Producer(s, name)
    producer.send(t, 0, count=count, quiet=True)
    return producer


def end(s: Story, producer: Producer, *, committed: bool) -> None:
    s.quiet("end_txn", 5, **producer.who(), committed=committed)
    s.settle(producer.tx)


@story("share-fetch", PROFILE)
def before_there_is_a_group(s: Story) -> None:
    """A share partition that the group has not initialized cannot be fetched."""
    t = filled(s, 3)
    joined(s, t, group="other")
    m = Member(s)
    m.nothing("nobody has joined", t)
    m.nothing("again", t)
    configure(s, share__auto__offset__reset="earliest")
    m.join("joins", t)
    m.until(lambda answer: answer["assignment"] is not None, "it is assigned")
    m.fetch("initialized", t)
    empty = Member(s, "e")
    empty.group = ""
    empty.nothing("the group without a name", t)


@story("share-fetch", PROFILE)
def bad_requests(s: Story) -> None:
    t = filled(s, 3)
    m = joined(s, t)
    for v in (1, 2):
        for note, changes in (
            ("no group", {"group_id": None}),
            ("no member id", {"member_id": None}),
            ("empty member id", {"member_id": ""}),
            ("37 characters", {"member_id": "x" * 37}),
            ("a first request with acknowledgements", {"acks": {t: [(0, 0, ACCEPT)]}}),
            ("no session", {"share_session_epoch": 1}),
            ("no session to end", {"share_session_epoch": -1}),
            ("epoch -2", {"share_session_epoch": -2}),
        ):
            m.nothing(note, t, v=v, **changes)
    for name in ("max_wait", "min_bytes", "max_bytes", "max_records", "batch_size"):
        sizes = {"max_wait": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
        m.fetch(f"renews, with {name}", t, is_renew_ack=True, **(sizes | {name: 1}))
    m.nothing("acquire mode 2", t, share_acquire_mode=2)
    m.nothing("acquire mode -1", t, share_acquire_mode=-1)
    twice = [{"topic_id": t.id, "partitions": [{"partition_index": 0}, {"partition_index": 0}]}]
    m.nothing("a partition twice", topics=twice, share_session_epoch=0)
    apart = [{"topic_id": t.id, "partitions": [{"partition_index": p}]} for p in (0, 7)]
    m.nothing("a topic twice", topics=apart, share_session_epoch=0)
    m.nothing("no topics", share_session_epoch=0)
    m.nothing("an unknown topic id", UNKNOWN, share_session_epoch=0)
    m.nothing("no partition 7", (t, 7), share_session_epoch=0)
    m.nothing(
        "a topic without partitions", topics=[{"topic_id": t.id, "partitions": []}], share_session_epoch=0
    )
    m.nothing("negative sizes", t, share_session_epoch=0, max_records=-1, batch_size=-1)
    m.nothing("negative bytes", t, share_session_epoch=0, max_bytes=-1)
    m.acknowledge("releases all", {t: [(0, 2, RELEASE)]})
    m.fetch("a good one", t, share_session_epoch=0)
    describe_offsets(s, "after all that", (t.name, [0]))


@story("share-fetch", PROFILE)
def mixed_acknowledgements(s: Story) -> None:
    t = filled(s, 10, 10)
    m = joined(s, t)
    m.fetch("both batches", t)
    mixed: list[Batch] = [(10, 14, ACCEPT), (15, 15, RELEASE), (16, 19, [ACCEPT, REJECT, RELEASE, GAP])]
    m.acknowledge("of the second batch", {t: mixed})
    m.fetch("what was released")
    describe_offsets(s, "in flight", (t.name, [0]))
    m.nothing("the first batch is accepted", acks={t: [(0, 9, ACCEPT)]})
    describe_offsets(s, "the start offset moves", (t.name, [0]))
    m.acknowledge("late", {t: [(10, 14, ACCEPT)]})
    m.acknowledge("what is left", {t: [(15, 15, ACCEPT), (18, 18, ACCEPT)]})
    describe_offsets(s, "all is done", (t.name, [0]))
    m.end_session()


@story("share-fetch", PROFILE)
def versions(s: Story) -> None:
    t = filled(s, 2, 2)
    m = joined(s, t)
    m.fetch("v1", t, v=1, max_records=1, batch_size=1)
    m.fetch("v2", v=2, acks={t: [(0, 1, ACCEPT)]})
    m.acknowledge("v1", {t: [(2, 2, ACCEPT)]}, v=1)
    m.acknowledge("v2", {t: [(3, 3, ACCEPT)]}, v=2)


@story("share-fetch", PROFILE)
def sessions(s: Story) -> None:
    t = filled(s, 4)
    m = joined(s, t)
    m.fetch("opens a session", t)
    m.nothing("a wrong epoch", share_session_epoch=2)
    m.acknowledge("a wrong epoch", {t: [(0, 0, ACCEPT)]}, share_session_epoch=2)
    m.acknowledge("cannot open a session", {t: [(0, 0, ACCEPT)]}, share_session_epoch=0)
    m.acknowledge("the next epoch", {t: [(0, 0, ACCEPT)]})
    m.nothing("and the next", acks={t: [(1, 1, RELEASE)]})
    other = Member(s, "other")
    other.acknowledge("without session", {t: [(2, 2, ACCEPT)]}, share_session_epoch=1)
    m.nothing("opens another session", t, share_session_epoch=0, max_records=0)
    m.acknowledge("what is still locked", {t: [(2, 2, ACCEPT)]})
    m.nothing("a final epoch fetches nothing", t, share_session_epoch=-1, acks={t: [(3, 3, RELEASE)]})
    m.nothing("after it", share_session_epoch=m.session + 3)
    m.acknowledge("after it", {t: [(1, 1, ACCEPT)]}, share_session_epoch=5)
    m.session = 0
    m.until_acquired("what was released", t)
    m.end_session("a final acknowledgement", {t: [(1, 1, ACCEPT)]})
    other.until_acquired("released by the end of the session", t)
    describe_offsets(s, "at the end", (t.name, [0]))


@story("share-fetch", PROFILE)
def sessions_and_connections(s: Story) -> None:
    """A session belongs to the connection of its first request, whichever connection is used later."""
    t = filled(s, 2, 2)
    m = joined(s, t)
    m.fetch("opens a session", t, max_records=1, batch_size=1)
    m.on = "another connection"
    m.fetch("over another connection", max_records=1, batch_size=1)
    s.close("another connection")
    m.on = "a third one"
    m.acknowledge("its end does not matter", {t: [(2, 2, ACCEPT)]})
    s.close("m")
    other = Member(s, "other")
    other.until_acquired("the end of the first one does", t)
    m.nothing("its session is gone", share_session_epoch=m.session)
    m.acknowledge("for acknowledgements too", {t: [(3, 3, ACCEPT)]})
    twin = Member(s, "other", on="twin")
    twin.nothing("the same member id from another connection", t)
    other.nothing("the former session is gone", share_session_epoch=99)
    s.close("other")
    twin.nothing("its connection does not matter now")
    twin.acknowledge("it has the records of the member id", {t: [(0, 0, ACCEPT)]})


@story("share-fetch", PROFILE)
def partitions_of_a_session(s: Story) -> None:
    t, u = s.topic(2), s.topic()
    m = joined(s, t, u, partitions=1)
    m.until(lambda answer: answer["assignment"] is None, "all is initialized")
    m.nothing("nothing is there", (t, 0), (t, 1))
    filled(s, 1, topic=u)
    m.fetch("another topic is added", u)
    m.nothing("only the rest", acks={u: [(0, 0, ACCEPT)]})
    filled(s, 1, topic=t, partition=1)
    m.fetch("a partition")
    m.nothing("a partition is forgotten", forgotten=[(t, 1)], acks={(t, 1): [(0, 0, RELEASE)]})
    m.acknowledge("of the forgotten one", {(t, 1): [(0, 0, ACCEPT)]})
    m.nothing("what was never there is forgotten", forgotten=[UNKNOWN, (t, 7)])
    filled(s, 1, topic=t, partition=1)
    m.nothing("an acknowledgement has not added it again")
    m.nothing("errors once", UNKNOWN, (t, 7))
    m.nothing("errors again")
    m.nothing("added and forgotten at once", (t, 1), forgotten=[(t, 1)])
    m.fetch("added", (t, 1))


@story("share-fetch", PROFILE)
def one_partition_after_the_other(s: Story) -> None:
    """MaxRecords counts over all partitions, which take turns."""
    t = s.topic(3)
    m = joined(s, t, partitions=3)
    for partition in range(3):
        filled(s, 2, 2, topic=t, partition=partition)
    counts, ranges = [], []
    for number in range(6):
        answer = m.fetch(
            "", *((t, p) for p in range(3) if not number), max_records=2, batch_size=2, quiet=True
        )
        found = [
            row for topic in answer["responses"] for row in topic["partitions"] if row["acquired_records"]
        ]
        counts.append(len(found))
        ranges += [[row["partition_index"], row["acquired_records"][0]["first_offset"]] for row in found]
    s.put("partitions in each response", counts)
    s.put("first offsets of all partitions", sorted(ranges))
    m.nothing("nothing is left")


@story("share-fetch", PROFILE)
def records_of_another(s: Story) -> None:
    t = filled(s, 100, 100)
    m, other = joined(s, t), Member(s, "other")
    m.fetch("all", t)
    m.acknowledge("releases some", {t: [(10, 20, RELEASE)]})
    other.fetch("another member gets them", t)
    m.acknowledge("all of them", {t: [(0, 199, ACCEPT)]})
    m.acknowledge("its own and others", {t: [(0, 9, ACCEPT), (10, 20, ACCEPT)]})
    describe_offsets(s, "nothing is accepted", (t.name, [0]))
    m.acknowledge("its own", {t: [(0, 9, ACCEPT), (21, 199, ACCEPT)]})
    other.disconnect()
    m.until_acquired("what the other one had", t)


@story("share-fetch", PROFILE)
def batch_modes(s: Story) -> None:
    t = filled(s, *[100] * 8)
    m = joined(s, t)
    m.fetch("150 of batches of 100", t, max_records=150, batch_size=150)
    m.fetch("at most 30", max_records=30, batch_size=30, share_acquire_mode=1)
    m.fetch("no records", max_records=0)
    m.fetch("no bytes", max_bytes=0)
    m.fetch("batch size 0", max_records=100, batch_size=0)
    m.fetch("one byte", max_bytes=1)
    m.nothing("acquire mode 2", share_acquire_mode=2)
    m.session += 1
    m.fetch("batches of 50", max_records=200, batch_size=50)
    m.acknowledge("releases all", {t: [(0, 229, RELEASE), (230, 699, RELEASE)]})
    m.fetch("at most 250 again", max_records=250, batch_size=100, share_acquire_mode=1)
    m.fetch("batches of 10", max_records=200, batch_size=10)
    m.fetch("the rest")


@story("share-fetch", PROFILE)
def record_limit(s: Story) -> None:
    t = filled(s, 10, 10, 10)
    m, other = joined(s, t), Member(s, "other")
    for number in range(3):
        m.fetch(
            f"4 records, {number}",
            *(() if number else (t,)),
            max_records=4,
            batch_size=4,
            share_acquire_mode=1,
        )
    other.fetch("9 records for another", t, max_records=9, batch_size=2, share_acquire_mode=1)
    m.acknowledge("releases some", {t: [(1, 2, RELEASE), (5, 6, RELEASE), (9, 9, RELEASE)]})
    m.fetch("3 records", max_records=3, batch_size=3, share_acquire_mode=1)
    m.fetch("5 records", max_records=5, batch_size=5, share_acquire_mode=1)
    m.fetch("all that is left")


@story("share-fetch", PROFILE)
def poison(s: Story) -> None:
    """Records that are delivered often are delivered in fewer and fewer at once."""
    t = filled(s, 40)
    m = joined(s, t)
    answer = m.fetch("first", t)
    for number in range(1, 30):
        ranges = [(row["first_offset"], row["last_offset"], RELEASE) for row in acquired(answer)]
        m.acknowledge(f"releases {number}", {t: ranges})
        answer = m.fetch(f"delivery {number}", max_wait=NOT_LONG_MS)
    describe_offsets(s, "some are archived", (t.name, [0]))


@story("share-fetch", PROFILE)
def poison_with_other_limits(s: Story) -> None:
    for limit in (2, 3, 10):
        t = filled(s, 16, 3)
        m = joined(s, t, group=f"g{limit}", share__delivery__count__limit=f"{limit}")
        m.on = f"m{limit}"
        answer = m.fetch(f"limit {limit}", t)
        for number in range(12):
            ranges = [(row["first_offset"], row["last_offset"], RELEASE) for row in acquired(answer)]
            if not ranges:
                break
            m.acknowledge(f"limit {limit}, releases", {t: ranges})
            answer = m.fetch(f"limit {limit}, delivery {number}", max_wait=NOT_LONG_MS)


@story("share-fetch", PROFILE)
def the_limit_is_lowered(s: Story) -> None:
    t = filled(s, 2)
    m = joined(s, t)
    m.fetch("first", t)
    for number in range(2):
        m.acknowledge("releases", {t: [(0, 1, RELEASE)]})
        m.fetch(f"again {number}")
    m.acknowledge("releases", {t: [(0, 1, RELEASE)]})
    reconfigure(s, share__delivery__count__limit="2")
    m.fetch("delivered once more")
    m.acknowledge("releases", {t: [(0, 0, RELEASE)]})
    m.fetch("the other one")
    describe_offsets(s, "the first is archived", (t.name, [0]))


@story("share-fetch", PROFILE)
def locks_end(s: Story) -> None:
    """The end of a lock completes a waiting fetch."""
    t = filled(s, 6)
    limits: Body = {"share__record__lock__duration__ms": "1000", "share__delivery__count__limit": "3"}
    m, other = joined(s, t, **limits), Member(s, "other")
    m.fetch("first", t)
    other.fetch("the lock ends", t)
    m.fetch("one at a time")
    m.acknowledge("too late", {t: [(0, 5, ACCEPT)]})
    m.acknowledge("what it has", {t: [(0, 0, ACCEPT)]})
    other.fetch("the next one")
    describe_offsets(s, "one is accepted", (t.name, [0]))


@story("share-fetch", PROFILE)
def renewals(s: Story) -> None:
    t = filled(s, 3)
    m, other = joined(s, t, share__record__lock__duration__ms="1500"), Member(s, "other")
    m.fetch("first", t)
    pending = other.begin_fetch("gets what is not renewed", t)
    for number in range(3):
        time.sleep(0.7)
        m.acknowledge(f"renews {number}", {t: [(0, 1, RENEW)]}, is_renew_ack=True)
    s.take(pending)
    m.acknowledge("renews what it has lost", {t: [(0, 1, RENEW), (2, 2, RENEW)]}, is_renew_ack=True)
    sizes = {"max_wait": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
    m.fetch("in a ShareFetch", acks={t: [(0, 0, RENEW), (1, 1, ACCEPT)]}, is_renew_ack=True, **sizes)
    m.fetch("only accepts", acks={t: [(0, 0, ACCEPT)]}, is_renew_ack=True, **sizes)
    m.acknowledge("without saying so", {t: [(0, 0, RENEW)]})
    reconfigure(s, share__renew__acknowledge__enable="false")
    other.acknowledge("not enabled", {t: [(2, 2, RENEW)]}, is_renew_ack=True)


@story("share-fetch", PROFILE)
def locks_are_full(s: Story) -> None:
    t = filled(s, 100, 100)
    m = joined(s, t, share__partition__max__record__locks="100")
    m.fetch("as many as allowed", t, max_records=100, batch_size=100)
    m.nothing("no more")
    m.acknowledge("some in the middle", {t: [(10, 19, ACCEPT)]})
    m.nothing("no more yet")
    m.acknowledge("releases some", {t: [(30, 39, RELEASE)]})
    m.fetch("only those")
    m.acknowledge("the first ones", {t: [(0, 9, ACCEPT)]})
    m.fetch("the next batch")


@story("share-fetch", PROFILE)
def transactions(s: Story) -> None:
    t = filled(s, 3)
    end(s, begun(s, "committed", t, 3), committed=True)
    end(s, begun(s, "aborted", t, 3), committed=False)
    filled(s, 2, topic=t)
    every = joined(s, t, group="uncommitted", member_id="u")
    every.fetch("read_uncommitted", t)
    m = joined(s, t, group="committed", share__isolation__level="read_committed")
    m.fetch("read_committed", t)
    m.acknowledge("up to the aborted ones", {t: [(0, 6, ACCEPT)]})
    m.acknowledge("the aborted ones", {t: [(7, 9, ACCEPT)]})
    m.acknowledge("the rest", {t: [(10, 12, ACCEPT)]})
    describe_offsets(s, "all is done", (t.name, [0]), group="committed")
    open_one = begun(s, "open", t, 4)
    filled(s, 2, topic=t)
    every.fetch("of an open transaction")
    m.nothing("an open transaction")
    pending = m.begin_fetch("waits for its end")
    silent(s, pending, "the transaction is open")
    end(s, open_one, committed=False)
    s.take(pending)


@story("share-fetch", PROFILE)
def first_offset(s: Story) -> None:
    """share.auto.offset.reset decides at the first fetch, not at the subscription."""
    t = filled(s, 3)
    m = joined(s, t, group="latest", share__auto__offset__reset="latest")
    filled(s, 2, topic=t)
    m.nothing("latest", t)
    describe_offsets(s, "not written", (t.name, [0]), group="latest")
    filled(s, 1, topic=t)
    m.fetch("only new records")
    reconfigure(s, "latest", share__auto__offset__reset="earliest")
    m.end_session()
    m.until_acquired("its end has written the start offset", t)
    m.acknowledge("accepts", {t: [(0, 0, ACCEPT)]})
    describe_offsets(s, "written", (t.name, [0]), group="latest")
    for duration in ("PT1H", "PT0.001S"):
        group = f"by{duration[2:].lower().replace('.', '')}"
        n = joined(s, t, group=group, member_id="n", share__auto__offset__reset=f"by_duration:{duration}")
        n.on = group
        n.nothing(duration, t)
        n.nothing(f"{duration} again", t)


@story("share-fetch", PROFILE)
def first_offset_that_is_not_written(s: Story) -> None:
    """share.auto.offset.reset decides again when the leader reads the share partition again."""
    t = filled(s, 3)
    m = joined(s, t, share__auto__offset__reset="latest")
    m.nothing("latest", t)
    m.disconnect()
    await_session_end(m)
    reconfigure(s, share__auto__offset__reset="earliest")
    Member(s, "other").fetch("earliest", t)


@story("share-fetch", PROFILE)
def log_start_moves(s: Story) -> None:
    t = filled(s, 5, 5, 5)
    m, other = joined(s, t), Member(s, "other")
    m.fetch("the first batch", t, max_records=1, batch_size=1)
    m.acknowledge("releases some", {t: [(0, 1, RELEASE)]})
    topics = [{"name": t.name, "partitions": [{"partition_index": 0, "offset": 7}]}]
    s.quiet("delete_records", 2, topics=topics, timeout=10_000)
    other.nothing("what is deleted", t)
    other.fetch("the rest")
    m.acknowledge("of deleted records", {t: [(2, 3, ACCEPT)]})
    describe_offsets(s, "the start offset", (t.name, [0]))


@story("share-fetch", PROFILE)
def log_start_within_a_batch(s: Story) -> None:
    """Records below the log start are acquired with the batch that has them."""
    t = filled(s, 5, 5, 5)
    m, other = joined(s, t), Member(s, "other")
    m.fetch("the first batch", t, max_records=1, batch_size=1)
    topics = [{"name": t.name, "partitions": [{"partition_index": 0, "offset": 7}]}]
    s.quiet("delete_records", 2, topics=topics, timeout=10_000)
    other.nothing("what is deleted", t)
    other.fetch("the rest")
    other.acknowledge("releases it", {t: [(5, 14, RELEASE)]})
    other.nothing("again")
    other.nothing("once more")
    m.nothing("another member")
    other.acknowledge("what may be there", {t: [(7, 14, ACCEPT)]})
    describe_offsets(s, "the start offset", (t.name, [0]))


@story("share-fetch", PROFILE)
def compacted_batches(s: Story) -> None:
    """Offsets without a record are acquired as those with one."""
    t = s.topic()
    s.produce(t, s.batch(3), quiet=True)
    s.produce(t, s.batch([b"a", b"b"], codec=1), quiet=True)
    m = joined(s, t)
    m.fetch("compressed", t)
    m.acknowledge("as gaps", {t: [(0, 4, [GAP, ACCEPT, GAP, ACCEPT, GAP])]})
    describe_offsets(s, "gaps count as done", (t.name, [0]))


@story("share-fetch", PROFILE)
def waiting(s: Story) -> None:
    """What completes a waiting fetch, and what does not."""
    t = filled(s, 20)
    m, other = joined(s, t), Member(s, "other")
    m.fetch("all", t)
    pending = other.begin_fetch("for the start offset", t)
    silent(s, pending, "all is acquired")
    m.acknowledge("releases all", {t: [(0, 19, RELEASE)]})
    silent(s, pending, "a release completes nothing")
    filled(s, 1, topic=t)
    s.take(pending)
    other.acknowledge("accepts half and releases the rest", {t: [(0, 9, ACCEPT), (10, 19, RELEASE)]})
    pending = m.begin_fetch("for more")
    s.take(pending)
    pending = other.begin_fetch("for the start offset again")
    m.acknowledge("accepts the first ones, releases others", {t: [(10, 14, ACCEPT), (15, 19, RELEASE)]})
    s.take(pending)


@story("share-fetch", PROFILE)
def waiting_for_a_session_to_end(s: Story) -> None:
    t = filled(s, 4)
    m, other = joined(s, t), Member(s, "other")
    m.fetch("all", t)
    pending = other.begin_fetch("until MaxWaitMs", t, max_wait=1000)
    silent(s, pending, "all is acquired")
    m.end_session()
    silent(s, pending, "the end of a session completes nothing")
    s.take(pending)
    m.session = 0
    other.acknowledge("releases all", {t: [(0, 3, RELEASE)]})
    m.until_acquired("all", t)
    pending = other.begin_fetch("until MaxWaitMs", max_wait=1000)
    silent(s, pending, "all is acquired again")
    m.disconnect()
    silent(s, pending, "the end of a connection completes nothing")
    s.take(pending)


@story("share-fetch", PROFILE)
def waiting_beside_another_group(s: Story) -> None:
    """A fetch that returns records completes those of other groups, which a release alone has not completed.

    Kafka looks at these at the end of a request, so after a fetch that loads its share partition only with the next one.
    """
    t = filled(s, 4)
    m, other = joined(s, t), Member(s, "other")
    stranger = joined(s, t, group="h", member_id="stranger")
    stranger.fetch("all of another group", t)
    stranger.acknowledge("releases all of another group", {t: [(0, 3, RELEASE)]})
    m.fetch("all", t)
    pending = other.begin_fetch("for what m has", t)
    silent(s, pending, "all is acquired")
    m.acknowledge("releases all", {t: [(0, 3, RELEASE)]})
    silent(s, pending, "a release completes nothing")
    stranger.fetch("all of another group again")
    s.take(pending)
    m.nothing("all is acquired")
    pending = m.begin_fetch("for what other has")
    other.acknowledge("releases all", {t: [(0, 3, RELEASE)]})
    silent(s, pending, "a release completes nothing")
    stranger.nothing("nothing of another group")
    silent(s, pending, "a fetch without records completes nothing")
    stranger.acknowledge("of another group", {t: [(0, 0, ACCEPT)]})
    silent(s, pending, "an acknowledgement in another group completes nothing")
    stranger.acknowledge("releases the others", {t: [(1, 3, RELEASE)]})
    stranger.fetch("some of another group")
    s.take(pending)


@story("share-fetch", PROFILE)
def min_bytes(s: Story) -> None:
    t = s.topic()
    m = joined(s, t)
    pending = m.begin_fetch("for more than there is", t, min_bytes=1000, max_wait=1000)
    filled(s, 1, topic=t)
    silent(s, pending, "there are not enough bytes")
    s.take(pending)
    pending = m.begin_fetch("for a record", acks={t: [(0, 0, ACCEPT)]})
    silent(s, pending, "its acknowledgement waits too")
    filled(s, 1, topic=t)
    s.take(pending)
    m.fetch("no bytes at least", min_bytes=0, acks={t: [(1, 1, ACCEPT)]})


@story("share-fetch", PROFILE)
def forgotten(s: Story) -> None:
    """Locks of a partition that left the session stay when the session ends."""
    t = filled(s, 3)
    m, other = joined(s, t, share__record__lock__duration__ms="1500"), Member(s, "other")
    m.fetch("all", t)
    m.nothing("forgets the partition", forgotten=[t])
    m.end_session()
    other.nothing("the records are still locked", t)
    other.fetch("until the lock ends")


@story("share-fetch", PROFILE)
def nobody_uses_the_group(s: Story) -> None:
    """When the last session of a group has ended, the leader reads the share partition again."""
    t = filled(s, 10)
    m = joined(s, t)
    m.fetch("all", t)
    m.acknowledge("some", {t: [(0, 3, ACCEPT), (5, 5, ACCEPT)]})
    m.leave()
    alter_offsets(s, "the group is empty, but a session is open", (t.name, 0, 7))
    m.nothing("the leader does not know")
    m.disconnect()
    await_session_end(m)
    Member(s, "other").until_acquired("the leader has read it", t)
    describe_offsets(s, "the new start offset", (t.name, [0]))


@story("share-fetch", PROFILE)
def topic_deleted(s: Story) -> None:
    t = filled(s, 2)
    m, other = joined(s, t), Member(s, "other")
    m.fetch("all", t)
    pending = other.begin_fetch("until MaxWaitMs", t, max_wait=1000)
    silent(s, pending, "all is acquired")
    s.quiet("delete_topics", 6, topics=[{"name": t.name}], timeout=10_000)
    deadline = Deadline()
    body: Body = {"topics": [{"name": t.name}], "allow_auto_topic_creation": False}
    while s.quiet("metadata", 12, retry=(), **body)["topics"][0]["error_code"] == 0:
        deadline.check("the topic is deleted")
    silent(s, pending, "a deletion completes nothing")
    s.take(pending)
    m.nothing("a deleted topic")
    m.acknowledge("of a deleted topic", {t: [(0, 1, ACCEPT)]})


@story("share-fetch", PROFILE)
def group_deleted(s: Story) -> None:
    """Sessions and share partitions of a deleted group stay at the leader."""
    t = filled(s, 4)
    m = joined(s, t)
    m.fetch("some", t)
    m.leave()
    delete_groups(s, "with an open session", "g")
    m.acknowledge("in a group that is deleted", {t: [(0, 1, ACCEPT)]})
    filled(s, 1, topic=t)
    m.nothing("from memory")
    other = Member(s, "other")
    other.nothing("another member", t)


@story("share-fetch", "small-share-groups")
def at_most_five_sessions(s: Story) -> None:
    t = filled(s, 2)
    joined(s, t)
    for number in range(6):
        Member(s, f"m{number}").nothing(f"session {number + 1}", t)
    Member(s, "m1").nothing("one that is there", t)
    Member(s, "m6").acknowledge("a session that is not there", {t: [(0, 1, ACCEPT)]}, share_session_epoch=1)
    s.close("m0")
    deadline = Deadline()
    late = Member(s, "m7")
    while late.fetch("", t, quiet=True, max_wait=0, max_records=0)["error_code"]:
        deadline.check("there is room for a session")
    late.nothing("room for one more")


@story("share-fetch", PROFILE)
def throttled(s: Story) -> None:
    """A fetch above the quota has no records in its response, but has acquired them."""
    t, slow = s.topic(), s.name("slow")
    for _ in range(60):
        s.produce(t, s.batch([bytes(1_900)]), quiet=True)
    m = joined(s, t)
    quotas.limited(s, slow, "consumer_byte_rate")
    last = -1
    for note, max_bytes in (("most of a window", 97_000), ("over the rate", 4_000)):
        body = m.fetch_body(*(() if m.session else (t,)), max_bytes=max_bytes, client_id=slow)
        answer = quotas.throttled(s, note, "share_fetch", 2, on=m.on, **body)
        m.session += 1
        last = max([last, *(row["last_offset"] for row in acquired(answer))])
    m.on = "another connection"
    m.acknowledge("what was not sent", {t: [(last + 1, last + 1, ACCEPT)]})
    quotas.alter(s, "no quota", (quotas.entity(client_id=slow), [quotas.unset("consumer_byte_rate")]))
