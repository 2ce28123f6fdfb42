"""The marks of a test determine its tier."""

from __future__ import annotations

import pytest

from tests.support.tiers import tier_of


@pytest.mark.parametrize(
    ("marks", "tier"),
    [
        ([], "test"),
        (["parametrize", "timeout"], "test"),
        (["java"], "more"),
        (["spark_apart"], "more"),
        (["java", "smoke"], "test"),
        (["java", "smoke", "more"], "more"),
        (["more", "slow"], "soak"),
        (["spark", "slow"], "soak"),
        (["foreign", "slow"], "soak"),
        (["check"], "check"),
    ],
)
def test_marks_determine_the_tier(marks: list[str], tier: str):
    assert tier_of(marks) == tier
