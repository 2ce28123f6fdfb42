"""Workers begin with different test modules, and each imports all of them."""

from __future__ import annotations

from pathlib import Path

from tests.support.importing import in_turn


def test_each_worker_begins_with_a_part_of_its_own():
    modules = [Path(f"test_{number}.py") for number in range(10)]
    found = [in_turn(modules, worker, 3) for worker in range(3)]
    assert [each[0].stem for each in found] == ["test_0", "test_3", "test_6"]
    assert all(sorted(each) == modules for each in found)
