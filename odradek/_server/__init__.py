"""The folder of the server: what only the broker's own process imports.

A wheel carries `broker`, `protocol` and `storage` in here, so that `odradek` is the only name it adds to site-packages; in a
checkout they lie beside `odradek`. No other process has this folder on its path (ADR 14).
"""

from __future__ import annotations

import os
import sys
from typing import Final, Literal

FOLDER: Final = os.path.dirname(os.path.abspath(__file__))

Program = Literal["serve", "export", "import"]


def command(program: Program, *arguments: str) -> list[str]:
    """The command line that starts a program of the server, whichever packages the user has.

    The interpreter is isolated (`-I`): it ignores PYTHONPATH and the working directory. It runs the folder, so the server is
    always the one that belongs to this `odradek`.
    """
    return [sys.executable, "-I", FOLDER, program, *arguments]
