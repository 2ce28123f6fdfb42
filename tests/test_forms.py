"""Rules that have several implementations for speed: each implementation mentions the others, and a test compares them.

What a short form (ADR 23) accepts, the full rule accepts, too. Twins (ADR 22) are one function in Python and in C.
"""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.check

ROOT: Final = Path(__file__).resolve().parents[1]

# (module, short form, full rule, test that compares them)
SHORT_FORMS: Final = [
    ("broker/replicas/manager.py", ("opened_leader", "leader"), "tests/broker/replicas/test_short_forms.py"),
    (
        "broker/replicas/partition/partition.py",
        ("append_as_sent", "check", "append"),
        "tests/broker/replicas/test_short_forms.py",
    ),
    ("storage/validation.py", ("passes_as_sent", "check", "stamp"), "tests/storage/test_as_sent.py"),
    ("storage/producers.py", ("continues", "duplicate_of", "check"), "tests/storage/test_as_sent.py"),
    ("storage/room.py storage/log.py", ("Room", "_must_roll"), "tests/storage/test_as_sent.py"),
    (
        "broker/transactions/records.py",
        ("value_bytes", "to_value"),
        "tests/broker/transactions/test_packed_states.py",
    ),
]
MIRRORED: Final = re.compile(r'^\s*@mirrored\("(\w+)"\)$', re.MULTILINE)
COMPARES_TWINS: Final = (
    "test_core_batches.py",
    "test_core_messages.py",
    "test_hashing.py",
    "test_record_walk.py",
)


def docstrings(module: str) -> dict[str, str]:
    """The docstring of each class and function, by its name without the name of its class."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse((ROOT / module).read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = ast.get_docstring(node) or found.get(node.name, "")
    return found


@pytest.mark.parametrize(("modules", "forms", "test"), SHORT_FORMS, ids=lambda each: str(each[0]))
def test_each_form_names_the_others_and_one_test_names_all(modules: str, forms: tuple[str, ...], test: str):
    said = {name: text for module in modules.split() for name, text in docstrings(module).items()}
    silent = [
        (form, other)
        for form in forms
        for other in forms
        if other != form and not re.search(rf"`{other}`", said[form])
    ]
    assert silent == []
    compared = (ROOT / test).read_text("utf-8")
    assert [form for form in forms if not re.search(rf"\b{form}\b", compared)] == []


def test_the_decision_lists_every_short_form():
    decision = next((ROOT / "docs/adr").glob("0023-*.md")).read_text("utf-8")
    assert [short for _, (short, *_), _ in SHORT_FORMS if short not in decision] == []


def test_each_twin_is_compared_with_its_python():
    sources = {path: path.read_text("utf-8") for path in (ROOT / "protocol").glob("*.py")}
    twins = {name for text in sources.values() for name in MIRRORED.findall(text)}
    assert twins
    compared = "".join((ROOT / "tests/protocol" / name).read_text("utf-8") for name in COMPARES_TWINS)
    in_c = "".join(path.read_text("utf-8") for path in (ROOT / "protocol/c").glob("*.c"))
    assert {name for name in twins if not re.search(rf"\b{name}\b", compared)} == set()
    assert {name for name in twins if f'{{"{name}"' not in in_c} == set()
