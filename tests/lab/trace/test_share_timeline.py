"""The order of the events of a share partition's timeline. tests/tools/test_group_and_txn.py has those of a real one."""

from __future__ import annotations

from lab.trace.share_timeline import ShareEvent, ShareTimeline, in_order


def ranges(first: int, last: int) -> tuple[dict[str, object], ...]:
    return ({"first_offset": first, "last_offset": last},)


def acknowledged(text: str, us: int, first: int, last: int, answered_ms: int | None) -> ShareEvent:
    return ShareEvent(
        "acknowledged",
        us // 1000,
        1,
        text,
        ranges=ranges(first, last),
        order_us=us,
        answered_ms=answered_ms,
    )


def test_a_state_follows_the_acknowledgement_that_waited_for_it() -> None:
    refused = acknowledged("refused", 7_000_100, 0, 3, None)
    release = acknowledged("release 0-3", 7_000_200, 0, 3, 7_000)
    acquired = ShareEvent("acquired", 7_000, 1, "acquired 0", ranges=ranges(0, 0), order_us=7_000_300)
    reject = acknowledged("reject 0", 7_000_400, 0, 0, 7_030)
    available = ShareEvent("stored", 7_000, 1, "available 0-3", ranges=ranges(0, 3))
    archived = ShareEvent("stored", 7_020, 1, "archived 0", ranges=ranges(0, 0))
    expired = ShareEvent("stored", 9_000, 1, "available 2", ranges=ranges(2, 2))
    found = in_order([expired, available, archived, reject, acquired, release, refused])
    assert found == [refused, release, available, acquired, reject, archived, expired]


def test_the_table_has_a_line_for_each_event() -> None:
    event = ShareEvent("stored", 1_000, 1, "stored, start offset 5", "__share_group_state-3 @17")
    assert ShareTimeline("orders-0 in share group g", [event]).to_text().splitlines() == [
        "orders-0 in share group g",
        "",
        "TIME (UTC)    NODE  WHERE                      WHAT",
        "00:00:01.000  1     __share_group_state-3 @17  stored, start offset 5",
    ]
