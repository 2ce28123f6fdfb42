"""Each step on a log happens once or is refused, and in the order of arrival, whatever fault rules do to the steps."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.injection.points import InjectionPoint
from lab.faults import FaultError
from tests.lab.faults.stage import Stage

PARTITIONS = 2
RULES = [
    "log.write partition={} -> hold",
    "log.write partition={} every=2 -> hold",
    "log.write partition={} p=0.5 seed=3 -> delay 300ms",
    "log.write partition={} nth=2 -> delay 1s",
    "slow-disk partition={} delay=100ms",
    "log.* partition={} every=3 -> error KAFKA_STORAGE_ERROR",
    "full-disk partition={} nth=3",
    "log.write partition={} times=2 expires=2s -> hold",
]
ACTS = st.one_of(
    st.tuples(st.just("step"), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("add"), st.sampled_from(RULES), st.integers(0, PARTITIONS - 1)),
    st.tuples(st.just("release"), st.integers(1, 4), st.none() | st.integers(1, 2)),
    st.tuples(st.just("remove"), st.integers(1, 4)),
    st.tuples(st.just("advance"), st.integers(1, 700)),
)


def act(stage: Stage, number: int, what: tuple[Any, ...]) -> None:
    match what:
        case "step", partition:
            stage.step(f"{partition} {number}", InjectionPoint("log.write", 1, "orders", partition))
        case "add", rule, partition:
            stage.add(rule.format(partition))
        case "release", rule_id, count:
            stage.faults.release(rule_id, count)
        case "remove", rule_id:
            stage.faults.remove(rule_id)
        case "advance", ms:
            stage.clock.advance(ms)


@given(st.lists(ACTS, max_size=40))
def test_steps_on_a_log_keep_their_order_and_none_is_lost(acts: list[tuple[Any, ...]]) -> None:
    async def story() -> tuple[Stage, list[str]]:
        stage, taken = Stage(), []
        for number, what in enumerate(acts):
            if what[0] == "step":
                taken.append(f"{what[1]} {number}")
            with contextlib.suppress(FaultError):  # the rule is unknown or has been removed
                act(stage, number, what)
        stage.faults.clear()
        return stage, taken

    stage, taken = asyncio.run(story())
    assert sorted(" ".join(step.split()[:2]) for step in stage.steps) == sorted(taken)
    for partition in range(PARTITIONS):
        happened = [
            int(step.split()[1])
            for step in stage.steps
            if step.startswith(f"{partition} ") and len(step.split()) == 2
        ]
        assert happened == sorted(happened)
    assert stage.injection.points is None
    assert stage.clock.timers == []
