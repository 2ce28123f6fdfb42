"""Fetch sessions in the requests and responses that the proxy forwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from protocol.messages import share_fetch as share
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from protocol.messages.share_fetch import ShareFetchRequest
from proxy import sessions
from proxy.sessions import PassedSessions

ID = UUID(int=7)


def fetch(
    session_id: int, epoch: int, topics: Mapping[Any, list[int]] = {}, forgotten: Mapping[Any, list[int]] = {}
) -> FetchRequest:
    def named(topic: Any) -> dict[str, Any]:
        return {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}

    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(**named(topic), partitions=[FetchPartition(partition=each) for each in indexes])
            for topic, indexes in topics.items()
        ],
        forgotten_topics_data=[
            ForgottenTopic(**named(topic), partitions=indexes) for topic, indexes in forgotten.items()
        ],
    )


def test_a_session_has_what_was_added_and_not_forgotten() -> None:
    passed = PassedSessions()
    passed.passed(fetch(0, 0, {"orders": [0, 1], ID: [0]}), 5)
    passed.passed(fetch(5, 1), 5)
    passed.passed(fetch(5, 2, {"orders": [2]}, {"orders": [0], ID: [0]}), 5)
    assert passed.partitions(5) == (("orders", 1), ("orders", 2))
    passed.passed(fetch(5, 0, {"payments": [0]}), 6)
    assert passed.partitions(6) == (("payments", 0),)


def test_a_session_that_ends_or_was_not_seen_has_no_partitions() -> None:
    passed = PassedSessions()
    passed.passed(fetch(0, 0, {"orders": [0]}), 5)
    passed.passed(fetch(5, -1), 0)
    assert passed.partitions(5) == ()
    passed.passed(fetch(9, 40), 9)
    assert passed.partitions(9) == ()


def share_fetch(epoch: int, added: Sequence[int] = (), forgotten: Sequence[int] = ()) -> ShareFetchRequest:
    partitions = [share.FetchPartition(partition_index=index) for index in added]
    return ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        topics=[share.FetchTopic(topic_id=ID, partitions=partitions)],
        forgotten_topics_data=[share.ForgottenTopic(topic_id=ID, partitions=forgotten)],
    )


def test_a_share_session_of_a_member() -> None:
    passed = PassedSessions()
    passed.passed_share_fetch(share_fetch(0, [0, 1]))
    passed.passed_share_fetch(share_fetch(1, [2], [0]))
    assert passed.partitions(("g", "m")) == ((ID, 1), (ID, 2))
    assert passed.partitions(("g", "other")) == ()
    passed.passed_share_fetch(share_fetch(0, [3]))
    assert passed.partitions(("g", "m")) == ((ID, 3),)
    passed.passed_share_fetch(share_fetch(-1))
    assert passed.partitions(("g", "m")) == ()


def test_the_session_that_was_used_least_makes_room(monkeypatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    passed = PassedSessions()
    for session_id in (1, 2):
        passed.passed(fetch(0, 0, {"orders": [session_id]}), session_id)
    passed.passed(fetch(1, 1), 1)
    passed.passed(fetch(0, 0, {"orders": [3]}), 3)
    assert [bool(passed.partitions(each)) for each in (1, 2, 3)] == [True, False, True]
