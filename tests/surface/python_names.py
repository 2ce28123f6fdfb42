"""The names that a user's Python may import from `odradek`, with signatures. The names are read from the sources and not
imported, so no extra has to be installed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = re.compile(r"^\s*(?:from (odradek[\w.]*) import [\w(*]|import (odradek[\w.]*))", re.MULTILINE)
FIXTURES = ("odradek.pytest_plugin", "odradek.spark.testing.fixtures")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FOR_DEVELOPERS = ("docs/changing.md", "docs/style.md")


def texts() -> Iterator[str]:
    """The pages and examples for users."""
    for folder in ("docs", "examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            is_left_out = "adr" in path.parts or path.relative_to(ROOT).as_posix() in FOR_DEVELOPERS
            if path.suffix in (".md", ".py", ".ini", ".toml") and not is_left_out:
                yield path.read_text("utf-8")
    yield (ROOT / "README.md").read_text("utf-8")


def modules() -> list[str]:
    """The modules that a page or an example imports."""
    return sorted({module for text in texts() for pair in IMPORTS.findall(text) for module in pair if module})


def lines() -> Iterator[str]:
    for module in modules():
        for name in names_of(module):
            yield from described(f"{module}.{name}", module, name)
    for module in FIXTURES:
        yield from fixtures(module)


@cache
def tree(module: str) -> ast.Module:
    path = ROOT.joinpath(*module.split("."))
    file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    return ast.parse(file.read_text("utf-8"))


def statements(module: str) -> Iterator[ast.stmt]:
    """The top-level statements of a module, including those that only a type checker sees."""
    for each in tree(module).body:
        if isinstance(each, ast.If):
            yield from each.body
        else:
            yield each


def names_of(module: str) -> list[str]:
    """``__all__`` of a module, or the names that it defines without an underscore."""
    found: list[str] = []
    for each in statements(module):
        if isinstance(each, (*FUNCTIONS, ast.ClassDef)):
            found.append(each.name)
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            if each.targets[0].id == "__all__":
                return list(ast.literal_eval(each.value))
            found.append(each.targets[0].id)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            found.append(each.target.id)
    return [name for name in found if not name.startswith("_")]


def definition(module: str, name: str) -> tuple[str, ast.stmt] | None:
    """The module and statement that define a name, found through its imports. None if another package defines it."""
    for each in statements(module):
        if isinstance(each, (*FUNCTIONS, ast.ClassDef)) and each.name == name:
            return module, each
        if isinstance(each, ast.Assign) and name in (ast.unparse(target) for target in each.targets):
            return module, each
        if isinstance(each, ast.AnnAssign) and ast.unparse(each.target) == name:
            return module, each
        if isinstance(each, ast.ImportFrom) and each.module and each.module.startswith("odradek"):
            for alias in each.names:
                if name == (alias.asname or alias.name):
                    return definition(each.module, alias.name)
    return None


def described(path: str, module: str, name: str) -> Iterator[str]:
    """Yield the lines for ``recorded.txt`` about a name of a module, which a user may import as ``path``."""
    found = definition(module, name)
    assert found is not None, f"{path} is defined nowhere"
    home, node = found
    if isinstance(node, FUNCTIONS):
        yield f"{path}{signature(node)}"
        yield from keywords(path, home, node)
    elif isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base) for base in node.bases]
        yield f"{path} is a {', '.join(bases)}" if bases else path
        yield from members(path, home, node)
    else:
        yield from value(path, node)


def value(path: str, node: ast.stmt) -> Iterator[str]:
    """The line for a constant, or the lines for the values of a ``Literal``."""
    assert isinstance(node, (ast.Assign, ast.AnnAssign))
    if isinstance(node.value, ast.Subscript) and ast.unparse(node.value.value) == "Literal":
        for word in ast.literal_eval(node.value.slice):
            yield f"{path} has {word!r}"
    else:
        yield path


def members(path: str, home: str, node: ast.ClassDef, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """Lines for the public attributes and methods of a class, with those inherited from our classes."""
    said: set[str] = set(seen)
    for each in node.body:
        for name, line in member(path, each):
            if name not in said:
                said.add(name)
                yield line
        if isinstance(each, FUNCTIONS) and (each.name == "__init__" or not each.name.startswith("_")):
            yield from keywords(path, home, each)
    for base in node.bases:
        found = definition(home, ast.unparse(base).partition("[")[0])
        if found is not None and isinstance(found[1], ast.ClassDef):
            yield from members(path, found[0], found[1], frozenset(said))


def member(path: str, node: ast.stmt) -> Iterator[tuple[str, str]]:
    """(name, line) for each name that a statement of a class defines. A constructor also defines the attributes it sets."""
    if isinstance(node, FUNCTIONS):
        yield from method(path, node)
    elif isinstance(node, ast.AnnAssign):
        default = f" = {ast.unparse(node.value)}" if node.value else ""
        name = ast.unparse(node.target)
        if not name.startswith("_"):
            yield name, f"{path}.{name}: {ast.unparse(node.annotation)}{default}"
    elif isinstance(node, ast.Assign):
        names = (name for name in map(ast.unparse, node.targets) if not name.startswith("_"))
        yield from ((name, f"{path}.{name}") for name in names)


def method(path: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
    decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
    if node.name == "__init__":
        yield node.name, f"{path}{signature(node)}"
        yield from ((name, f"{path}.{name}") for name in set_in(node))
    elif node.name.startswith("_") or decorators & {"overload", "setter"}:
        return
    elif decorators & {"property", "cached_property"}:
        yield node.name, f"{path}.{node.name}: {ast.unparse(node.returns) if node.returns else ''}"
    else:
        yield node.name, f"{path}.{node.name}{signature(node)}"


def set_in(function: ast.stmt) -> Iterator[str]:
    """The public attributes that a constructor sets."""
    for each in ast.walk(function):
        targets = (
            each.targets
            if isinstance(each, ast.Assign)
            else [each.target]
            if isinstance(each, ast.AnnAssign)
            else []
        )
        for target in targets:
            if (
                isinstance(target, ast.Attribute)
                and ast.unparse(target.value) == "self"
                and target.attr[0] != "_"
            ):
                yield target.attr


def signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    arguments = ast.unparse(function.args)
    arguments = re.sub(r"^(self|cls)(, /)?(, )?", "", arguments)
    returns = (
        ""
        if function.returns is None or function.name == "__init__"
        else f" -> {ast.unparse(function.returns)}"
    )
    waits = " (async)" if isinstance(function, ast.AsyncFunctionDef) else ""
    return f"({arguments}){returns}{waits}"


def keywords(path: str, home: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Lines for the keywords of ``**words: Unpack[...]``."""
    annotation = function.args.kwarg.annotation if function.args.kwarg else None
    words = re.fullmatch(r"Unpack\[(\w+)\]", ast.unparse(annotation)) if annotation else None
    found = definition(home, words[1]) if words else None
    if found is not None and isinstance(found[1], ast.ClassDef):
        module, node = found[0], found[1]
        name = path if function.name == "__init__" else f"{path}.{function.name}"
        yield from (line.replace(f"{name}.", f"{name}(… ", 1) + ")" for line in members(name, module, node))


def fixtures(module: str) -> Iterator[str]:
    """Lines for the fixtures and settings of the pytest plugin."""
    for function in statements(module):
        if not isinstance(function, FUNCTIONS):
            continue
        decorators = [each for each in map(ast.unparse, function.decorator_list) if "pytest.fixture" in each]
        if decorators and not function.name.startswith("_"):
            returns = ast.unparse(function.returns) if function.returns else ""
            yield f"pytest fixture {function.name} -> {returns}{decorators[0].removeprefix('pytest.fixture')}"
    for call in ast.walk(tree(module)):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("parser.addini", "parser.addoption"):
            found = definition(module, ast.unparse(call.args[0]))
            setting = found[1].value if found and isinstance(found[1], ast.AnnAssign) else None
            yield f"pytest setting {ast.unparse(setting or call.args[0])}"
