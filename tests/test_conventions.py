"""The project's conventions that a machine can check."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from broker.config.definitions import broker_configs
from requirements import locked

pytestmark = pytest.mark.check

ROOT = Path(__file__).resolve().parents[1]
SERVER = ("protocol", "compiled", "storage", "broker", "lab", "proxy", "server")
PRODUCT = (*SERVER, "tools", "odradek")
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500
LONGER = {
    "broker/replicas/partition/partition.py": "one replica: appends of its leader, and reads",
}
"""Modules that may be longer than ``MODULE_LINES_MAX``, each with the one subject that its code is about."""

# Written by a generator.
GENERATED = ("protocol/messages/",)
# The only modules that may read the real time. All others are given a clock.
CLOCKS = {
    "broker/clock/clock.py": "the clock that is passed to everything else",
    "broker/replicas/maintenance/cleaner_throttler.py": "sleeps in its thread, so that the event loop runs",
    "broker/loop/lag.py": "measures the lag of the event loop",
    "broker/cluster/cluster.py": "measures the duration of the start",
    "broker/logging/configuration.py": "writes the time of log lines",
}
# The only module of the tests that may read the time, and the modules that may sleep, each with its reason: the module
# retries after the sleep, runs in virtual time, or the pause is part of the test's plan.
TEST_CLOCK = "tests/support/deadlines.py"
TESTS_THAT_SLEEP = {
    "tests/chaos/": "a run lasts for some time, and its actors pause",
    "tests/clients/jvm/kills.py": "retries",
    "tests/clients/share_session.py": "locks run out at Apache Kafka, whose clock cannot be advanced",
    "tests/broker/net/test_freed_bytes.py": "retries",
    "tests/broker/security/stalled.py": "retries",
    "tests/differential/": "retries, and waits until a long poll has begun that another request ends",
    "tests/fuzz/differential_shares.py": "waits until Apache Kafka has released the records of a session",
    "tests/fuzz/logins.py": "virtual time",
    "tests/odradek/test_broker.py": "a task that shows that the event loop runs",
    "tests/scenarios/loop_workers.py": "a worker that hangs until it is killed",
    "tests/scenarios/test_few_descriptors.py": "some rounds of flushes, whose failures would be logged",
    "tests/scenarios/test_kill_storm.py": "kills come at any time",
    "tests/simulation/": "virtual time",
    "tests/spark/matrix/company.py": "retries",
    "tests/spark/sink/test_sink_source.py": "retries",
    "tests/support/": "retries",
    "tests/test_packaging.py": "retries",
}
# Tests that write records with the current date.
DATED_TESTS = (
    "tests/chaos/",
    "tests/clients/",
    "tests/differential/",
    "tests/scenarios/",
    "tests/support/",
    # Certificates that are valid today.
    "tests/lab/control/test_tls.py",
    "tests/broker/net/test_freed_bytes.py",
    "tests/broker/net/test_handshakes.py",
    "tests/broker/secrets/test_starts.py",
    "tests/broker/security/stalled.py",
    "tests/kubernetes/",
)
# Methods that wait, with the position of their timeout argument. Others have it as a keyword.
WAITS = {
    "wait": 0,
    "wait_for": 1,
    "join": 0,
    "settimeout": 0,
    "timeout": 0,
    "flush": 0,
    "result": 0,
    "init_transactions": 0,
    "commit_transaction": 0,
    "abort_transaction": 0,
}
WAITS_BY_NAME = ("timeout", "within_s", "request_timeout", "operation_timeout")
# Files in which the same names are fields of Kafka's requests, or methods that take a count.
NOT_WAITS = (
    "tests/differential/stories/",
    "tests/differential/cluster/",
    "tests/broker/apis/",
    "tests/lab/trace/test_timeline.py",
)
COUNTING = ("kafka", "rule")
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
# Recordings of Apache Kafka and of mutants, and the stories whose requests are recorded.
RECORDED = (
    "tests/differential/recorded",
    "tests/differential/stories/",
    "tests/differential/cluster/stories/",
    "tests/mutants/results.json",
)
TEXTS = {".py", ".md", ".j2", ".sh", ".go", ".js", ".toml"}
# The name of a Markdown file in prose, code or a link, but not the last part of a computed path (`ROOT / "a.md"`).
MARKDOWN = re.compile(r"(?<!/ \")(?<![\w./*-])[\w./*-]*\w\.md\b")
# Names that code builds or that tests match, not references.
NO_REFERENCES = {"*.md", "docs/**/*.md", "docs/*.md", "**/*.md"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def sources(*packages: str) -> list[Path]:
    paths = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    return [path for path in paths if not name_of(path).startswith(GENERATED)]


def everything() -> list[Path]:
    return [*sources(*PRODUCT, "tests", "benchmarks", "examples", "website")]


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def calls(path: Path) -> Iterator[tuple[int, str, str, ast.Call]]:
    """(line, object, method, call) of every call of the form `object.method(...)`."""
    for node in ast.walk(tree(path)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            yield node.lineno, node.func.value.id, node.func.attr, node


def is_yield_to_the_loop(call: ast.Call) -> bool:
    """Whether the call is `asyncio.sleep(0)`, which runs other tasks and waits for nothing."""
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def test_a_function_has_a_limited_length():
    too_long = [
        f"{name_of(path)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path in sources(*PRODUCT)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_a_module_has_a_limited_length():
    lengths = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in sources(*PRODUCT)}
    assert {name for name, lines in lengths.items() if lines > MODULE_LINES_MAX} == {*LONGER}


def test_the_product_does_not_print():
    """Only `odradek`, the user's command, may print. The packages of the broker log."""
    printed = [
        f"{name_of(path)}:{node.lineno}"
        for path in sources(*SERVER)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printed == []


def test_modules_are_given_a_clock():
    looks = [
        f"{name_of(path)}:{line} {owner}.{method}"
        for path in sources(*SERVER)
        if name_of(path) not in CLOCKS
        for line, owner, method, call in calls(path)
        if (owner, method) in TIME_CALLS and not is_yield_to_the_loop(call)
    ]
    assert looks == []


def is_free_in_tests(name: str, method: str) -> bool:
    """Whether the test file ``name`` may call ``method``: the listed files may read the current date as data, or sleep.
    Durations must be measured by `Deadline` and `Stopwatch`."""
    if method in ("time", "time_ns", "now"):
        return name.startswith(DATED_TESTS)
    return method == "sleep" and name.startswith(tuple(TESTS_THAT_SLEEP))


def test_no_test_decides_by_wall_clock():
    looks = [
        f"{name_of(path)}:{line} {owner}.{method}"
        for path in sources("tests")
        if name_of(path) != TEST_CLOCK
        for line, owner, method, call in calls(path)
        if (owner, method) in TIME_CALLS
        and not is_yield_to_the_loop(call)
        and not is_free_in_tests(name_of(path), method)
    ]
    assert looks == []


def is_seconds(node: ast.expr) -> bool:
    """Whether an expression is a number below 1000, taken as seconds. Larger ones are milliseconds of requests."""
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return False
    return isinstance(node.value, int | float) and 0 < node.value < 1000


def waits_for_seconds(call: ast.Call) -> bool:
    """Whether a call has a literal timeout: `process.wait(60)`, `run(..., timeout=60)`."""
    owner, method = call.func, ""
    if isinstance(call.func, ast.Attribute):
        owner, method = call.func.value, call.func.attr
    at = WAITS.get(method)
    by_place = at is not None and len(call.args) == at + 1 and is_seconds(call.args[at])
    by_name = any(each.arg in WAITS_BY_NAME and is_seconds(each.value) for each in call.keywords)
    return (by_place or by_name) and not (isinstance(owner, ast.Name) and owner.id in COUNTING)


def test_a_deadline_has_a_name():
    """Timeouts are constants of tests/support/deadlines.py, which an environment variable multiplies."""
    numbers = [
        f"{name_of(path)}:{node.lineno} {ast.unparse(node)[:60]}"
        for path in sources("tests")
        if not name_of(path).startswith(NOT_WAITS)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and waits_for_seconds(node)
    ]
    assert numbers == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("process.wait(60)", True),
        ("asyncio.wait_for(answer, 5.0)", True),
        ("subprocess.run(command, timeout=120)", True),
        ("pytest.mark.timeout(900)", True),
        ("process.wait(HANG_S)", False),
        ("pytest.mark.timeout(0)", False),
        ("kafka.wait_for(topic, 3)", False),
    ],
)
def test_a_deadline_without_a_name_is_seen(code: str, found: bool):
    (statement,) = ast.parse(code).body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    assert waits_for_seconds(statement.value) is found


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


