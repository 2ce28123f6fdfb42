"""Tests of the import finder for compiled modules, and of the .pxd files, which must match their Python classes."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from compiled import finder
from compiled.finder import SUFFIX, compiled_files
from tests.support.deadlines import HANG_S
from tests.support.wheels import is_of_python, types_of

ROOT = Path(finder.PACKAGES)
OF_PYTHON = [path for path in types_of(ROOT) if is_of_python(path)]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def file_of(folder: Path, module: str) -> Path:
    return folder / "built" / (module.replace(".", "__") + SUFFIX)


def make(folder: Path, *names: str) -> dict[str, str]:
    (folder / "built").mkdir()
    (folder / "built" / finder.LAYOUTS).write_text("broker.node.node\n")
    for name in names:
        source = folder.joinpath(*name.split("."))
        source.parent.mkdir(exist_ok=True)
        for suffix in (".py", ".pxd"):
            source.with_suffix(suffix).touch()
        file_of(folder, name).touch()
    return compiled_files(str(folder / "built"), str(folder))


def functions_of(module: str, tree: ast.AST, within: str) -> set[str]:
    """The functions, methods and classes of a module, including nested ones, under the names that they have in C."""
    found = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}_{node.name}"
            found |= {name, *functions_of(module, node, name)}
        else:
            found |= functions_of(module, node, within)
    return found


def test_the_functions_listed_as_hot_exist() -> None:
    there: set[str] = set()
    for path in set(types_of(ROOT)) - set(OF_PYTHON):
        name = name_of(path).replace(".", "_")
        there |= functions_of(name, ast.parse(path.with_suffix(".py").read_text("utf-8")), name)
    hot = (ROOT / "compiled/hot_functions.txt").read_text("utf-8")
    # Cython generates the accessors of public attributes.
    listed = set(re.findall(r"^(?:pw|pf|f)_(?!.*___[gs]et__$)(.*)$", hot, re.MULTILINE))
    assert len(listed) > 100
    assert listed - there == set()


def test_a_wheel_runs_the_modules_that_were_built_with_it(tmp_path: Path) -> None:
    files = make(tmp_path, "storage.log", "storage.files")
    assert files == {name: str(file_of(tmp_path, name)) for name in ("storage.log", "storage.files")}
    os.utime(tmp_path / "storage" / "log.py", (2**31, 2**31))
    assert compiled_files(str(tmp_path / "built"), str(tmp_path)) == files


@pytest.mark.parametrize("changed", ["log.py", "log.pxd"])
def test_in_a_checkout_a_changed_source_runs_instead_of_its_module(tmp_path: Path, changed: str) -> None:
    (tmp_path / "setup.py").touch()
    files = make(tmp_path, "storage.log", "storage.files")
    assert len(files) == 2
    os.utime(tmp_path / "storage" / changed, (2**31, 2**31))
    assert compiled_files(str(tmp_path / "built"), str(tmp_path)) == {}


def test_a_changed_class_layout_disables_all_modules_that_depend_on_it(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    assert make(tmp_path, "storage.log")
    layout = tmp_path / "broker" / "node" / "node.pxd"
    layout.parent.mkdir(parents=True)
    layout.touch()
    os.utime(layout, (2**31, 2**31))
    assert compiled_files(str(tmp_path / "built"), str(tmp_path)) == {}


def test_the_build_lists_typed_modules_that_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    assert sorted(map(name_of, OF_PYTHON)) == sorted(import_module("build_backend").layouts().split())


def test_without_a_directory_there_are_no_compiled_modules(tmp_path: Path) -> None:
    assert compiled_files(str(tmp_path / "built"), str(tmp_path)) == {}


def test_a_missing_pxd_file_disables_the_compiled_modules(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    make(tmp_path, "storage.log", "storage.files")
    (tmp_path / "storage" / "log.pxd").unlink()
    assert compiled_files(str(tmp_path / "built"), str(tmp_path)) == {}


@pytest.mark.parametrize("path", OF_PYTHON, ids=name_of)
def test_slots_are_in_the_order_of_the_pxd_struct(path: Path) -> None:
    """The struct in the .pxd file has CPython's order of slots: those of the base class first, the others sorted by name."""
    for struct, fields in re.findall(
        r"typedef struct \{ PyObject_HEAD (.*?) \} Slots_(\w+);", path.read_text("utf-8")
    ):
        named = getattr(import_module(name_of(path)), fields)
        slots = [name for base in reversed(named.__mro__) for name in sorted(vars(base).get("__slots__", ()))]
        assert re.findall(r"\w+ \*(\w+);", struct) == slots


@pytest.mark.parametrize("path", OF_PYTHON, ids=name_of)
def test_fields_of_a_tuple_are_in_the_order_of_the_pxd_class(path: Path) -> None:
    classes = re.findall(
        r"ctypedef class [\w.]+\.(\w+) \[object PyTupleObject, check_size ignore\]:\n((?: {8}.*\n)+)",
        path.read_text("utf-8"),
    )
    for named, body in classes:
        fields = getattr(import_module(name_of(path)), named)._fields
        assert body.splitlines() == [
            f'        cdef object {field} "ob_item[{index}]"' for index, field in enumerate(fields)
        ]


@pytest.mark.parametrize("pure", ["0", "1"])
def test_a_variable_selects_pure_python_for_a_process(pure: str) -> None:
    program = "import storage.log, broker.net.connection as c; print(storage.log.__file__, c.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ODRADEK_PURE": pure},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    expected = SUFFIX if pure == "0" and compiled_files() else ".py"
    assert all(file.endswith(expected) for file in ran.stdout.split())
