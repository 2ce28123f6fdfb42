"""A coordinator waits in one way (ARCHITECTURE.md): a parameter that takes a function is listed here, with its reason.

A walk in callbacks is read from its middle: what it goes on with is a parameter of a function that it calls. A new one needs
a line in `REMAINING`, and a review.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.check

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("broker/transactions", "broker/groups")
LISTENER = "is told of what happens at any time, and no walk waits for it"
TIMER = "is what a timer does when its time comes"
EACH = "takes each of many, in the call"
QUESTION = "is asked in the call, and answers at once: a port, or a right"
DECISION = "is the pure rule that decides, once it is its turn"
CHANCE = "draws an id: chance is an argument"

REMAINING = {
    "broker/transactions/cleanup.py Cleanup.__init__(abort)": LISTENER,
    "broker/transactions/cleanup.py Cleanup.__init__(fresh_id)": QUESTION,
    "broker/transactions/loading.py load(install)": EACH,
    "broker/transactions/loading.py _install(install)": EACH,
    "broker/transactions/lost_decisions.py lost_decisions(find_marker)": QUESTION,
    "broker/groups/consumer/assignors/spec.py GroupSpec.of(partition_count)": QUESTION,
    "broker/groups/consumer/subscribing.py resolve_regexes(may_describe)": QUESTION,
    "broker/groups/consumer_groups.py ConsumerGroups.__init__(new_uuid)": CHANCE,
    "broker/groups/consumer_groups.py ConsumerGroups._asked(decide)": DECISION,
    "broker/groups/consumer_groups.py ConsumerGroups.carry_out(decide)": DECISION,
    "broker/groups/consumer_groups.py ConsumerGroups._resolve(may_describe)": QUESTION,
    "broker/groups/consumer_groups.py ConsumerGroups._carry_out_timer(decide)": DECISION,
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
"""By file, function and parameter."""


def sources() -> dict[str, ast.Module]:
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in paths}


def types_of_functions(modules: dict[str, ast.Module]) -> set[str]:
    """``Callable``, and the names that these rooms give to such types."""
    found = {"Callable"}
    for module in modules.values():
        for each in module.body:
            if isinstance(each, ast.Assign) and names_in(each.value) & found:
                found.update(target.id for target in each.targets if isinstance(target, ast.Name))
    return found


def names_in(node: ast.expr | None) -> set[str]:
    """The names of an expression; an annotation may be a string."""
    if node is None:
        return set()
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    for text in texts:
        if isinstance(text, str) and text.isidentifier():
            names.add(text)
    return names


def callbacks() -> Iterator[str]:
    """Every parameter of these rooms that takes a function."""
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
