"""The order of the events of a share partition's timeline. tests/tools/test_group_and_txn.py has those of a real one."""

from __future__ import annotations

import pytest

from broker.injection.happenings import Happening
from lab.trace.share_timeline import ShareEvent, ShareTimeline, Wanted, in_order


def ranges(first: int, last: int) -> tuple[dict[str, object], ...]:
    return ({"first_offset": first, "last_offset": last},)


def acknowledged(
    text: str, us: int, first: int, last: int, answered_us: int, *, is_written: bool = True
) -> ShareEvent:
    return ShareEvent(
        "acknowledged",
        answered_us // 1000,
        1,
        text,
        ranges=ranges(first, last),
        order_us=answered_us,
        arrived_us=us,
        is_written=is_written,
        api="ShareAcknowledge",
    )


def stored(text: str, ms: int, offset: int, first: int = 0, last: int = 0) -> ShareEvent:
    return ShareEvent("stored", ms, 1, text, ranges=ranges(first, last), log_offset=offset)


def acquired(us: int, arrived_us: int | None = None) -> ShareEvent:
    return ShareEvent(
        "acquired",
        us // 1000,
        1,
        "acquired 0",
        ranges=ranges(0, 0),
        order_us=us,
        arrived_us=us if arrived_us is None else arrived_us,
        api="ShareFetch",
    )


def test_a_state_precedes_the_result_of_the_acknowledgement_that_waited_for_it() -> None:
    refused = acknowledged("refused", 7_000_100, 0, 3, 7_000_150, is_written=False)
    release = acknowledged("release 0-3", 7_000_200, 0, 3, 7_000_250)
    taken = acquired(7_000_300)
    reject = acknowledged("reject 0", 7_000_400, 0, 0, 7_030_000)
    available = stored("available 0-3", 7_000, 1, 0, 3)
    archived = stored("archived 0", 7_020, 2)
    expired = stored("available 2", 9_000, 3, 2, 2)
    found = in_order([expired, available, archived, reject, taken, release, refused])
    assert found == [refused, available, release, taken, archived, reject, expired]


def test_a_result_is_at_the_time_of_its_response() -> None:
    late = acknowledged("accept 0", 1_000_000, 0, 0, 40_000_000, is_written=False)
    expired = stored("available 0", 31_000, 5)
    assert in_order([late, expired]) == [expired, late]


def test_a_state_that_a_rule_held_follows_the_hit() -> None:
    accept = acknowledged("accept 0", 34_090_000, 0, 0, 36_380_000)
    hit = ShareEvent("rule", 34_094, 1, "rule 17 is hit")
    written = stored("acknowledged 0", 36_376, 5)
    assert in_order([written, accept, hit]) == [hit, written, accept]


def test_a_record_whose_timestamp_is_ahead_does_not_pass_the_responses() -> None:
    first, written = stored("initialized", 7_001, 4), stored("acknowledged 0", 7_001, 5)
    accept = acknowledged("accept 0", 7_000_100, 0, 0, 7_000_700)
    assert in_order([accept, written, first]) == [first, written, accept]


def test_states_keep_the_order_of_the_log_when_advanced_time_is_lost() -> None:
    first, last = stored("acquired", 50_000, 12), stored("available", 110_000, 13)
    taken, accept = acquired(50_500_000), acknowledged("accept 0", 51_000_000, 0, 0, 51_005_000)
    written = stored("acknowledged", 51_001, 21)
    assert in_order([written, last, first, accept, taken]) == [first, last, taken, written, accept]


def hit(at: str, ms: int, offsets: tuple[tuple[int, int], ...] = (), group: str = "g") -> Happening:
    return Happening(
        ms,
        "rule",
        1,
        at,
        partitions=frozenset({("orders", 0)}),
        at=at,
        groups=frozenset({group}),
        offsets=tuple(("orders", 0, *each) for each in offsets),
    )


@pytest.mark.parametrize(
    ("happening", "is_concerned"),
    [
        (hit("share.write", 9_000, ((0, 3),)), True),
        (hit("share.write", 9_000, ((1, 3),)), False),
        (hit("share.write", 9_000, ((0, 3),), group="other"), False),
        (hit("ShareFetch", 7_001), True),
        (hit("ShareFetch", 7_001, ((5, 6),)), True),
        (hit("ShareFetch", 3_000), False),
        (hit("ShareAcknowledge", 7_001, ((5, 6),)), False),
        (Happening(7_001, "rule", 1, "", at="Metadata"), False),
        (Happening(7_001, "node", 1, "node 1 is paused"), True),
    ],
)
def test_the_timeline_of_a_record_has_the_hits_that_concern_it(
    happening: Happening, is_concerned: bool
) -> None:
    places = frozenset({("orders", 0), ("__share_group_state", 3)})
    wanted = Wanted("g", places, ("__share_group_state", 3), ("orders", 0, 0))
    assert wanted.concerned(happening, [acquired(8_000_000, 7_000_000)]) is is_concerned


def test_the_table_has_a_line_for_each_event() -> None:
    event = ShareEvent("stored", 1_000, 1, "stored, start offset 5", "__share_group_state-3 @17")
    assert ShareTimeline("orders-0 in share group g", [event]).to_text().splitlines() == [
        "orders-0 in share group g",
        "",
        "TIME (UTC)    NODE  WHERE                      WHAT",
        "00:00:01.000  1     __share_group_state-3 @17  stored, start offset 5",
    ]