def texts() -> list[Path]:
    """Every text file of the project, in the directories that a clone has."""
    folders = (*PRODUCT, "tests", "benchmarks", "examples", "docs", "docker", "website")
    nested = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    found = [*nested, *ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile", ROOT / "Dockerfile"]
    return [path for path in found if path.suffix in TEXTS and not is_foreign(path)]


def is_foreign(path: Path) -> bool:
    """Whether a file was left by another program, generated, or recorded."""
    name = name_of(path)
    left = {"node_modules", "__pycache__"} & set(path.parts)
    return bool(left) or name.startswith((*GENERATED, *RECORDED))


def dangling(text: str, folder: Path) -> list[str]:
    """Names of Markdown files in a text that exist neither in ``folder`` nor relative to the project's root."""
    names = [name for name in MARKDOWN.findall(text) if name not in NO_REFERENCES]
    return [name for name in names if not any((base / name).is_file() for base in (folder, ROOT))]


def test_every_reference_to_a_document_leads_to_a_file():
    found = [
        f"{name_of(path)}: {name}"
        for path in texts()
        if path != Path(__file__)
        # Our templates become pages of the documentation.
        for name in dangling(
            path.read_text("utf-8", "replace"), ROOT / "docs" if path.suffix == ".j2" else path.parent
        )
    ]
    assert found == []


def missing_paths(text: str) -> list[str]:
    """Our paths in back-ticks, such as `broker/api.py`, that do not exist. Patterns are skipped."""
    tops = "|".join((*PRODUCT, "tests", "benchmarks", "examples", "docs"))
    named = re.findall(rf"`((?:{tops})/[\w./-]+)`", text)
    return [name for name in named if not (ROOT / name).exists()]


def test_every_path_in_a_document_exists():
    found = [
        f"{name_of(path)}: {name}"
        for path in texts()
        if path.suffix == ".md" and path.name != "CHANGELOG.md"
        for name in missing_paths(path.read_text("utf-8"))
    ]
    assert found == []


def test_a_path_that_does_not_exist_is_found():
    assert missing_paths("`storage/log.py`, `broker/nowhere.py`, `broker/apis/<name>.py`") == [
        "broker/nowhere.py"
    ]


# Dotted names that begin like our packages but are not modules.
NO_MODULES = re.compile(
    r"odradek\.(segments|exactly_once|node)(\..*)?|broker\.control|.*\.(py|log|crt|jks|key|p12|pem|properties)"
)


def names_in(module: Path) -> set[str]:
    """The names that may follow a module's name after a dot: its definitions, and attributes of these."""
    nodes = list(ast.walk(ast.parse(module.read_text("utf-8"))))
    defined = {getattr(node, "name", None) or getattr(node, "attr", None) for node in nodes}
    return {name for name in defined if name} | {node.id for node in nodes if isinstance(node, ast.Name)}


def leads_to_a_module(name: str) -> bool:
    """Whether a name such as `broker.clock.clock.Clock.now_for` is a package, a module, or an attribute in a module."""
    folder, parts = ROOT, name.split(".")
    while parts and (folder / parts[0]).is_dir():
        folder /= parts.pop(0)
    if not parts:
        return True
    module = folder / f"{parts[0]}.py"
    if module.is_file():
        return names_in(module) >= set(parts[1:])
    return (folder / "__init__.py").is_file() and names_in(folder / "__init__.py") >= set(parts)


def missing_modules(text: str) -> list[str]:
    """Dotted names of our modules, or of their attributes, that a text has in back-ticks and that do not exist."""
    named = re.findall(rf"`((?:{'|'.join((*PRODUCT, 'tests', 'benchmarks'))})(?:\.\w+)+)`", text)
    candidates = [name for name in named if name not in broker_configs() and not NO_MODULES.fullmatch(name)]
    return [name for name in candidates if not leads_to_a_module(name)]


def test_every_module_that_a_text_names_exists():
    found = [
        f"{name_of(path)}: {name}"
        for path in texts()
        if path != Path(__file__) and path.name != "CHANGELOG.md"
        for name in missing_modules(path.read_text("utf-8", "replace"))
    ]
    assert found == []


def test_a_module_that_does_not_exist_is_found():
    text = "`broker.clock.clock.Clock.now_for`, `broker.clock.clock.now`, `storage.nowhere`, `broker.rack`, `odradek.Broker`"
    assert missing_modules(text) == ["broker.clock.clock.now", "storage.nowhere"]


def test_a_reference_that_leads_nowhere_is_found(tmp_path: Path):
    (tmp_path / "page.md").touch()
    text = "see page.md, docs/faults.md, and (storage.md §4) or [it](../nowhere.md#part)"
    assert dangling(text, tmp_path) == ["storage.md", "../nowhere.md"]


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
    text = locked.LOCK.read_text("utf-8")
    assert "://" not in text
    assert not re.search(r"^--(index|extra-index|find|trusted)", text, re.MULTILINE)
    for requirement in re.split(r"\n(?=\S)", text.strip()):
        assert re.match(r"[\w.-]+==\S+", requirement), requirement
        assert "--hash=sha256:" in requirement, requirement


def test_each_environment_takes_its_part_of_the_lock():
    lock = locked.LOCK.read_text("utf-8")
    environments = {name: locked.requirements_of(name, lock) for name in (*locked.EXTRAS, *locked.GROUPS)}
    assert locked.merged(environments) == lock, "make lock writes it"
    pins = {
        name: {line.partition(" ")[0] for line in part.splitlines() if "==" in line}
        for name, part in environments.items()
    }
    assert {"setuptools==", "cython=="} <= {pin.partition("==")[0] + "==" for pin in pins["build"]}
    for name in {*environments} - {*locked.APART}:
        packages = {pin.partition("==")[0] for pin in pins["dev"]}
        assert {pin for pin in pins[name] if pin.partition("==")[0] in packages} <= pins["dev"], name
    used = re.findall(r"LOCK\w*,(?:[^),]*,)?([a-z]+)\)", (ROOT / "Makefile").read_text("utf-8"))
    used += re.findall(r"locked.py (\w+)", (ROOT / "Dockerfile").read_text("utf-8"))
    assert {"install", "image", "build", "runtime", "java"} <= {*used} <= {*environments}
    with pytest.raises(LookupError):
        locked.requirements_of("nosuch", lock)


def test_the_locks_of_the_node_clients_name_no_registry():
    for lock in ROOT.glob("tests/clients/**/package-lock.json"):
        text = lock.read_text("utf-8")
        assert "://" not in text, lock.name
        assert '"resolved"' not in text, lock.name


def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def project() -> dict:
    return pyproject()["project"]


def test_every_dependency_is_bounded_explained_and_locked():
    explained = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    lock = locked.LOCK.read_text("utf-8")
    groups = project()["optional-dependencies"] | pyproject()["dependency-groups"]
    for requirement in [*project()["dependencies"], *(each for group in groups.values() for each in group)]:
        name = re.split(r"[^\w.-]", requirement)[0]
        if name == project()["name"]:
            continue  # An extra that includes another extra.
        assert f"[{name}](" in explained, name
        assert re.search(rf"^{re.escape(name)}==", lock, re.MULTILINE), name
        assert ">=" in requirement, requirement
        assert "<" in requirement or name == "setuptools", requirement


def test_every_changelog_fragment_has_a_known_type():
    types = {each["directory"] for each in pyproject()["tool"]["towncrier"]["type"]}
    names = [path.name for path in (ROOT / "changelog.d").glob("*.md") if path.name != "README.md"]
    assert [name for name in names if name.split(".")[-2] not in types or name.count(".") < 2] == []


def test_the_licence_is_apache_2_and_ships():
    assert project()["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")


def test_every_code_block_of_a_page_is_closed():
    pages = [path for path in texts() if path.suffix == ".md"]
    fences = {
        name_of(path): len(re.findall(r"^ *```", path.read_text("utf-8"), re.MULTILINE)) for path in pages
    }
    assert [name for name, count in fences.items() if count % 2] == []


def test_the_navigation_of_the_site_has_every_page():
    """The site's navigation has every page. `make site` also fails if a page is missing."""
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f" {page}\n" not in navigation and not page.startswith("adr/0")] == []


def test_the_settings_page_is_current():
    """docs/configuration.md is up to date. To update it, run `python -m broker.config.docs > docs/configuration.md`."""
    from broker.config.docs import document

    assert (ROOT / "docs" / "configuration.md").read_text("utf-8") == document()


def _contracts() -> list[dict[str, object]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: list[dict[str, object]] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
        return found


def test_modules_that_call_themselves_pure_are_in_the_contract():
    """The import contract of pure modules lists them by name, so a module whose docstring says "pure" must be in it."""
    named: set[str] = set()
    for contract in _contracts():
        if contract["type"] == "forbidden" and "asyncio" in cast(list[str], contract["forbidden_modules"]):
            named.update(cast(list[str], contract["source_modules"]))
    unheld = []
    for path in sources(*PRODUCT):
        said = ast.get_docstring(tree(path)) or ""
        module = name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        is_held = any(module == each or module.startswith(f"{each}.") for each in named)
        if re.search(r"\bpure\b", said, re.IGNORECASE) and not is_held and "pure parts" not in said:
            unheld.append(module)
    assert unheld == []


def test_import_contracts_have_no_exceptions():
    """No import contract makes exceptions for single imports."""
    assert [each["name"] for each in _contracts() if "ignore_imports" in each] == []
