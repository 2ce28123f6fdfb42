"""The comparison with other brokers: its pages show the figures of its history, and its statistics are correct."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.kept import text_of
from benchmarks.peers import pages
from benchmarks.peers.cells import QUICK, Cell, Measure, Row, Sample
from benchmarks.peers.load import LoadFailed
from benchmarks.peers.measures import MEASURES, ROWS
from benchmarks.peers.plot import PICTURE
from benchmarks.peers.report import history, is_disturbed, keep, short_table, table, whole
from benchmarks.peers.rounds import Plan, Result, run_group
from benchmarks.targets import ROOT

MORE = Row("rate", "a rate", "1/s")
LESS = Row("time", "a time", "s", higher_is_better=False)


def taken(row: Row, *rounds: dict[str, tuple[float, float]]) -> dict[str, object]:
    """Return the report of a row, given for each round a value and the cores used by other processes."""
    result = Result(row)
    for each in rounds:
        result.rounds.append({name: Sample(value, others) for name, (value, others) in each.items()})
    return result.report()


@pytest.mark.parametrize("page", pages.PAGES)
def test_a_page_has_the_table_of_the_newest_whole_reports(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert pages.written(page, text, pages.shown()) == text


def test_another_figure_changes_the_pages() -> None:
    changed = json.loads(json.dumps(pages.shown()))
    changed[-1]["rows"]["requests-64"]["figures"]["odradek"]["median"] += 1000
    for page in pages.PAGES:
        text = (ROOT / page).read_text("utf-8")
        assert pages.written(page, text, changed) != text


def test_the_plot_shows_every_commit_of_the_history() -> None:
    drawn = PICTURE.read_text("utf-8")
    assert [each["commit"] for each in history() if each["commit"][:7] not in drawn] == []
    assert [row.title for row in ROWS.values() if row.title not in drawn] == []


def test_no_trial_is_kept() -> None:
    assert [each["commit"] for each in history() if each["quick"]] == []


def test_what_is_kept_has_a_line_for_each_entry() -> None:
    kept = {"commit": "a", "rows": {"start": {"n": [1, 2]}, "rate": {}}, "none": {}}
    text = text_of(kept)
    assert json.loads(text) == kept
    assert text.splitlines()[3:5] == ['  "start": {"n": [1, 2]},', '  "rate": {}']


def test_every_row_has_a_name_of_its_own() -> None:
    names = [row.name for measure in MEASURES for row in measure.rows]
    assert sorted(names) == sorted(ROWS)
    assert set(pages.SHORT) <= set(names)


def test_a_ratio_above_one_is_better() -> None:
    calm = {"odradek": (20.0, 0.0), "kafka": (10.0, 0.0)}
    assert taken(MORE, calm)["ratios"] == {"odradek": 2.0}
    assert taken(LESS, calm)["ratios"] == {"odradek": 0.5}


def test_without_apache_kafka_there_is_no_ratio() -> None:
    assert taken(MORE, {"odradek": (20.0, 0.0)})["ratios"] == {}


def test_a_disturbed_round_is_left_out_where_two_are_calm() -> None:
    rounds = [{"odradek": (value, others)} for value, others in ((10.0, 0.0), (90.0, 0.9), (12.0, 0.1))]
    found = taken(MORE, *rounds)
    assert found["figures"]["odradek"]["median"] == 11  # type: ignore[index]
    assert (found["rounds"], found["disturbed"], is_disturbed(found)) == (3, 1, False)


def test_all_rounds_count_where_fewer_than_two_are_calm() -> None:
    rounds = [{"odradek": (value, others)} for value, others in ((10.0, 0.0), (90.0, 0.9), (50.0, 0.9))]
    found = taken(MORE, *rounds)
    assert found["figures"]["odradek"]["median"] == 50  # type: ignore[index]
    assert is_disturbed(found)


def run(tmp_path: Path, others: list[float], *, failing: str = "") -> tuple[dict[str, object], list[str]]:
    """Run a measurement of two rounds that starts no broker. At most one disturbed round is repeated.

    ``others`` are the cores that other processes use, for each target of each round, in order.
    """
    order: list[str] = []

    def take(cell: Cell) -> list[Sample]:
        order.append(f"{cell.round} {cell.target.name}")
        if cell.target.name == failing:
            raise LoadFailed("the target is down")
        return [Sample(10.0, others.pop(0) if cell.round else 0.0)]

    measure = Measure("group", (MORE,), ("odradek", "null"), take, starts_targets=True)
    plan = Plan(QUICK, True, ["odradek", "kafka", "null"], 2, 1, tmp_path, lambda text: None)
    (result,) = run_group(plan, "group", [measure])
    return result.report(), order


def test_brokers_take_turns_and_a_disturbed_round_is_repeated(tmp_path: Path) -> None:
    found, order = run(tmp_path, [0.0, 0.9, 0.0, 0.0, 0.0, 0.0])
    assert order == [f"{number} {name}" for number in range(4) for name in ("odradek", "null")]
    assert (found["rounds"], found["disturbed"]) == (3, 1)


def test_not_all_disturbed_rounds_are_repeated(tmp_path: Path) -> None:
    found, _ = run(tmp_path, [0.9] * 6)
    assert (found["rounds"], found["disturbed"]) == (3, 3)


def test_a_broker_that_fails_costs_the_others_nothing(tmp_path: Path) -> None:
    found, order = run(tmp_path, [0.0, 0.0], failing="odradek")
    assert found["failures"] == {"odradek": "the target is down"}
    assert list(found["figures"]) == ["null"]  # type: ignore[call-overload]
    assert order == ["0 odradek", "0 null", "1 null", "2 null"]


def test_rows_of_a_commit_are_added_to_those_kept_before(tmp_path: Path) -> None:
    def report(name: str, value: float) -> dict[str, object]:
        row = Row(name, name, "1/s")
        figures = taken(row, {"odradek": (value, 0.0), "kafka": (1.0, 0.0)})
        return {"commit": "c" * 40, "committed_at": "2026-01-01T00:00:00+00:00", "rows": {name: figures}}

    for name, value in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        keep(report(name, value), tmp_path)
    (found,) = history(tmp_path)
    assert found["rows"]["a"]["ratios"] == {"odradek": 3}
    assert whole(["a", "b"], [found]) == [found]
    assert whole(["a", "c"], [found]) == []
    assert "| b | 2 1/s | 1 1/s | 2 * |" in short_table(found, ["b"])


def test_ratios_of_other_runs_stand_beside_it() -> None:
    runs = [
        {"rows": {"rate": taken(MORE, {"odradek": (value, 0.0), "kafka": (10.0, 0.0)})}}
        for value in (20.0, 30.0, 40.0)
    ]
    assert "| 4 | 2, 3 |" in table(runs[-1], runs[:-1])
