"""Coordinators wait in coroutines (ARCHITECTURE.md). Each parameter that takes a function is listed here, with its reason.

Code in callbacks is hard to read, as its next step is an argument of a call. A new callback needs a line in `REMAINING`, and
a review.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.check

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("broker/transactions", "broker/groups", "broker/share")
LISTENER = "is a listener to events, for which no coroutine waits"
TIMER = "is the callback of a timer"
EACH = "is called for each element, within the call"
QUESTION = "is a query that returns at once, within the call: a port, or a permission"
DECISION = "is the pure function that decides, called when the request has its turn"
CHANCE = "generates an id, as randomness is passed in"

REMAINING = {
    "broker/transactions/cleanup.py Cleanup.__init__(abort)": LISTENER,
    "broker/transactions/cleanup.py Cleanup.__init__(fresh_id)": QUESTION,
    "broker/transactions/loading.py load(install)": EACH,
    "broker/transactions/loading.py _install(install)": EACH,
    "broker/transactions/lost_decisions.py lost_decisions(find_marker)": QUESTION,
    "broker/groups/consumer/assignors/spec.py GroupSpec.of(partition_count)": QUESTION,
    "broker/groups/consumer/subscribing.py resolve_regexes(may_describe)": QUESTION,
    "broker/groups/consumer_groups.py ConsumerGroups.__init__(new_uuid)": CHANCE,
    "broker/groups/consumer_groups.py ConsumerGroups._resolve(may_describe)": QUESTION,
    "broker/groups/modern_groups.py ModernGroups.carry_out_request(decide)": DECISION,
    "broker/groups/modern_groups.py ModernGroups.carry_out(decide)": DECISION,
    "broker/groups/modern_groups.py ModernGroups.carry_out_timer(decide)": DECISION,
    "broker/groups/share/assignor.py assign(assignable)": QUESTION,
    "broker/groups/share/assignor.py _Balance.__init__(assignable)": QUESTION,
    "broker/groups/share_groups.py ShareGroups.__init__(shard_of)": QUESTION,
    "broker/share/coordinator/state.py ShareCoordinatorState.cold_snapshots(is_cold)": EACH,
    "broker/share/manager.py SharePartitionManager.open(on_failed)": LISTENER,
    "broker/share/manager.py SharePartitionManager._load(on_failed)": LISTENER,
    "broker/share/manager.py _RemovedLogs.__init__(drop)": LISTENER,
    "broker/groups/coordinator.py GroupCoordinator.__init__(new_uuid)": CHANCE,
    "broker/groups/coordinator.py GroupCoordinator.join(may_describe)": QUESTION,
    "broker/groups/coordinator.py GroupCoordinator.consumer_group_heartbeat(may_describe)": QUESTION,
    "broker/groups/offsets.py GroupOffsets.expired(now_for)": QUESTION,
    "broker/groups/offsets.py GroupOffsets.expires_in_ms(now_for)": QUESTION,
    "broker/groups/offsets.py GroupOffsets._waits_ms(now_for)": QUESTION,
    "broker/groups/offsets.py _wait_ms(now_for)": QUESTION,
    "broker/groups/shard.py GroupShard.__init__(config)": QUESTION,
    "broker/groups/shard.py GroupShard.write_tombstones(find)": DECISION,
    "broker/groups/shard.py GroupShard.arm(then)": TIMER,
    "broker/groups/shard.py GroupShard._fired(then)": TIMER,
}
"""The reason of each callback, by file, function and parameter."""


def sources() -> dict[str, ast.Module]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths}


def types_of_functions(modules: dict[str, ast.Module]) -> set[str]:
    """``Callable``, and the aliases of such types that the packages in ``PACKAGES`` define."""
    found = {"Callable"}
    for module in modules.values():
        for each in module.body:
            if isinstance(each, ast.Assign) and names_in(each.value) & found:
                found.update(target.id for target in each.targets if isinstance(target, ast.Name))
    return found


def names_in(node: ast.expr | None) -> set[str]:
    """The names in an expression. An annotation may be a string."""
    if node is None:
        return set()
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    for text in texts:
        if isinstance(text, str) and text.isidentifier():
            names.add(text)
    return names


def callbacks() -> Iterator[str]:
    """Every parameter in ``PACKAGES`` that takes a function."""
    modules = sources()
    types = types_of_functions(modules)
    for name, module in modules.items():
        for path, function in functions(module, ()):
            arguments = function.args
            for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if names_in(each.annotation) & types:
                    yield f"{name} {path}({each.arg})"


def functions(
    node: ast.AST, path: tuple[str, ...]
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for each in ast.iter_child_nodes(node):
        inside = path
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = (*path, each.name)
            if not isinstance(each, ast.ClassDef):
                yield ".".join(inside), each
        yield from functions(each, inside)


def test_every_parameter_that_takes_a_function_is_listed():
    assert [each for each in callbacks() if each not in REMAINING] == []


def test_the_list_has_no_parameter_that_is_gone():
    assert set(REMAINING) - set(callbacks()) == set()
