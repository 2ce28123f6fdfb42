"""The verdict of a kill storm sees what is lost, doubled and out of order."""

from __future__ import annotations

import pytest

from tests.chaos.kill_storm import verdict


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (["a/0", "b/0", "a/1", "a/2"], (0, 0, 0)),
        (["b/0", "a/0", "a/2"], (1, 0, 0)),
        (["a/0", "b/0", "a/1", "a/1", "a/2"], (0, 1, 0)),
        (["a/0", "b/0", "a/2", "a/1"], (0, 0, 1)),
        (["a/0", "a/1", "a/2"], (1, 0, 0)),
    ],
)
def test_what_is_not_right_is_counted(seen: list[str], found: tuple[int, int, int]) -> None:
    acknowledged = {"a": {(0, 0), (0, 1), (0, 2)}, "b": {(0, 0)}}
    assert verdict(["a", "b"], {0: seen}, acknowledged) == found
