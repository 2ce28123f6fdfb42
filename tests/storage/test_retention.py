"""Which segments retention deletes, when, and for which reason: Kafka's rules as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from storage.config import LogConfig
from storage.retention import Ageing, Expired, Reason

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
NEVER_MS = -1
LIMIT = 1000


@dataclass(frozen=True)
class Piece:
    """A segment with ten offsets."""

    base_offset: int
    size: int
    max_timestamp_ms: int


def log_of(
    *pieces: tuple[int, int | None],
    log_start_offset: int = 0,
    high_watermark: int | None = None,
    modified_ms: int = NOW_MS,
) -> Ageing[Piece]:
    """A log of segments, each as (size in bytes, age in ms of its newest record, or None without timestamps)."""
    segments = [
        Piece(10 * index, size, -1 if age_ms is None else NOW_MS - age_ms)
        for index, (size, age_ms) in enumerate(pieces)
    ]
    end_offset = 10 * len(pieces) - (10 if pieces and pieces[-1][0] == 0 else 0)
    return Ageing(
        segments,
        partial(size_of, segments),
        log_start_offset,
        end_offset,
        end_offset if high_watermark is None else high_watermark,
        lambda segment: modified_ms,
    )


def size_of(pieces: Sequence[Piece]) -> int:
    return sum(piece.size for piece in pieces)


def config_of(**settings: Any) -> LogConfig:
    return LogConfig(**{"retention_ms": NEVER_MS, **settings})


def counts(log: Ageing[Piece], config: LogConfig, limit: int = LIMIT) -> dict[str, int]:
    return {each.reason.name: each.segments for each in log.expired(config, NOW_MS, limit)}


# -- time -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ages_ms", "expired"),
    [
        ((DAY_MS + 1, 5, 5), 1),
        ((DAY_MS, 5, 5), 0),
        ((DAY_MS + 1, DAY_MS + 1, 5), 2),
        ((DAY_MS + 1, DAY_MS + 1, DAY_MS + 1), 3),  # including the active segment
        ((5, DAY_MS + 1, 5), 0),  # deletion begins only with the oldest segment
        ((DAY_MS + 1, -DAY_MS, DAY_MS + 1), 1),  # a segment with a timestamp in the future stops the deletion
        ((-1, 5, 5), 0),
    ],
)
def test_segments_are_deleted_when_their_newest_record_is_older_than_retention_ms(ages_ms, expired):
    log = log_of(*((100, age_ms) for age_ms in ages_ms))
    assert counts(log, config_of(retention_ms=DAY_MS)) == ({"TIME": expired} if expired else {})


def test_an_empty_active_segment_is_left_alone():
    config = config_of(retention_ms=DAY_MS)
    assert counts(log_of((0, 2 * DAY_MS)), config) == {}
    assert counts(log_of((100, 2 * DAY_MS), (0, None), modified_ms=0), config) == {"TIME": 1}
    assert counts(log_of(), config) == {}


@pytest.mark.parametrize(
    ("modified_ms", "expired"), [(NOW_MS - DAY_MS - 1, {"TIME": 1}), (NOW_MS - DAY_MS, {})]
)
def test_without_timestamps_the_file_s_own_time_counts(modified_ms, expired):
    log = log_of((100, None), (100, 5), modified_ms=modified_ms)
    assert counts(log, config_of(retention_ms=DAY_MS)) == expired


def test_a_timestamp_of_1970_is_one():
    log = log_of((100, NOW_MS), (100, 5), modified_ms=NOW_MS)
    assert counts(log, config_of(retention_ms=DAY_MS)) == {"TIME": 1}


def test_retention_ms_zero_leaves_only_this_millisecond():
    assert counts(log_of((100, 1), (100, 0)), config_of(retention_ms=0)) == {"TIME": 1}


# -- size -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retention_bytes", "expired"),
    [
        (-1, 0),
        (301, 0),
        (300, 0),
        (201, 0),  # at least retention.bytes must remain
        (200, 1),
        (199, 1),
        (100, 2),
        (1, 2),
        (0, 3),
    ],
)
def test_segments_are_deleted_while_retention_bytes_remain_without_them(retention_bytes, expired):
    log = log_of((100, 5), (100, 5), (100, 5))
    assert counts(log, config_of(retention_bytes=retention_bytes)) == ({"SIZE": expired} if expired else {})


def test_a_segment_that_is_too_large_to_go_stops_those_behind_it():
    assert counts(log_of((500, 5), (10, 5), (100, 5)), config_of(retention_bytes=200)) == {}


# -- the log start ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_start_offset", "expired"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2)]
)
@pytest.mark.parametrize("policy", [("delete",), ("compact",), ("compact", "delete"), ()])
def test_segments_below_the_log_start_are_deleted_under_every_policy(log_start_offset, expired, policy):
    log = log_of((100, 5), (100, 5), (100, 5), log_start_offset=log_start_offset)
    assert counts(log, config_of(cleanup_policy=policy)) == ({"LOG_START": expired} if expired else {})


@pytest.mark.parametrize("policy", [("compact",), ()])
def test_without_delete_nothing_goes_by_age_or_size(policy):
    log = log_of((100, 2 * DAY_MS), (100, 2 * DAY_MS))
    config = config_of(cleanup_policy=policy, retention_ms=DAY_MS, retention_bytes=0)
    assert counts(log, config) == {}
    assert log.due_ms(config) is None


def test_compact_and_delete_deletes():
    log = log_of((100, 2 * DAY_MS), (100, 5))
    assert counts(log, config_of(cleanup_policy=("compact", "delete"), retention_ms=DAY_MS)) == {"TIME": 1}


# -- combinations -----------------------------------------------------------------------------------------------


def test_the_rules_apply_one_after_the_other():
    log = log_of((100, 5), (100, 5), (100, 2 * DAY_MS), (100, 5), log_start_offset=10)
    found = log.expired(config_of(retention_bytes=200, retention_ms=DAY_MS), NOW_MS, LIMIT)
    # Each rule sees the log without the segments that earlier rules have selected.
    assert found == [
        Expired(Reason.LOG_START, 1, 100),
        Expired(Reason.SIZE, 1, 100),
        Expired(Reason.TIME, 1, 100),
    ]


@pytest.mark.parametrize(("high_watermark", "expired"), [(0, 0), (9, 0), (10, 1), (19, 1), (29, 2), (30, 3)])
@pytest.mark.parametrize("settings", [{"retention_ms": DAY_MS}, {"retention_bytes": 0}])
def test_nothing_beyond_the_high_watermark_goes(high_watermark, expired, settings):
    log = log_of(*[(100, 2 * DAY_MS)] * 3, high_watermark=high_watermark)
    assert sum(counts(log, config_of(**settings)).values()) == expired


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_a_limit_selects_the_first_of_the_same_segments(limit):
    """Repeated calls with a limit together select the same segments, for the same reasons, as one call without a limit."""
    pieces = [(100, 5), (100, 5), (100, 2 * DAY_MS), (100, 2 * DAY_MS), (100, 5)]
    config = config_of(retention_bytes=300, retention_ms=DAY_MS)
    wanted = counts(log_of(*pieces, log_start_offset=10), config)
    assert wanted == {"LOG_START": 1, "SIZE": 1, "TIME": 2}
    taken: dict[str, int] = {}
    gone = 0
    while True:
        whole = log_of(*pieces, log_start_offset=max(10, 10 * gone))
        rest = whole.segments[gone:]
        log = Ageing(
            rest,
            partial(size_of, rest),
            whole.log_start_offset,
            whole.log_end_offset,
            whole.high_watermark,
            whole.modified_ms,
        )
        found = log.expired(config, NOW_MS, limit)
        if not found:
            break
        assert sum(each.segments for each in found) <= limit
        for each in found:
            taken[each.reason.name] = taken.get(each.reason.name, 0) + each.segments
            gone += each.segments
    assert taken == wanted


# -- the next check ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "in_ms"),
    [
        (((100, 5), (100, 3)), DAY_MS - 5 + 1),
        (((100, -7),), DAY_MS + 7 + 1),
        (((100, 2 * DAY_MS), (100, 3)), -DAY_MS + 1),
        (((100, None), (100, 3)), DAY_MS - 50 + 1),
        (((0, None), (100, 3)), DAY_MS - 50 + 1),  # compaction may leave a sealed segment empty
        (((0, None),), None),
        ((), None),
    ],
)
def test_a_log_is_due_a_millisecond_after_its_oldest_segment_s_newest_record_is_that_old(pieces, in_ms):
    log = log_of(*pieces, modified_ms=NOW_MS - 50)
    config = config_of(retention_ms=DAY_MS)
    due_ms = log.due_ms(config)
    assert due_ms == (None if in_ms is None else NOW_MS + in_ms)
    if due_ms is not None and due_ms > NOW_MS:
        assert log.expired(config, due_ms - 1, LIMIT) == []
        assert log.expired(config, due_ms, LIMIT)[0].reason is Reason.TIME


def test_a_log_without_a_time_limit_is_never_due():
    assert log_of((100, 5)).due_ms(config_of(retention_bytes=10)) is None
