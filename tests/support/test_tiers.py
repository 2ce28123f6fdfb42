"""The marks of a test determine its tier, and the marks that a module names, the tiers that its tests may be in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiers import TIERS, may_have_tests, tier_of


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


@pytest.mark.parametrize(
    ("text", "tiers"),
    [
        ("def test_it(): ...", ["test"]),
        ("@pytest.mark.java\ndef test_it(): ...", ["test", "more"]),
        ("pytestmark = pytest.mark.spark_apart", ["more"]),
        ("pytestmark = [\n    pytest.mark.client('x'),\n    pytest.mark.foreign,\n]", ["clients"]),
        ("pytestmark = [pytest.mark.client('x')]\n\n@pytest.mark.slow\ndef test_it(): ...", ["test", "soak"]),
        ("pytestmark = pytest.mark.java\n\n@pytest.mark.smoke\ndef test_it(): ...", ["test", "more"]),
    ],
)
def test_a_module_without_the_marks_of_a_tier_is_not_imported_for_it(
    tmp_path: Path, text: str, tiers: list[str]
):
    module = tmp_path / "test_module.py"
    module.write_text(text)
    assert [tier for tier in TIERS if may_have_tests(module, tier)] == tiers


def test_a_conftest_names_marks_for_the_modules_below_it():
    module = Path(__file__).parents[1] / "scenarios" / "test_b_settings.py"
    assert "mark.more" not in module.read_text()
    assert may_have_tests(module, "more")
