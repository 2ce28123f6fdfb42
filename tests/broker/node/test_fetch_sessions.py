"""Fetch sessions (KIP-227): every row of the KIP's table of session ids and epochs, and which partitions an incremental
response contains."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pytest

from broker.node.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    SESSION_EPOCH_MAX,
    SESSION_IDLE_MS_MAX,
    CachedPartition,
    FetchSessionCache,
    Opened,
)
from protocol.errors import ErrorCode
from protocol.messages.fetch import EpochEndOffset, PartitionData

TOPIC_ID = uuid.UUID(int=7)


def sessions(slots: int = 10, ids: Iterable[int] = ()) -> FetchSessionCache:
    numbers = iter(ids or range(100, 10_000))
    return FetchSessionCache(slots, lambda: next(numbers))


def want(
    index: int = 0, offset: int = 0, topic: str = "t", topic_id: uuid.UUID | None = None
) -> CachedPartition:
    return CachedPartition(topic, topic_id, index, offset, max_bytes=1000)


def asked(*wanted: CachedPartition):
    return {each.key: each for each in wanted}


def data(index: int = 0, high_watermark: int = 5, **more) -> PartitionData:
    more.setdefault("log_start_offset", 0)
    return PartitionData(
        partition_index=index, high_watermark=high_watermark, records=more.pop("records", b""), **more
    )


def begin(
    cache: FetchSessionCache,
    *wanted: CachedPartition,
    now_ms: int = 0,
    follower: bool = False,
    ids: bool = False,
    **told,
):
    """Send a full Fetch and return the id of its new session."""
    opened = cache.open(
        0, INITIAL_EPOCH, asked(*wanted), uses_topic_ids=ids, follower=follower, now_ms=now_ms
    )
    assert isinstance(opened, Opened)
    error, session_id, sent = opened.answer(
        [(each, data(each.index, **told)) for each in opened.wanted], now_ms
    )
    assert error is ErrorCode.none
    assert len(sent) == len(wanted), "a full response has every partition"
    return session_id


def go_on(
    cache: FetchSessionCache,
    session_id: int,
    epoch: int,
    *wanted: CachedPartition,
    forgotten=(),
    now_ms=0,
    ids=False,
):
    return cache.open(session_id, epoch, asked(*wanted), forgotten, uses_topic_ids=ids, now_ms=now_ms)


def hear(opened: Opened, **answers: PartitionData) -> list[int]:
    """Complete an incremental Fetch and return the indexes of the partitions in its response. The argument ``p1``
    is the data that was read for partition 1, and so on."""
    read = [(each, answers.get(f"p{each.index}", data(each.index))) for each in opened.wanted]
    error, _, sent = opened.answer(read, 0)
    assert error is ErrorCode.none
    return [wanted.index for wanted, _ in sent]


def test_a_full_fetch_makes_a_session_whose_next_epoch_is_one():
    cache = sessions(ids=[77])
    assert begin(cache, want(0), want(1)) == 77
    assert cache.by_id[77].epoch == 1
    opened = go_on(cache, 77, 1)
    assert isinstance(opened, Opened)
    assert [each.index for each in opened.wanted] == [0, 1], "the session contains both partitions"


def test_a_session_id_in_use_is_not_reused():
    cache = sessions(ids=[77, 77, 77, 78])
    assert begin(cache, want()) == 77
    assert begin(cache, want()) == 78


def test_a_full_fetch_closes_the_session_it_names():
    cache = sessions(ids=[1, 2])
    first = begin(cache, want())
    opened = cache.open(first, INITIAL_EPOCH, asked(want()), uses_topic_ids=False, now_ms=0)
    assert isinstance(opened, Opened)
    assert opened.answer([(each, data()) for each in opened.wanted], 0)[1] == 2
    assert list(cache.by_id) == [2]


def test_a_final_fetch_closes_the_session_and_makes_none():
    cache = sessions()
    session_id = begin(cache, want())
    opened = cache.open(session_id, FINAL_EPOCH, asked(want()), uses_topic_ids=False, now_ms=0)
    assert isinstance(opened, Opened)
    assert opened.answer([(each, data()) for each in opened.wanted], 0)[1] == NO_SESSION
    assert not cache.by_id


def test_an_unknown_session_is_an_error():
    assert go_on(sessions(), 5, 1) is ErrorCode.fetch_session_id_not_found


@pytest.mark.parametrize("epoch", [2, 3, -2, SESSION_EPOCH_MAX])
def test_a_wrong_epoch_is_an_error_that_the_session_survives(epoch):
    cache = sessions()
    session_id = begin(cache, want())
    assert go_on(cache, session_id, epoch) is ErrorCode.invalid_fetch_session_epoch
    assert isinstance(go_on(cache, session_id, 1), Opened)


@pytest.mark.parametrize("made_with_ids", [True, False])
def test_ids_and_names_do_not_mix_in_a_session(made_with_ids):
    cache = sessions()
    session_id = begin(cache, want(topic_id=TOPIC_ID if made_with_ids else None), ids=made_with_ids)
    error = go_on(cache, session_id, 1, ids=not made_with_ids)
    assert error is ErrorCode.fetch_session_topic_id_error
    assert isinstance(go_on(cache, session_id, 1, ids=made_with_ids), Opened)


def test_the_epoch_after_the_largest_is_one():
    cache = sessions()
    session_id = begin(cache, want())
    cache.by_id[session_id].epoch = SESSION_EPOCH_MAX
    assert isinstance(go_on(cache, session_id, SESSION_EPOCH_MAX), Opened)
    assert cache.by_id[session_id].epoch == 1


def test_partitions_are_added_replaced_and_then_forgotten():
    cache = sessions()
    session_id = begin(cache, want(0, offset=1), want(1, offset=1))
    opened = go_on(
        cache, session_id, 1, want(1, offset=9), want(2, offset=3), forgotten=[("t", 0), ("t", 2), ("x", 9)]
    )
    assert isinstance(opened, Opened)
    assert [(each.index, each.offset) for each in opened.wanted] == [(1, 9)]


def test_the_offset_moves_only_when_the_client_says_so():
    cache = sessions()
    session_id = begin(cache, want(0, offset=1))
    first = go_on(cache, session_id, 1)
    assert hear(first, p0=data(records=b"data")) == [0]
    again = go_on(cache, session_id, 2)
    assert [each.offset for each in again.wanted] == [1]
    assert hear(again, p0=data(records=b"data")) == [0], "the same data is sent again"


def test_forgetting_all_partitions_closes_the_session_without_an_error():
    cache = sessions()
    session_id = begin(cache, want(0))
    opened = go_on(cache, session_id, 1, forgotten=[("t", 0)])
    assert isinstance(opened, Opened)
    assert opened.answer([], 0) == (ErrorCode.none, NO_SESSION, [])
    assert not cache.by_id


@pytest.mark.parametrize(
    ("answer", "news"),
    [
        pytest.param(data(), False, id="nothing new"),
        pytest.param(data(last_stable_offset=4), False, id="the last stable offset alone is no news"),
        pytest.param(data(records=b"data"), True, id="records"),
        pytest.param(data(high_watermark=6), True, id="the high watermark moved"),
        pytest.param(data(log_start_offset=2), True, id="the log start moved"),
        pytest.param(data(error_code=ErrorCode.not_leader_or_follower), True, id="an error"),
        pytest.param(data(preferred_read_replica=2), True, id="a preferred replica"),
        pytest.param(data(diverging_epoch=EpochEndOffset(epoch=0, end_offset=1)), True, id="a divergence"),
    ],
)
def test_an_incremental_answer_has_only_what_is_new(answer, news):
    cache = sessions()
    opened = go_on(cache, begin(cache, want(0), want(1)), 1)
    assert hear(opened, p0=answer) == ([0] if news else [])


def test_after_an_error_a_partition_is_sent_again_though_nothing_moved():
    cache = sessions()
    session_id = begin(cache, want(0))
    lost = data(error_code=ErrorCode.not_leader_or_follower)
    assert hear(go_on(cache, session_id, 1), p0=lost) == [0]
    assert hear(go_on(cache, session_id, 2)) == [0]
    assert hear(go_on(cache, session_id, 3)) == []


def test_a_partition_that_gave_data_goes_to_the_end():
    cache = sessions()
    session_id = begin(cache, want(0), want(1), want(2))
    assert hear(go_on(cache, session_id, 1), p0=data(0, records=b"x"), p1=data(1, 6)) == [0, 1]
    assert [each.index for each in go_on(cache, session_id, 2).wanted] == [1, 2, 0]


def test_a_fetch_overtaken_by_another_of_its_session_is_an_error():
    cache = sessions()
    session_id = begin(cache, want(0))
    waiting = go_on(cache, session_id, 1)
    assert isinstance(go_on(cache, session_id, 2), Opened)
    answers = [(each, data(records=b"x")) for each in waiting.wanted]
    assert waiting.answer(answers, 0) == (ErrorCode.invalid_fetch_session_epoch, session_id, [])


def test_the_same_partition_by_id_and_by_name_are_two():
    assert want(0, topic_id=TOPIC_ID).key != want(0).key


def test_no_slots_means_no_sessions():
    assert begin(sessions(slots=0), want()) == NO_SESSION


YOUNG, OLD = 0, SESSION_IDLE_MS_MAX + 1


def full_cache(*, size: int, follower: bool, used_for_ms: int) -> FetchSessionCache:
    """A full cache with one slot. Its session has ``size`` partitions, was created at 0 ms and last used at
    ``used_for_ms``."""
    cache = sessions(slots=1, ids=[1, 2])
    assert begin(cache, *(want(index) for index in range(size)), follower=follower) == 1
    assert isinstance(go_on(cache, 1, 1, now_ms=used_for_ms), Opened)
    return cache


@pytest.mark.parametrize(
    ("old", "used_for_ms", "new", "idle_ms", "evicts"),
    [
        # (partitions, follower) of the cached session, and of the new one.
        pytest.param((1, False), YOUNG, (9, False), 0, False, id="a young consumer is safe from consumers"),
        pytest.param((1, False), OLD, (2, False), 0, True, id="an old session is evicted for a larger one"),
        pytest.param((1, False), OLD, (1, False), 0, False, id="but not for one of its size"),
        pytest.param((2, False), OLD, (1, False), 0, False, id="nor for a smaller one"),
        pytest.param((9, False), YOUNG, (1, True), 0, True, id="a follower evicts any consumer"),
        pytest.param((1, True), YOUNG, (9, True), 0, False, id="a young follower is safe from followers"),
        pytest.param((1, True), OLD, (2, True), 0, True, id="an old follower is evicted for a larger one"),
        pytest.param((1, True), OLD, (9, False), 0, False, id="no consumer evicts a follower"),
        pytest.param(
            (9, True),
            OLD,
            (1, False),
            SESSION_IDLE_MS_MAX + 1,
            True,
            id="a session that is idle for too long is evicted",
        ),
        pytest.param((9, True), OLD, (1, False), SESSION_IDLE_MS_MAX, False, id="but not a moment before"),
    ],
)
def test_which_session_is_evicted_from_a_full_cache(old, used_for_ms, new, idle_ms, evicts):
    cache = full_cache(size=old[0], follower=old[1], used_for_ms=used_for_ms)
    wanted = [want(index) for index in range(new[0])]
    got = begin(cache, *wanted, follower=new[1], now_ms=used_for_ms + idle_ms)
    assert got == (2 if evicts else NO_SESSION)
    assert list(cache.by_id) == ([2] if evicts else [1])


def test_the_longest_unused_session_is_the_first_to_be_idle():
    cache = sessions(slots=2, ids=[1, 2, 3])
    begin(cache, want())
    begin(cache, want())
    assert isinstance(go_on(cache, 1, 1, now_ms=10), Opened)
    assert begin(cache, want(), now_ms=SESSION_IDLE_MS_MAX + 1) == 3
    assert set(cache.by_id) == {1, 3}
