"""The directory of the server: packages that only the broker's own process imports.

A wheel contains the server's packages in this directory, so `odradek` is the only name that it adds to site-packages. In a
checkout they are next to `odradek`. No other process has this directory on its path (ADR 14).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from importlib.util import module_from_spec
from typing import Final, Literal

FOLDER: Final = os.path.dirname(os.path.abspath(__file__))
SITE_OPTION: Final = "--site="
STDIN_OPTION: Final = "--ends-with-stdin="
# Some of the packages that the server imports. They may be installed in any directory on this process's path.
_IMPORTED: Final = ("kio", "structlog", "click", "aiohttp")

Program = Literal["serve", "proxy", "export", "import", "tool"]


def command(program: Program, *arguments: str, options: Iterable[str] = ()) -> list[str]:
    """The command line that starts a program of the server, independent of the user's packages.

    The interpreter is isolated (`-I`): it ignores PYTHONPATH, the user's site-packages and the working directory. It does
    not search for site-packages either (`-S`), which can take as long as the rest of the interpreter's start: `site_folders`
    are passed to it. The command executes this directory, so the server always belongs to this `odradek`.
    """
    sites = (SITE_OPTION + folder for folder in site_folders())
    return [sys.executable, "-I", "-S", FOLDER, *sites, *options, program, *arguments]


def ends_with_stdin(folder: str = "") -> str:
    """The option that makes the server die when its standard input ends, and delete the directory ``folder``, if given.

    Standard input is a pipe from the parent process, so it ends when the parent ends, for whatever reason.
    """
    return STDIN_OPTION + folder


def site_folders() -> list[str]:
    """The directories in which this process finds the server's dependencies, in the order of ``sys.path``."""
    folders = dict.fromkeys(os.path.abspath(folder) for folder in sys.path)
    return [folder for folder in folders if _has_dependencies(folder)]


def core() -> str:
    """Which code the server runs: "compiled core and modules", "compiled core" or "pure Python" (`compiled/finder.py`).

    Finds out by loading the compiled core as the server would. If the sources of a checkout have changed since the
    build, the server runs the sources instead: only the server's log event ``started`` then shows what really runs.
    """
    for folder in (FOLDER, os.path.dirname(os.path.dirname(FOLDER))):
        finder = FileFinder(os.path.join(folder, "protocol"), (ExtensionFileLoader, EXTENSION_SUFFIXES))
        spec = finder.find_spec("protocol.compiled")
        if spec is not None:
            try:
                module_from_spec(spec)
            except ImportError:
                break
            return "compiled core and modules" if _has_modules(folder) else "compiled core"
    return "pure Python"


def _has_modules(folder: str) -> bool:
    """Whether the directory has compiled modules for this interpreter."""
    try:
        names = os.listdir(os.path.join(folder, "compiled", "modules"))
    except OSError:
        return False
    return any(name.endswith(EXTENSION_SUFFIXES[0]) for name in names)


def _has_dependencies(folder: str) -> bool:
    return any(os.path.isdir(os.path.join(folder, name)) for name in _IMPORTED)
