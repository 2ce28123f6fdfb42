"""The decision record is packed, split into chunks, and decoded again."""

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.spark.sink.decision_record import (
    CHUNK_LENGTH_MAX,
    POOL_AGE_MAX,
    POOL_MAX,
    Content,
    Decided,
    Entry,
    Phase,
    SinkState,
    TooManyTasks,
    UnreadableRecord,
    aged,
    from_chunks,
    to_chunks,
)
from odradek.spark.sink.names import Label, driver_id, is_of_sink, own_id, pool_id, read_task_id, ticket_id
from odradek.spark.wire import ProducerId

number = st.integers(0, 2**40)
digests = st.none() | st.integers(0, 2**64 - 1)
producers = st.builds(ProducerId, st.integers(0, 2**62), st.integers(0, 32767))


@st.composite
def entries(draw):
    tasks = draw(st.lists(st.integers(0, 5000), unique=True, max_size=40))
    made = []
    for task in tasks:
        pooled = draw(st.booleans())
        number = st.integers(0, 2**40)
        label = Label(task, 0) if pooled else Label(task, *draw(st.tuples(number, number)))
        made.append(Entry(label, pooled, draw(producers)))
    return tuple(sorted(made))


records = st.builds(
    SinkState,
    run=number,
    plan=number,
    next_batch=number,
    phase=st.sampled_from(Phase),
    query_id=st.text(max_size=60),
    decision=number,
    pool=st.dictionaries(st.integers(0, 5000), st.integers(0, 8), max_size=60),
    decided=st.none() | st.builds(Decided, run=number, plan=number, entries=entries()),
    swept_at_ms=number,
    content=st.builds(Content, rows=number, digest=digests, offsets=digests),
    decided_at_ms=number,
    doubt=st.text(max_size=60),
)


def as_offsets(record: SinkState, more: int = 3) -> list[tuple[int, str]]:
    return [(record.next_batch, chunk) for chunk in to_chunks(record)] + [(-1, "")] * more


@given(records)
def test_what_is_committed_is_what_is_read(record):
    offsets = as_offsets(record)
    assert from_chunks(offsets) == record
    assert all(len(chunk) <= CHUNK_LENGTH_MAX for _, chunk in offsets)


TRANSACTIONS = Decided(2, 7, (Entry(Label(0, 0), True, ProducerId(4000, 3), (("out", 0), ("out", 2))),))
OLDER = SinkState(
    run=2,
    plan=7,
    next_batch=5,
    phase=Phase.DECIDED,
    query_id="6f1f9a0e",
    decision=7,
    pool={0: 0, 3: 2},
    decided=TRANSACTIONS,
    swept_at_ms=10,
    content=Content(42),
    decided_at_ms=11,
    topics={"out": bytes(range(16))},
)


@pytest.mark.parametrize(
    ("chunk", "record"),
    [
        (
            "AQICBwUACioLCDZmMWY5YTBlAgAAAwICAgcAAMA+A/EmHYE=",
            dataclasses.replace(OLDER.without_partitions(), decision=0, topics={}),
        ),
        ("AgICBwUHCioLCDZmMWY5YTBlAQNvdXQAAQIDBAUGBwgJCgsMDQ4PAgAAAwICAgcAAMA+AwEAAQU8cJ8S", OLDER),
    ],
    ids=["1", "2"],
)
def test_records_of_older_formats_are_read(chunk, record):
    """A newer version of the sink reads an older record, which has only the number of rows of the last batch."""
    assert from_chunks([(5, f"odradek/0/1/{chunk}")]) == record


def wide(tasks: int) -> SinkState:
    listed = tuple(
        Entry(Label(task, 0), True, ProducerId(4000 + task * 977 % 100_000, 3)) for task in range(tasks)
    )
    return SinkState(
        run=12,
        plan=15,
        next_batch=4711,
        phase=Phase.DECIDED,
        query_id="6f1f9a0e-3f0b-4d5e-8f8a-5a0f3d1c2b3a",
        pool=dict.fromkeys(range(tasks), 0),
        decided=Decided(12, 15, listed),
    )


