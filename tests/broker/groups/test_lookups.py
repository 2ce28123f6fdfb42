from __future__ import annotations

from broker.groups.lookups import GROUPS_MAX, LOOKUPS, UnusedLookups


def test_lookups_without_a_request_are_told_once() -> None:
    lookups = UnusedLookups()
    told = [lookups.looked_up("g", 1) for _ in range(3 * LOOKUPS)]
    assert [number for number, each in enumerate(told, 1) if each] == [LOOKUPS]


def test_a_request_for_the_group_begins_the_count_anew() -> None:
    lookups = UnusedLookups()
    for _ in range(5):
        assert not any(lookups.looked_up("g", 1) for _ in range(LOOKUPS - 1))
        lookups.used("g")


def test_only_so_many_groups_are_kept() -> None:
    lookups = UnusedLookups()
    for number in range(3 * GROUPS_MAX):
        lookups.looked_up(str(number), 1)
    assert len(lookups._counts) == GROUPS_MAX


def test_many_members_that_start_at_once_are_no_reason() -> None:
    lookups = UnusedLookups()
    assert not any(lookups.looked_up("g", connection) for connection in range(100))
