"""The habits of this house that a machine can check."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("protocol", "storage", "broker", "odradek")
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500

# Written by a program, not by hand.
GENERATED = ("protocol/messages/",)
# The places that look at the real time, so that all others can be given it.
CLOCKS = {
    "broker/clock/clock.py": "the clock that everything else is given",
    "broker/upkeep/pace.py": "rests in its thread, so that the loop has its turns",
    "broker/loop_lag.py": "measures the loop itself",
    "broker/cluster/cluster.py": "says how long the start took",
}
# Tests that deal with other processes have to live in their time.
REAL_TIME_TESTS = (
    "tests/chaos/",
    "tests/clients/",
    "tests/differential/",
    "tests/scenarios/",
    "tests/simulation/",
    "tests/spark/",
    "tests/odradek/",
    "tests/support/",
    "tests/test_packaging.py",
)
TIME_CALLS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "monotonic"),
    ("time", "monotonic_ns"),
    ("time", "perf_counter"),
    ("time", "perf_counter_ns"),
    ("time", "sleep"),
    ("asyncio", "sleep"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
}
CHANCE_BELONGS_OUTSIDE = ("protocol/", "storage/", "broker/transactions/", "broker/groups/")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def sources(*packages: str) -> list[Path]:
    paths = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    return [path for path in paths if not name_of(path).startswith(GENERATED)]


def everything() -> list[Path]:
    return [*sources(*PRODUCT, "tests", "benchmarks", "examples")]


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def calls(path: Path) -> Iterator[tuple[int, str, str, ast.Call]]:
    """Line, object and method of every call of the form `object.method(...)`."""
    for node in ast.walk(tree(path)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            yield node.lineno, node.func.value.id, node.func.attr, node


def is_yield_to_the_loop(call: ast.Call) -> bool:
    """`asyncio.sleep(0)` lets others run; it waits for nothing."""
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def test_a_function_fits_a_screen():
    too_long = [
        f"{name_of(path)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path in sources(*PRODUCT)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_a_module_is_not_a_warehouse():
    lengths = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in sources(*PRODUCT)}
    assert {name: lines for name, lines in lengths.items() if lines > MODULE_LINES_MAX} == {}


def test_the_product_says_things_through_its_log():
    """`odradek` may speak to the person who typed its name; the broker's packages log."""
    printed = [
        f"{name_of(path)}:{node.lineno}"
        for path in sources("protocol", "storage", "broker")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printed == []


def test_time_is_an_argument():
    looks = [
        f"{name_of(path)}:{line} {owner}.{method}"
        for path in sources("protocol", "storage", "broker", "tests")
        if name_of(path) not in CLOCKS and not name_of(path).startswith(REAL_TIME_TESTS)
        for line, owner, method, call in calls(path)
        if (owner, method) in TIME_CALLS and not is_yield_to_the_loop(call)
    ]
    assert looks == []


def test_chance_is_an_argument_of_the_cores():
    thrown = [
        f"{name_of(path)}:{line} {owner}.{method}"
        for path in sources(*PRODUCT)
        if name_of(path).startswith(CHANCE_BELONGS_OUTSIDE)
        for line, owner, method, _ in calls(path)
        if owner in ("random", "secrets") and method != "Random"
    ]
    assert thrown == []


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX", "HACK"])
def test_nothing_is_left_for_later_in_a_comment(word: str):
    left = [
        f"{name_of(path)}:{number}"
        for path in everything()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(rf"\b{word}\b", line)
    ]
    assert left == []


def test_no_machine_s_own_paths_are_written_down():
    foreign = re.compile(r"(?<![\w.])/(work|root|home|Users|builds?)/\w")
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in [
            *everything(),
            *ROOT.glob("*.md"),
            *ROOT.glob("docs/**/*.md"),
            ROOT / "Makefile",
            ROOT / "Dockerfile",
        ]
        if path != Path(__file__)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if foreign.search(line)
    ]
    assert found == []


def test_the_locks_pin_everything_by_hash_and_leave_the_index_to_the_machine():
    for lock in ROOT.glob("requirements/*.txt"):
        text = lock.read_text("utf-8")
        assert "://" not in text, lock.name
        assert not re.search(r"^--(index|extra-index|find|trusted)", text, re.MULTILINE), lock.name
        for requirement in re.split(r"\n(?=\S)", text.strip()):
            assert re.match(r"[\w.-]+==\S+", requirement), requirement
            assert "--hash=sha256:" in requirement, requirement


def test_the_locks_of_the_node_clients_name_no_registry():
    for lock in ROOT.glob("tests/clients/**/package-lock.json"):
        text = lock.read_text("utf-8")
        assert "://" not in text, lock.name
        assert '"resolved"' not in text, lock.name


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_every_dependency_is_bounded_explained_and_locked():
    explained = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    locked = "".join(lock.read_text("utf-8") for lock in ROOT.glob("requirements/*.txt"))
    extras = project()["optional-dependencies"]
    for requirement in [*project()["dependencies"], *(each for extra in extras.values() for each in extra)]:
        name = re.match(r"[\w.-]+", requirement)[0]
        if name == project()["name"]:
            continue  # An extra that brings another one.
        assert f"[{name}](" in explained, name
        assert re.search(rf"^{re.escape(name)}==", locked, re.MULTILINE), name
        assert ">=" in requirement, requirement
        assert "<" in requirement or name == "setuptools", requirement


def test_the_licence_is_apache_2_and_ships():
    assert project()["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")


def test_the_settings_page_is_current():
    """`python -m broker.config.docs > docs/configuration.md` writes it."""
    from broker.config.docs import document

    assert (ROOT / "docs" / "configuration.md").read_text("utf-8") == document()
