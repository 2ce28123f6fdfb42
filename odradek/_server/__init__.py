"""The folder of the server: what only the broker's own process imports.

A wheel carries the packages of the server in here, so that `odradek` is the only name it adds to site-packages; in a
checkout they lie beside `odradek`. No other process has this folder on its path (ADR 14).
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
# Some of what the server imports. An installer may have put them into any folder that this process looks into.
_IMPORTED: Final = ("kio", "structlog", "click", "aiohttp")

Program = Literal["serve", "proxy", "export", "import", "tool"]


def command(program: Program, *arguments: str, options: Iterable[str] = ()) -> list[str]:
    """The command line that starts a program of the server, whichever packages the user has.

    The interpreter is isolated (`-I`): it ignores PYTHONPATH, the user's site-packages and the working directory. Nor does
    it look for site-packages itself (`-S`), which can take as long as the rest of the interpreter's start: `site_folders`
    are handed to it. It runs the folder, so the server is always the one that belongs to this `odradek`.
    """
    sites = (SITE_OPTION + folder for folder in site_folders())
    return [sys.executable, "-I", "-S", FOLDER, *sites, *options, program, *arguments]


def ends_with_stdin(folder: str = "") -> str:
    """The option by which the server dies when its standard input ends, and takes a temporary folder with it.

    The parent holds the other end of that pipe: it ends with the parent, however the parent ends.
    """
    return STDIN_OPTION + folder


def site_folders() -> list[str]:
    """The folders in which this process finds dependencies of the server, in their order."""
    folders = dict.fromkeys(os.path.abspath(folder) for folder in sys.path)
    return [folder for folder in folders if _has_dependencies(folder)]


def core() -> str:
    """What the server runs (`compiled/finder.py`): the compiled core is loaded here as it would be there.

    In a checkout whose sources have changed since the build the server runs these; its line ``started`` tells.
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
    """Compiled ones, for this interpreter."""
    try:
        names = os.listdir(os.path.join(folder, "compiled", "modules"))
    except OSError:
        return False
    return any(name.endswith(EXTENSION_SUFFIXES[0]) for name in names)


def _has_dependencies(folder: str) -> bool:
    return any(os.path.isdir(os.path.join(folder, name)) for name in _IMPORTED)
