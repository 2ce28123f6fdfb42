"""``python -I odradek/_server PROGRAM ...``: the broker, or a program for the directories of a stopped one."""

from __future__ import annotations

import os
import runpy
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


if __name__ == "__main__":
    # In front of site-packages, where a user may have packages of the same names.
    sys.path.insert(0, packages())
    runpy.run_module(PROGRAMS[sys.argv.pop(1)], run_name="__main__", alter_sys=True)
