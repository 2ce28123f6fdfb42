"""The in-sync replicas, and requests that need a minimum of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.differential.cluster.stories.asking import delete_records, describe, list_offsets, metadata
from tests.differential.cluster.story import ClusterStory, story
from tests.differential.story import Topic

NO_RECORDS_WAIT_MS = 200


@story("isr", "cut")
def shrinks_and_grows(s: ClusterStory) -> Iterator[None]:
    """A follower that does not fetch holds back the high watermark until it is removed from the ISR."""
    t = s.topic([[1, 2, 3]])
    s.produce(t, s.batch(1), at=1)
    s.await_replicated(t, 1, [1, 2, 3])
    yield
    s.produce(t, s.batch(1), at=1, timeout=NO_RECORDS_WAIT_MS, note="all")
    s.produce(t, s.batch(1), at=1, acks=1, note="leader only")
    s.fetch(t, 1, at=1, note="what is not committed")
    list_offsets(s, t, 1)
    waiting = s.send("produce", 9, at=1, on="waits", acks=-1, timeout=60_000, note="waits", **body(s, t))
    yield
    s.await_isr(t, {1, 2})
    s.take(waiting)
    metadata(s, t, 1)
    describe(s, t, 1)
    s.fetch(t, 1, at=1, note="committed without it")
    list_offsets(s, t, 1)
    for v in (11, 16):
        for offset in (0, 1, 2, 4, 5):
            s.fetch(t, offset, v=v, at=3, note="at the follower that lags")
    yield
    s.await_isr(t, {1, 2, 3})
    metadata(s, t, 1)
    s.await_replicated(t, 4, [3])
    s.fetch(t, 0, v=11, at=3, note="at the follower")


def body(s: ClusterStory, t: Topic, **fields: Any) -> dict[str, Any]:
    rows = [{"index": 0, "records": s.batch(1, **fields)}]
    return {"transactional_id": None, "topic_data": [{"name": t.name, "partition_data": rows}]}


@story("isr", "cut")
def too_few(s: ClusterStory) -> Iterator[None]:
    """With too few in-sync replicas acks=all gets NOT_ENOUGH_REPLICAS. An earlier Produce waits for the follower's
    return."""
    t = s.topic([[1, 3]])
    pid, epoch = s.producer_id()
    s.produce(t, s.batch(1, pid=pid, epoch=epoch, seq=0), at=1)
    s.await_replicated(t, 1, [1, 3])
    yield
    batch = {"pid": pid, "epoch": epoch, "seq": 1}
    waits = s.send(
        "produce", 9, at=1, on="waits", acks=-1, timeout=600_000, note="waits", **body(s, t, **batch)
    )
    yield
    s.await_isr(t, {1})
    s.fetch(t, 1, at=1, note="what is not committed")
    for v in (3, 9, 10, 12):
        s.produce(t, s.batch(1), v=v, at=1)
    s.produce(t, s.batch(1, **batch), at=1, note="again")
    s.produce(t, s.batch(1, **(batch | {"seq": 2})), at=1, note="the next one")
    s.produce(t, s.batch(1, **batch), at=1, acks=1, note="again, leader only")
    s.produce(t, s.batch(1, **(batch | {"seq": 2})), at=1, acks=1, note="the next one, leader only")
    s.produce(t, s.batch(1, **(batch | {"seq": 2})), at=1, note="the next one again")
    s.produce(t, s.batch(1), at=1, acks=1, note="leader only")
    s.fetch(t, 1, at=1, note="leader only, not committed")
    list_offsets(s, t, 1)
    metadata(s, t, 1)
    describe(s, t, 1)
    delete_records(s, t, 1, 1, timeout=NO_RECORDS_WAIT_MS)
    yield
    s.await_isr(t, {1, 3})
    s.take(waits)
    s.await_replicated(t, 4, [1, 3])
    s.produce(t, s.batch(1, **(batch | {"seq": 2})), at=1, note="the next one again")
    s.produce(t, s.batch(1, **(batch | {"seq": 3})), at=1, note="goes on")
    s.fetch(t, 0, at=1)
    delete_records(s, t, 1, 1)


@story("isr", "cut")
def the_setting_counts(s: ClusterStory) -> Iterator[None]:
    """Produce with min.insync.replicas=1, with more than the number of replicas, and lowered while too few are in
    sync."""
    one, many = s.topic([[1, 3]], min__insync__replicas="1"), s.topic([[1, 3]], min__insync__replicas="3")
    changed = s.topic([[1, 3]])
    s.produce(many, s.batch(1), at=1, note="three of two")
    yield
    for t in (one, many, changed):
        s.produce(t, s.batch(1), at=1, acks=1, note="what the follower lacks")
    yield
    for t in (one, many, changed):
        s.await_isr(t, {1})
        s.produce(t, s.batch(1), at=1)
    set_config(s, changed, "min.insync.replicas", "1")
    s.produce(changed, s.batch(1), at=1, retry=(19,), note="one is enough")
    s.fetch(changed, 0, at=1)
    yield
    s.await_isr(many, {1, 3})
    s.produce(many, s.batch(1), at=1, note="three of two")


def set_config(s: ClusterStory, t: Topic, name: str, value: str | None) -> None:
    if name == "min.insync.replicas":
        s.keeps_topics = True
    row = {"name": name, "config_operation": 0 if value is not None else 1, "value": value}
    resource = {"resource_type": 2, "resource_name": t.name, "configs": [row]}
    s.ask("incremental_alter_configs", 1, resources=[resource], validate_only=False)


@story("isr", "killed")
def a_follower_dies(s: ClusterStory) -> Iterator[None]:
    """A replica leaves the ISR at once when its broker is fenced."""
    t = s.topic([[2, 1, 3]])
    s.produce(t, s.batch(1), at=2)
    s.await_replicated(t, 1, [1, 2, 3])
    yield
    s.await_isr(t, {2, 3})
    metadata(s, t, 2)
    describe(s, t, 3)
    s.produce(t, s.batch(1), at=2)
    s.fetch(t, 0, at=2)
    delete_records(s, t, 2, 1)
    yield
    s.await_isr(t, {1, 2, 3})
    metadata(s, t, 2)
    describe(s, t, 1)
    delete_records(s, t, 2, 1)
    s.until(lambda: s.log_start(t, 1) == 1, "the follower has the new log start, too")
    s.fetch(t, 0, v=11, at=1, note="deleted, at the follower")
    s.fetch(t, 1, v=11, at=1, note="at the follower")
