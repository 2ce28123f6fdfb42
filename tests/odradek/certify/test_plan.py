"""Plans (the faults of one run of a job), the fault rules for them, and the order in which they are tried."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from odradek.certify.lints import DOCS
from odradek.certify.plans.exploration import Coverage, Exploration
from odradek.certify.plans.faults import (
    AT_SERVICES,
    BY_NAME,
    FAULTS,
    Act,
    applicable,
    applies,
    pointless,
    rule,
)
from odradek.certify.plans.moments import Moment, moments
from odradek.certify.plans.plan import Injection, Plan, from_json, single
from odradek.certify.plans.requirements import is_slow
from tests.odradek.certify.traces import fetch, init, share_fetch, trace, transaction

COMMIT = Moment("EndTxn", (("transactional_id", "a"),), 2, "commit")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("lose-answer", "EndTxn transactional_id=a nth=2 -> lose-answer"),
        ("kill-before", "EndTxn transactional_id=a nth=2 -> lose-request silent"),
        ("retriable-error", "EndTxn transactional_id=a nth=2 -> error COORDINATOR_LOAD_IN_PROGRESS"),
        ("freeze", "EndTxn transactional_id=a nth=2 -> hold"),
    ],
)
def test_a_fault_at_a_moment_is_a_rule(fault: str, text: str) -> None:
    assert rule(BY_NAME[fault], COMMIT) == text


SERVICES = "docs/certify-services.md"


def test_a_producer_without_a_transactional_id_meets_no_error_of_transactions() -> None:
    initialises = Moment("InitProducerId", (("client_id", "c"),), 1, "first")
    assert rule(BY_NAME["retriable-error"], initialises).endswith("-> error COORDINATOR_LOAD_IN_PROGRESS")
    assert not applies(BY_NAME["fatal-error"], initialises)
    assert not applies(BY_NAME["expire-ids"], initialises)


def test_what_nodes_ask_each_other_is_no_moment_of_the_job() -> None:
    added = Moment("AddPartitionsToTxn", (("transactional_id", "a"),), 2, "adds")
    text = rule(BY_NAME["lose-answer"], added)
    assert text == "AddPartitionsToTxn transactional_id=a sender=client nth=2 -> lose-answer"


def test_a_name_with_a_blank_is_quoted() -> None:
    assert '"group=my group"' in rule(BY_NAME["reset"], Moment("SyncGroup", (("group", "my group"),), 1, ""))


def test_each_fault_is_explained() -> None:
    docs = Path(__file__).parents[3]
    pages = [(docs / each).read_text(encoding="utf-8") for each in (DOCS, SERVICES)]
    for each in FAULTS:
        assert f"| `{each.name}` | {each.sentence}" in pages[each.name in AT_SERVICES]


def test_each_fault_can_strike_somewhere() -> None:
    run = trace(init("a"), fetch("in"), transaction("a", 5), share_fetch(), share_fetch(accepts=(0, 0)))
    found = [
        *moments(run),
        Moment("postgres:COMMIT", (), 1, "transaction"),
        Moment("postgres:INSERT results", (), 1, "transaction"),
        Moment("http:POST /payments", (), 1, ""),
    ]
    reached = {fault.name for moment in found for fault in applicable(moment, nodes=3)}
    assert reached == {each.name for each in FAULTS}


def test_only_a_transactional_id_is_fenced() -> None:
    fatal = BY_NAME["fatal-error"]
    assert applies(fatal, Moment("Produce", (("transactional_id", "a"),), 1, "adds"))
    assert not applies(fatal, Moment("Produce", (("topic", "out"),), 1, "idempotent"))
    assert applies(fatal, Moment("OffsetCommit", (("group", "g"),), 1, ""))


@pytest.mark.parametrize("on", ["JoinGroup", "SyncGroup"])
def test_a_rebalance_is_waited_for_too_long_to_be_silent(on: str) -> None:
    assert not applies(BY_NAME["silent-answer"], Moment(on, (("group", "g"),), 1, ""))


def test_a_move_needs_another_node() -> None:
    assert not applies(BY_NAME["move"], COMMIT, nodes=1)
    assert applies(BY_NAME["move"], COMMIT, nodes=3)


def test_what_changes_nothing_is_not_tried() -> None:
    opens = Moment("AddPartitionsToTxn", (("transactional_id", "a"),), 1, "opens")
    assert not applies(BY_NAME["time-out-transaction"], opens)
    assert applies(BY_NAME["time-out-transaction"], COMMIT)
    assert pointless([COMMIT]) == {"time-out-session"}
    assert pointless([COMMIT, Moment("JoinGroup", (("group", "g"),), 1, "joins")]) == frozenset()


def test_a_step_of_the_broker_meets_the_death_of_its_node_only() -> None:
    assert [each.name for each in applicable(Moment("txn.marker", (), 1, "commit"), 3)] == ["kill-node"]


def test_a_plan_is_written_down_and_read_again() -> None:
    plan = Plan((Injection(COMMIT, BY_NAME["freeze"]), Injection(COMMIT, BY_NAME["reset"])))
    assert from_json(plan.as_json()) == plan
    assert from_json(plan.as_json()).id == plan.id
    assert plan.id != single(COMMIT, BY_NAME["freeze"]).id


def test_the_instant_between_two_requests_belongs_to_the_plan() -> None:
    plan = single(COMMIT, BY_NAME["kill-between"], 13)
    assert from_json(plan.as_json()) == plan
    assert plan.id != single(COMMIT, BY_NAME["kill-between"], 21).id
    assert str(plan) == "kill-between at EndTxn transactional_id=a #2 (commit), 13 ms after the response"
    assert "delay_ms" not in single(COMMIT, BY_NAME["kill-after"]).as_json()


def test_requests_after_the_input_is_read_are_moments_too() -> None:
    names = ("kill-between", "freeze-between")
    read, nothing = (Moment("Fetch", (("topic", "in"),), 1, phase) for phase in ("records", "nothing"))
    assert all(applies(BY_NAME[each], read) and applies(BY_NAME[each], COMMIT) for each in names)
    assert not any(applies(BY_NAME[each], nothing) for each in names)


@pytest.mark.parametrize(
    "text", ["{}", "[1]", '[{"fault": "flood", "on": "x", "match": {}, "ordinal": 1}]', "nothing"]
)
def test_an_invalid_plan_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a plan|unknown fault|Expecting"):
        from_json(text)


def exploration(**more: Any) -> Exploration:
    run = trace(init("a"), fetch("in"), transaction("a", 5), transaction("a", 9), transaction("a", 12))
    return Exploration(moments(run), **more)


def test_each_cell_is_tried_once_before_any_pair() -> None:
    found = exploration()
    tried = []
    for plan in found.plans():
        if len(plan) > 1:
            break
        tried.append(plan.injections[0].cell)
        found.learned(plan, Coverage.CLEAN)
    quick = [cell for cell in found.cells if not BY_NAME[cell[1]].is_slow]
    assert set(tried) == set(quick)
    assert all(found.cells[cell] is Coverage.CLEAN for cell in quick)


def test_what_a_certificate_needs_is_tried_first_each_fault_at_each_request() -> None:
    found = exploration()
    quick = [each for each in found.needed if not is_slow(each)]
    first = list(islice(found.plans(), len(quick)))
    assert [(each.injections[0].moment.on, each.injections[0].fault.name) for each in first] == [
        (each.on, each.fault) for each in quick
    ]


def test_what_waits_for_a_response_that_never_comes_is_a_sequence_of_its_own() -> None:
    found = exploration()
    slow = list(found.slow())
    assert all(each.injections[0].fault.is_slow for each in slow)
    assert {each.injections[0].cell for each in slow} == {
        cell for cell in found.cells if BY_NAME[cell[1]].is_slow
    }
    assert [each.injections[0].moment.on for each in slow[:4]] == [
        each.on for each in found.needed if is_slow(each)
    ]


def test_a_profile_for_pull_requests_tries_what_a_certificate_needs_and_no_more() -> None:
    found = exploration()
    for plan in (*found.plans(is_full=False), *found.slow(is_full=False)):
        found.learned(plan, Coverage.CLEAN)
    assert found.unmet == []
    assert len([each for each in found.cells.values() if each is Coverage.CLEAN]) == len(found.needed)


def test_a_moment_in_the_middle_comes_first() -> None:
    plan = next(each for each in exploration().plans() if each.injections[0].moment.on == "EndTxn")
    assert plan.injections[0].moment.ordinal == 2


@pytest.mark.parametrize("state", [Coverage.NOT_REACHED, Coverage.NO_EFFECT])
def test_a_cell_that_shows_nothing_is_tried_at_other_members(state: Coverage) -> None:
    found = exploration()
    ordinals = []
    for plan in found.plans():
        if len(plan) > 1:
            break
        injection = plan.injections[0]
        is_commit = injection.moment.on == "EndTxn" and injection.fault.name == "freeze"
        if is_commit:
            ordinals.append(injection.moment.ordinal)
        found.learned(plan, state if is_commit else Coverage.CLEAN)
    assert ordinals == [2, 1, 3]


def test_a_later_try_takes_nothing_back() -> None:
    found = exploration()
    plan = single(COMMIT, BY_NAME["freeze"])
    for state in (Coverage.NO_EFFECT, Coverage.CLEAN, Coverage.NOT_REACHED):
        found.learned(plan, state)
    assert found.cells[plan.injections[0].cell] is Coverage.CLEAN


def test_what_fails_alone_is_not_tried_in_company() -> None:
    found = exploration()
    for plan in islice(found.plans(), 400):
        if len(plan) > 1:
            assert all(each.fault.name != "kill-after" for each in plan.injections)
        is_failure = plan.injections[0].fault.name == "kill-after" and len(plan) == 1
        found.learned(plan, Coverage.FAILED if is_failure else Coverage.CLEAN)


def test_pairs_bring_each_two_faults_together() -> None:
    found = exploration()
    seen = set()
    for plan in islice(found.plans(), 2000):
        if len(plan) == 2:
            seen.add(frozenset(each.fault.name for each in plan.injections))
        found.learned(plan, Coverage.CLEAN)
    names = {name for (_, name), state in found.cells.items() if state is Coverage.CLEAN}
    wanted = {frozenset({one, two}) for one in names for two in names if one < two}
    missing = {pair for pair in wanted - seen if _has_two_classes(found, pair)}
    assert not missing


def _has_two_classes(found: Exploration, pair: frozenset[str]) -> bool:
    one, two = pair
    kinds = [{kind for kind, name in found.cells if name == each} for each in (one, two)]
    return len(kinds[0] | kinds[1]) > 1


def test_the_same_seed_draws_the_same_plans() -> None:
    def drawn(seed: int) -> list[str]:
        found = exploration(seed=seed)
        plans = []
        for plan in found.plans():
            found.learned(plan, Coverage.CLEAN)
            plans.append(plan.id)
            if len(plans) == 600:
                return plans
        return plans

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_acts_are_those_that_the_faults_have() -> None:
    assert {each.act for each in FAULTS} == set(Act)
