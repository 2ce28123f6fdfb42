"""Modules that are compiled: which of them run, and where they lie.

A module with a file of types beside it (``storage/log.pxd`` beside ``storage/log.py``) is compiled as it is, by Cython
(ADR 25), unless that file only describes the layout of its classes to others (`build_backend.hot_modules`). What comes of it
lies in the folder ``modules`` of this package, under the module's full name (``storage__log``), so that the source stays
importable: with ``ODRADEK_PURE=1``, without a compiler, and in a checkout where the source is newer.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from typing import TYPE_CHECKING, Final

from protocol.core import CORE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

PACKAGES: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER: Final = os.path.join(PACKAGES, "compiled", "modules")
SUFFIX: Final = EXTENSION_SUFFIXES[0]

LAYOUTS: Final = "layouts.txt"
"""In a checkout the build writes it beside what it has compiled: the modules that are not compiled, and of whose classes
compiled modules know the layout."""


class CompiledModules:
    """Finds compiled modules before Python finds their sources (`importlib.abc.MetaPathFinder`)."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.files.get(name)
        if file is None:
            return None
        spec = ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)
        spec.has_location = True
        return spec


def compiled_files(folder: str = FOLDER, packages: str = PACKAGES) -> dict[str, str]:
    """File by module; none if a source has changed since, because modules know the layout of each other's classes."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    except OSError:
        return {}
    files = {name.removesuffix(SUFFIX).replace("__", "."): os.path.join(folder, name) for name in names}
    is_checkout = os.path.exists(os.path.join(packages, "setup.py"))
    if not (files and is_checkout):
        return files
    made_ns = {name: os.stat(file).st_mtime_ns for name, file in files.items()}
    oldest_ns = min(made_ns.values())
    for name, since_ns in made_ns.items():
        if max(_changed_ns(packages, name, ".py"), _changed_ns(packages, name, ".pxd")) > since_ns:
            return {}
    if any(_changed_ns(packages, name, ".pxd", absent_ns=0) > oldest_ns for name in _layouts(folder)):
        return {}
    return files


def _layouts(folder: str) -> list[str]:
    with open(os.path.join(folder, LAYOUTS), encoding="utf-8") as file:
        return file.read().split()


def _changed_ns(packages: str, name: str, suffix: str, absent_ns: int = sys.maxsize) -> int:
    """When the source of a module was written last."""
    try:
        return os.stat(os.path.join(packages, *name.split(".")) + suffix).st_mtime_ns
    except OSError:
        return absent_ns


FINDER: Final = CompiledModules({})


def use_compiled() -> None:
    """From now on compiled modules are imported, where there are any; it has been decided before the second call."""
    if FINDER in sys.meta_path:
        return
    if os.environ.get("ODRADEK_PURE") != "1":
        FINDER.files = compiled_files()
    sys.meta_path.insert(0, FINDER)


def described() -> str:
    """What of this process is compiled: nothing (``pure Python``), the core, or the core and the hot modules."""
    return f"{CORE} and modules" if FINDER.files else CORE


def use_python() -> None:
    """Import sources in this process: a test can put a function of its own in place of a method."""
    FINDER.files = {}
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
