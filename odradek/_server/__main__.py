"""``python -I odradek/_server [--site=FOLDER ...] PROGRAM ...``: the broker, or a program for a stopped one's directories.

``--site`` names a folder in which the parent process has found dependencies (`odradek._server.site_folders`).
"""

from __future__ import annotations

import os
import runpy
import site
import sys
from typing import Final

PROGRAMS: Final = {
    "serve": "broker",
    "export": "broker.exchange.export",
    "import": "broker.exchange.importing",
}


def packages() -> str:
    """The folder of `broker`, `protocol` and `storage`: this one in a wheel, the one beside `odradek` in a checkout."""
    here = os.path.dirname(os.path.abspath(__file__))
    return here if os.path.isdir(os.path.join(here, "broker")) else os.path.dirname(os.path.dirname(here))


def take_sites(arguments: list[str]) -> None:
    """Add the folders of ``--site`` behind all others, with their .pth files, and take the options away."""
    while arguments[1].startswith("--site="):
        site.addsitedir(arguments.pop(1).removeprefix("--site="))


if __name__ == "__main__":
    take_sites(sys.argv)
    # In front of site-packages, where a user may have packages of the same names.
    sys.path.insert(0, packages())
    runpy.run_module(PROGRAMS[sys.argv.pop(1)], run_name="__main__", alter_sys=True)
