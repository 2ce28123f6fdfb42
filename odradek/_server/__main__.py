"""``python -I odradek/_server [OPTION ...] PROGRAM ...``: the broker, the proxy, or a program for files of a broker.

- ``--site=FOLDER``: a folder in which the parent process has found dependencies (`odradek._server.site_folders`).
- ``--ends-with-stdin=[FOLDER]``: the process dies when its standard input ends, and a temporary folder with it
  (`odradek._server.ends_with_stdin`).
"""

from __future__ import annotations

import os
import runpy
import site
import sys
import threading
from typing import Final

PROGRAMS: Final = {
    "serve": "broker",
    "proxy": "broker.proxy",
    "export": "broker.exchange.export",
    "import": "broker.exchange.importing",
    "tool": "tools",
}


def packages() -> str:
    """The folder of the server's packages: this one in a wheel, the one beside `odradek` in a checkout."""
    here = os.path.dirname(os.path.abspath(__file__))
    return here if os.path.isdir(os.path.join(here, "broker")) else os.path.dirname(os.path.dirname(here))


def take_options(arguments: list[str]) -> None:
    """Obey the options in front of the program, and take them away."""
    while arguments[1].startswith("--"):
        name, _, folder = arguments.pop(1).partition("=")
        if name == "--site":
            site.addsitedir(folder)  # behind all others, with its .pth files
        else:
            threading.Thread(target=die_with_stdin, args=(folder,), name="parent", daemon=True).start()


def die_with_stdin(folder: str) -> None:
    """Wait for the end of standard input; then this process dies at once, as by kill -9.

    It becomes the program that removes the folder: that ends all threads, so none of them writes there any more.
    """
    while os.read(0, 1024):
        pass
    if not folder:
        os._exit(1)
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", _REMOVE, folder])


_REMOVE: Final = "import shutil, sys; shutil.rmtree(sys.argv[1], ignore_errors=True)"


if __name__ == "__main__":
    take_options(sys.argv)
    # In front of site-packages, where a user may have packages of the same names.
    sys.path.insert(0, packages())
    if sys.argv[1] == "tool":
        # The commands print and ask for the control port as `odradek` does: it is found wherever this folder lies.
        sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    runpy.run_module(PROGRAMS[sys.argv.pop(1)], run_name="__main__", alter_sys=True)
