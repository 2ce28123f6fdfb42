"""Share sessions: session epochs, the partitions that a response contains, and the connection that a session belongs to."""

from __future__ import annotations

import uuid

from broker.share.sessions import (
    FINAL_EPOCH,
    SESSION_EPOCH_MAX,
    CachedSharePartition,
    Opened,
    SessionKey,
    ShareSessionCache,
)
from protocol.errors import ErrorCode
from protocol.messages.share_fetch import PartitionData

TOPIC_ID = uuid.UUID(int=7)
KEY = SessionKey("g", "m")


def want(*indexes: int) -> list[CachedSharePartition]:
    return [CachedSharePartition("t", TOPIC_ID, index) for index in indexes]


def key(index: int):
    return (TOPIC_ID, index)


def fetch(
    cache: ShareSessionCache, epoch: int, *indexes: int, key=KEY, forgotten=(), acks=False, connection=1
) -> Opened | ErrorCode:
    return cache.open(
        key, epoch, want(*indexes), forgotten, has_acknowledgements=acks, connection_id=connection
    )


def opened(*arguments, **named) -> Opened:
    result = fetch(*arguments, **named)
    assert isinstance(result, Opened), result
    return result


def told(of: Opened, records: dict[int, bytes] | None = None, errors: dict[int, ErrorCode] | None = None):
    """Indexes of the partitions in the response."""
    answers = [
        (
            each,
            PartitionData(
                partition_index=each.index,
                records=(records or {}).get(each.index, b""),
                error_code=(errors or {}).get(each.index, ErrorCode.none),
            ),
        )
        for each in of.partitions
    ]
    preview = [each.index for each, _ in of.preview(answers)]
    sent = [each.index for each, _ in of.answer(answers)]
    assert preview == sent
    return sent


def indexes(of: Opened) -> list[int]:
    return [each.index for each in of.partitions]


def test_epochs_of_fetches_and_acknowledgements_are_one_sequence():
    cache = ShareSessionCache(10)
    assert fetch(cache, 1) is ErrorCode.share_session_not_found
    assert fetch(cache, FINAL_EPOCH) is ErrorCode.share_session_not_found
    assert cache.acknowledge(KEY, 1) is ErrorCode.share_session_not_found
    assert fetch(cache, 0, 0, acks=True) is ErrorCode.invalid_request
    assert indexes(opened(cache, 0, 0)) == [0]
    assert cache.acknowledge(KEY, 0) is ErrorCode.invalid_share_session_epoch
    assert fetch(cache, 2) is ErrorCode.invalid_share_session_epoch
    assert cache.acknowledge(KEY, 1) is ErrorCode.none
    assert cache.acknowledge(KEY, 1) is ErrorCode.invalid_share_session_epoch
    assert indexes(opened(cache, 2)) == [0]
    assert indexes(opened(cache, FINAL_EPOCH)) == []
    assert cache.acknowledge(KEY, FINAL_EPOCH) is ErrorCode.none, "the caller removes the session"
    cache.sessions[KEY].epoch = SESSION_EPOCH_MAX
    opened(cache, SESSION_EPOCH_MAX)
    opened(cache, 1)


def test_partitions_are_added_and_forgotten_in_order():
    cache = ShareSessionCache(10)
    opened(cache, 0, 0, 1)
    assert indexes(opened(cache, 1, 2, 0)) == [0, 1, 2]
    assert indexes(opened(cache, 2, forgotten=[key(1), key(9)])) == [0, 2]
    assert indexes(opened(cache, 0, 5)) == [5]


def test_a_partition_that_occurs_twice_in_the_first_request_is_an_error():
    cache = ShareSessionCache(10)
    opened(cache, 0, 0)
    assert fetch(cache, 0, 1, 1) is ErrorCode.unknown_server_error
    assert fetch(cache, 1) is ErrorCode.share_session_not_found, "the former session is gone"
    opened(cache, 0, 0)
    assert indexes(opened(cache, 1, 1, 1)) == [0, 1]


def test_responses_after_the_first_have_records_errors_and_new_partitions():
    cache = ShareSessionCache(10)
    assert told(opened(cache, 0, 0, 1)) == [0, 1]
    assert told(opened(cache, 1, 2)) == [2]
    assert told(opened(cache, 2)) == []
    assert told(opened(cache, 3), records={1: b"x"}) == [1]
    last = opened(cache, 4)
    assert indexes(last) == [0, 2, 1], "a partition with records moves to the end"
    assert told(last, errors={0: ErrorCode.offset_not_available}) == [0]
    assert told(opened(cache, 5)) == [0], "the end of an error is sent"
    assert told(opened(cache, 6)) == []


def test_a_request_that_was_overtaken_gets_an_error():
    cache = ShareSessionCache(10)
    opened(cache, 0, 0)
    first = opened(cache, 1)
    second = opened(cache, 2)
    assert first.error is ErrorCode.invalid_share_session_epoch
    assert told(first, records={0: b"x"}) == []
    assert second.error is ErrorCode.none


def test_the_number_of_sessions_is_limited():
    cache = ShareSessionCache(1)
    opened(cache, 0, 0)
    assert fetch(cache, 0, 0, key=SessionKey("g", "other")) is ErrorCode.share_session_limit_reached
    opened(cache, 0, 0)
    cache.remove(KEY)
    opened(cache, 0, 0, key=SessionKey("g", "other"))


def test_a_session_belongs_to_the_connection_of_its_first_request():
    cache = ShareSessionCache(10)
    opened(cache, 0, 0, connection=1)
    opened(cache, 1, connection=2)
    assert cache.of_connection(2) is None
    opened(cache, 0, 0, connection=3)
    former = cache.of_connection(1)
    assert former is not None
    assert not cache.is_current(former)
    latest = cache.of_connection(3)
    assert latest is not None
    assert cache.is_current(latest)
    assert cache.has_members("g")
    cache.remove(KEY)
    assert not cache.has_members("g")
    opened(cache, 0, 0, connection=4)
    cache.remove_all()
    assert not cache.has_members("g")
    assert cache.of_connection(4) is not None, "the end of the connection still tells the group"
