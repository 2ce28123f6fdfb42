"""ListTransactions: the ids of this coordinator, and the filters of the three versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.apis.list_transactions import list_transactions
from protocol.errors import ErrorCode
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.support.points import Gate
from tests.support.world import NODE_ID, OTHER_NODE_ID, TRANSACTION_STATE, World

OK = ErrorCode.none


@pytest.fixture
def world(tmp_path: Path):
    """A world with the transactional ids `idle`, which never began a transaction, `slow` (open for a minute), `quick` (open
    for a second) and `done` (committed)."""
    world = World(tmp_path)
    world.create("t")
    world.init("idle")
    world.add("slow", *world.init("slow"), ("t", 0))
    world.clock.advance(59_000)
    done = world.init("done")
    world.add("done", *done, ("t", 0))
    world.end("done", *done, committed=True)
    world.add("quick", *world.init("quick"), ("t", 0))
    world.clock.advance(1_000)
    yield world
    world.abandon()


def ask(world: World, context: Any = None, **filters: Any) -> ListTransactionsResponse:
    return list_transactions(ListTransactionsRequest(**filters), context or world.context(2))


def names(world: World, **filters: Any) -> set[str]:
    answer = ask(world, **filters)
    assert answer.error_code == OK
    return {state.transactional_id for state in answer.transaction_states}


def test_all_ids_with_producer_id_and_state(world):
    listed = {
        state.transactional_id: (state.producer_id, state.transaction_state)
        for state in ask(world).transaction_states
    }
    ids = {name: world.memory(name).producer_id for name in ("idle", "slow", "done", "quick")}
    assert listed == {
        "idle": (ids["idle"], "Empty"),
        "slow": (ids["slow"], "Ongoing"),
        "done": (ids["done"], "CompleteCommit"),
        "quick": (ids["quick"], "Ongoing"),
    }


@pytest.mark.parametrize(
    ("states", "found", "unknown"),
    [
        (["Ongoing"], {"slow", "quick"}, []),
        (["Empty", "CompleteCommit"], {"idle", "done"}, []),
        (["PrepareEpochFence", "Dead"], set(), []),
        (["Ongoing", "Nonsense", "ongoing"], {"slow", "quick"}, ["Nonsense", "ongoing"]),
        (["Nonsense", "Nonsense"], set(), ["Nonsense"]),
    ],
)
def test_by_state(world, states, found, unknown):
    answer = ask(world, state_filters=states)
    assert {state.transactional_id for state in answer.transaction_states} == found
    assert list(answer.unknown_state_filters) == unknown


def test_by_producer_id(world):
    wanted = world.memory("slow").producer_id
    assert names(world, producer_id_filters=[wanted, 999_999]) == {"slow"}


@pytest.mark.parametrize(
    ("duration_ms", "found"),
    [
        (-1, {"idle", "slow", "done", "quick"}),
        # The start time of an id without a transaction is -1, and its duration is counted from there, as in Kafka.
        (0, {"idle", "slow", "done", "quick"}),
        (999, {"idle", "slow", "done", "quick"}),
        (1_000, {"idle", "slow"}),
        (60_000, {"idle"}),
        (2**62, set()),
    ],
)
def test_by_duration(world, duration_ms, found):
    assert names(world, duration_filter=duration_ms) == found


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (None, {"idle", "slow", "done", "quick"}),
        ("", {"idle", "slow", "done", "quick"}),
        ("slow", {"slow"}),
        ("slo", set()),
        (".*o.*", {"slow", "done"}),
        ("(?i)SLOW|DONE", {"slow", "done"}),
        (r"\p{Ll}{4}", {"idle", "slow", "done"}),
        (r"\Qslow\E", {"slow"}),
    ],
)
def test_by_pattern_the_whole_id_must_match(world, pattern, found):
    assert names(world, transactional_id_pattern=pattern) == found


@pytest.mark.parametrize("pattern", ["(", "a{1001}", "a++", r"(a)\1", "(?=a)", "[z-a]"])
def test_a_pattern_that_re2_rejects(world, pattern):
    answer = ask(world, transactional_id_pattern=pattern, state_filters=["Nonsense"])
    assert answer.error_code == ErrorCode.invalid_regular_expression
    assert (list(answer.unknown_state_filters), list(answer.transaction_states)) == ([], [])


def test_no_pattern_keeps_the_broker_busy(world):
    """ListTransactions matches a pattern in linear time. A backtracking engine would need longer than any test may run."""
    name = "a" * 2_000 + "!"
    world.init(name)
    assert names(world, transactional_id_pattern="(a|a?)+(a*)*b") == set()


def test_filters_are_joined_by_and(world):
    filters = {"state_filters": ["Ongoing"], "duration_filter": 1_000}
    assert names(world, **filters) == {"slow"}
    assert names(world, **filters, transactional_id_pattern="q.*") == set()


def test_only_ids_of_this_coordinator_are_listed(world):
    for state in list(world.cluster.topics[TRANSACTION_STATE].partitions):
        world.cluster.move(TRANSACTION_STATE, state.index, OTHER_NODE_ID)
    assert names(world) == set()


def test_during_loading_the_result_is_an_error(world):
    world.injection.points = gate = Gate("coordinator.load")
    world.cluster.move(TRANSACTION_STATE, 2, NODE_ID)
    answer = ask(world)
    loading = ErrorCode.coordinator_load_in_progress
    assert (answer.error_code, list(answer.transaction_states)) == (loading, [])
    gate.release()
    assert ask(world).error_code == ErrorCode.none


def test_before_a_transaction_has_begun(tmp_path):
    world = World(tmp_path)
    del world.cluster.topics[TRANSACTION_STATE]
    assert names(world) == set()
    world.abandon()


def test_only_ids_that_the_caller_may_describe(world, monkeypatch):
    context = world.context(2)
    monkeypatch.setattr(type(context), "authorize", lambda self, *what, **how: what[2] != "slow")
    listed = {state.transactional_id for state in ask(world, context).transaction_states}
    assert listed == {"idle", "done", "quick"}
