"""Finds the compiled form of a module, if there is one that is up to date.

A module with a ``.pxd`` file beside it (``storage/log.pxd`` beside ``storage/log.py``) is compiled by Cython from the same
Python source (ADR 25), unless the ``.pxd`` file only describes the layout of the module's classes to other modules
(`build_backend.hot_modules`). The result is in the folder ``modules`` of this package, under the module's full name
(``storage__log``), so that the source can still be imported: with ``ODRADEK_PURE=1``, without a compiler, and in a checkout
where the source is newer.
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
"""Name of a file that the build writes beside the compiled files: a list of modules that are not compiled, but whose
class layouts are compiled into other modules."""


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
    """Compiled file by module. Empty if any source is newer, because modules depend on each other's class layouts."""
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
    """Modification time of a module's ``.py`` or ``.pxd`` file in nanoseconds; ``absent_ns`` if it is missing."""
    try:
        return os.stat(os.path.join(packages, *name.split(".")) + suffix).st_mtime_ns
    except OSError:
        return absent_ns


FINDER: Final = CompiledModules({})


def use_compiled() -> None:
    """Import compiled modules from now on, if there are any. Only the first call has an effect."""
    if FINDER in sys.meta_path:
        return
    if os.environ.get("ODRADEK_PURE") != "1":
        FINDER.files = compiled_files()
    sys.meta_path.insert(0, FINDER)


def described() -> str:
    """What is compiled in this process: nothing (``pure Python``), the core, or the core and the `CompiledModules`."""
    return f"{CORE} and modules" if FINDER.files else CORE


def use_python() -> None:
    """Import Python sources instead of compiled modules in this process, so that a test can replace methods."""
    FINDER.files = {}
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
