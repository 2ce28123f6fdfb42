"""Plans: a seed always draws the same plan, plans survive saving, and samples contain every pair of values."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from random import Random

from odradek.spark.sink.points import POINTS as SINK_POINTS
from tests.spark.matrix.plan import (
    COMMITTING,
    FEATURES,
    MOMENT,
    NODES,
    VICTIMS,
    Plan,
    column,
    covering,
    draw,
    fewest,
    load,
    pairwise,
    sample,
    save,
)

POINTS = ("plan.fenced", "task.flushed", "decision.made", "abort.started")


def some_plans() -> list[Plan]:
    return [
        plan
        for seed in range(20)
        for who in VICTIMS
        for node in ("", "leader")
        for plan in column((*POINTS, MOMENT), seed, who, node)
    ]


def test_the_same_seed_draws_the_same_plan_and_another_one_another():
    assert draw(7, "decision.made", "both") == draw(7, "decision.made", "both")
    assert len({draw(seed, "decision.made", "both") for seed in range(20)}) == 20


def test_given_features_are_not_drawn():
    drawn = [draw(seed, "decision.made", "worker", shuffle=True, split=False) for seed in range(20)]
    assert {(each.shuffle, each.split) for each in drawn} == {(True, False)}
    assert {(each.kills[0].point, each.kills[0].victim) for each in drawn} == {("decision.made", "worker")}


def test_a_kill_is_drawn_where_it_can_happen():
    """A kill at the nth time of a step is drawn with n batches left, as each batch takes the step at least once."""
    for plan in some_plans():
        for kill in plan.kills:
            assert kill.batch + kill.nth <= plan.batches
            assert 0 <= kill.written < 1
            assert kill.batch == 0 or not kill.point.startswith("plan.")


def test_a_kill_during_an_abort_follows_a_kill_that_causes_the_abort():
    for seed in range(20):
        first, second, *_ = draw(seed, "abort.started", "both").kills
        assert (first.victim, second.point, second.victim) == ("worker", "abort.started", "both")
        assert first.point in COMMITTING


def test_the_number_of_tasks_differs_from_run_to_run():
    for seed in range(6):
        plan = draw(seed, "decision.made", "both")
        assert len({plan.tasks(run) for run in range(3)}) == 3


def test_plans_survive_saving(tmp_path: Path):
    plans = some_plans()
    save(plans, tmp_path / "plans.json")
    assert load(tmp_path / "plans.json") == plans


def cell(plan: Plan) -> tuple[str, str]:
    kill = plan.kills[1 if plan.kills[0].point in COMMITTING else 0]
    return kill.point, kill.victim


def test_a_column_has_every_point_once():
    assert [cell(each) for each in column(POINTS, 3, "zombie")] == [(point, "zombie") for point in POINTS]


def test_a_sample_has_any_two_values_together():
    choices = {"a": range(5), "b": "xyz", "c": (False, True), "d": (1, 2)}
    rows = covering(choices, Random(3))
    for first, second in combinations(choices, 2):
        assert {(row[first], row[second]) for row in rows} == {
            (x, y) for x in choices[first] for y in choices[second]
        }
    assert len(rows) < 5 * 3 * 2


def test_a_pairwise_sample_has_every_point_with_every_victim_and_is_far_from_all():
    sample = pairwise(1, POINTS, ("", "leader"))
    assert set(map(cell, sample)) >= {(point, who) for point in POINTS for who in VICTIMS}
    assert len(sample) < 4 * 3 * 2 * 2
    assert pairwise(1, POINTS) == pairwise(1, POINTS)
    assert pairwise(1, POINTS) != pairwise(2, POINTS)


def test_a_small_sample_has_every_phase_with_every_victim_and_little_else():
    plans = sample(1, POINTS)
    assert {(point.partition(".")[0], victim) for point, victim in map(cell, plans)} >= {
        (phase, who) for phase in ("plan", "task", "decision", "abort") for who in VICTIMS
    }
    assert not any(plan.fault or len(plan.kills) > 2 for plan in plans)
    assert len(plans) <= 4 * len(VICTIMS) + 4
    assert sample(1, POINTS) == plans != sample(2, POINTS)


def test_the_fewest_of_a_sample_have_each_phase_victim_feature_and_node():
    plans = fewest(sample(1, SINK_POINTS))
    kills = [plan.kills[-1] for plan in plans]
    assert {kill.point.partition(".")[0] for kill in kills} == {
        point.partition(".")[0] for point in SINK_POINTS
    }
    assert {kill.victim for kill in kills} == set(VICTIMS)
    assert {plan.node for plan in plans} == {"", *NODES}
    for feature in FEATURES:
        assert {getattr(plan, feature) for plan in plans} == {False, True}
    assert len(plans) < len(sample(1, SINK_POINTS)) / 2