def test_two_hundred_tasks_fit_into_one_offset():
    assert len(to_chunks(wide(200))) == 1
    assert len(to_chunks(wide(5000))) > 5


def test_a_batch_that_is_too_wide_is_refused_with_the_limit():
    with pytest.raises(TooManyTasks, match=r"30000 tasks is too wide .* and 200,018 fit"):
        to_chunks(wide(30_000))


def test_chunks_of_two_records_are_no_record():
    older, newer = as_offsets(wide(2000)), as_offsets(dataclasses.replace(wide(2000), run=13))
    assert len(older) == len(newer) > 4
    with pytest.raises(UnreadableRecord, match="checksum"):
        from_chunks([older[0], *newer[1:]])
    with pytest.raises(UnreadableRecord, match="chunks, and 1 were read"):
        from_chunks(older[:1])


def test_chunks_left_over_by_a_longer_record_are_passed_over():
    longer = as_offsets(wide(2000))
    shorter = dataclasses.replace(wide(3), next_batch=4712)
    assert from_chunks([*as_offsets(shorter, 0), *longer[1:]]) == shorter


@pytest.mark.parametrize(
    ("offsets", "sentence"),
    [
        ([(7, "")], "another name"),
        ([(7, "offset of a consumer")], "another name"),
        ([(7, "odradek/0/1/%%%")], "cannot be decoded"),
        ([(7, "odradek/0/1/ä")], "cannot be decoded"),
    ],
)
def test_foreign_offsets_are_no_record(offsets, sentence):
    with pytest.raises(UnreadableRecord, match=sentence):
        from_chunks(offsets)


def test_no_offset_is_no_record():
    assert from_chunks([(-1, "")] * 50) is None
    assert from_chunks([]) is None


def test_a_record_of_another_offset_is_not_believed():
    record = wide(3)
    with pytest.raises(UnreadableRecord, match="differ"):
        from_chunks([(record.next_batch + 1, chunk) for chunk in to_chunks(record)])


def test_the_pool_keeps_a_task_for_some_batches_without_rows():
    pool = aged({}, [0, 1, 7])
    assert pool == {0: 0, 1: 0, 7: 0}
    for _ in range(POOL_AGE_MAX):
        pool = aged(pool, [0])
    assert pool == {0: 0, 1: POOL_AGE_MAX, 7: POOL_AGE_MAX}
    assert aged(pool, [0]) == {0: 0}


def test_the_pool_has_a_bound_and_prefers_who_wrote_last():
    pool = aged(dict.fromkeys(range(POOL_MAX), 0), range(5000, 5010))
    assert len(pool) == POOL_MAX
    assert set(range(5000, 5010)) <= set(pool)


def test_ids_are_read_back_and_kept_apart():
    assert read_task_id("a", pool_id("a", 3, 5)) == (3, 5, None)
    assert read_task_id("a", own_id("a", 3, 88, Label(5, 12))) == (3, 5, 88)
    assert read_task_id("a", own_id("a", 3, 88, Label(5, 12, 1))) == (3, 5, 88)
    foreign = [driver_id("a"), ticket_id("a", 3, 5), pool_id("a-1", 3, 5), "b-1-2", "a-1"]
    for each in [*foreign, own_id("a-1", 3, 88, Label(5, 1)), ticket_id("a-1", 3, 5)]:
        assert read_task_id("a", each) is None, each
    assert read_task_id("a-1", own_id("a", 1, 3, Label(2, 1))) is None
    assert [each for each in [*foreign, pool_id("a", 3, 5)] if is_of_sink("a", each)] == ["a-driver", "a-3-5"]


def test_every_attempt_has_an_id_of_its_own():
    few = range(3)
    ids = {
        own_id("a", run, plan, Label(task, attempt_id, renewals))
        for run, plan, task, attempt_id, renewals in itertools.product(few, repeat=5)
    }
    ids |= {pool_id("a", run, task) for run, task in itertools.product(few, repeat=2)}
    ids |= {ticket_id("a", run, task) for run, task in itertools.product(few, repeat=2)}
    assert len(ids) == 3**5 + 9 + 9
