"""Which matches of a rule are hits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.faults.declaration import When
from lab.faults.match_counter import MatchCounter


def hits(when: When, matches: int = 10) -> list[int]:
    """The numbers of the matches that are hits."""
    counter = MatchCounter(when)
    return [number for number in range(1, matches + 1) if counter.count_match()]


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (When(), [*range(1, 11)]),
        (When(nth=3), [3]),
        (When(every=3), [3, 6, 9]),
        (When(times=2), [1, 2]),
        (When(after=8), [9, 10]),
        (When(after=2, nth=3), [5]),
        (When(after=1, every=4), [5, 9]),
        (When(every=2, times=2), [2, 4]),
        (When(nth=2, every=2), [2]),
        (When(nth=3, every=2), []),
        (When(p=0.0), []),
        (When(p=1.0), [*range(1, 11)]),
    ],
)
def test_matches_are_counted_from_one(when: When, expected: list[int]) -> None:
    assert hits(when) == expected


def test_the_same_seed_draws_the_same_and_another_something_else() -> None:
    assert hits(When(p=0.3, seed=7), 200) == hits(When(p=0.3, seed=7), 200)
    assert hits(When(p=0.3, seed=7), 200) != hits(When(p=0.3, seed=8), 200)
    assert 40 < len(hits(When(p=0.3, seed=7), 200)) < 80


def test_with_p_and_times_the_first_draws_that_succeed_count() -> None:
    drawn = hits(When(p=0.3, seed=7), 200)
    assert hits(When(p=0.3, seed=7, times=5), 200) == drawn[:5]


@given(
    st.builds(
        When,
        after=st.integers(0, 5),
        nth=st.none() | st.integers(1, 6),
        every=st.none() | st.integers(1, 6),
        times=st.none() | st.integers(1, 6),
        p=st.none() | st.floats(0, 1),
    )
)
def test_once_spent_nothing_is_hit_or_counted_and_until_then_everything_is_counted(when: When) -> None:
    counter = MatchCounter(when)
    for number in range(1, 40):
        spent = counter.spent
        before = (counter.matches, counter.hits)
        hit = counter.count_match()
        if spent:
            assert not hit
            assert (counter.matches, counter.hits) == before
        else:
            assert (counter.matches, counter.hits) == (number, before[1] + hit)
