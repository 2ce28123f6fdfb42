"""Recordings of an earlier release stay beside those of a later one where they differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential import runner
from tests.support.java import RECORDED_VERSION

FIRST, SECOND, THIRD = ([{"ask": "list", "answer": number}] for number in range(3))


def test_a_recording_of_the_same_release_is_replaced(tmp_path: Path) -> None:
    runner.keep("acls", "listed", FIRST, tmp_path)
    runner.keep("acls", "listed", SECOND, tmp_path)
    assert runner.load("acls", tmp_path) == {"listed": SECOND}
    assert [each.name for each in tmp_path.iterdir()] == ["acls.json"]


def test_a_recording_that_another_release_changes_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.keep("acls", "listed", FIRST, tmp_path)
    monkeypatch.setattr(runner, "KAFKA_VERSION", "99.0.0")
    runner.keep("acls", "listed", FIRST, tmp_path)
    assert not (tmp_path / RECORDED_VERSION).exists(), "nothing has changed"
    runner.keep("acls", "listed", SECOND, tmp_path)
    runner.keep("acls", "listed", THIRD, tmp_path)  # recorded once more: the first release's recording stays
    assert runner.load("acls", tmp_path) == {"listed": THIRD}
    assert runner.load("acls", tmp_path / RECORDED_VERSION) == {"listed": FIRST}
