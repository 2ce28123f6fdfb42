"""Merging of state batches, compared with a model that has a state for each offset."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from broker.share.coordinator.batches import combined
from broker.share.state import StateBatch


def model(batches: list[StateBatch], start_offset: int) -> list[tuple[int, int, int]]:
    """(offset, state, delivery count) of each offset from the start offset on."""
    won: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            won[offset] = max(won.get(offset, (-1, -1)), (batch.delivery_count, batch.state))
    return [(offset, state, count) for offset, (count, state) in sorted(won.items())]


def test_merged_batches_have_the_states_of_their_offsets_and_no_neighbours_with_equal_state() -> None:
    rng = random.Random(9)
    for _ in range(1000):
        batches = [
            StateBatch(first, first + rng.randrange(8), rng.choice((0, 2, 3, 4)), rng.randrange(1, 4))
            for first in (rng.randrange(30) for _ in range(rng.randrange(2, 9)))
        ]
        start_offset = rng.choice((-1, 0, 5, 12, 40))
        found = combined(batches, start_offset)
        assert model(list(found), -1) == model(batches, start_offset)
        for earlier, later in pairwise(found):
            assert earlier.last_offset < later.first_offset
            adjacent = earlier.last_offset + 1 == later.first_offset
            assert not (adjacent and earlier[2:] == later[2:]), found


@pytest.mark.parametrize(
    ("batches", "start_offset", "merged"),
    [
        ([(0, 9, 0, 1), (3, 4, 2, 1)], -1, [(0, 2, 0, 1), (3, 4, 2, 1), (5, 9, 0, 1)]),
        ([(0, 9, 2, 1), (3, 4, 0, 1)], -1, [(0, 9, 2, 1)]),  # a release never wins over an acknowledgement
        ([(0, 9, 2, 1), (3, 4, 0, 2)], -1, [(0, 2, 2, 1), (3, 4, 0, 2), (5, 9, 2, 1)]),
        ([(0, 4, 2, 1), (5, 9, 0, 1), (5, 9, 2, 1)], -1, [(0, 9, 2, 1)]),
        ([(0, 4, 0, 1)], 2, [(2, 4, 0, 1)]),
        ([(0, 4, 0, 1)], 5, []),
    ],
)
def test_examples(batches, start_offset, merged) -> None:
    assert list(combined([StateBatch(*each) for each in batches], start_offset)) == merged
