"""Kafka's wire format: the package `protocol`, under a name that no package of a user has.

    from odradek._protocol.codec import client_codec

The submodules are the files of `protocol`, which are in `odradek/_server` in a wheel and next to `odradek` in a checkout.
The server imports them as `protocol`. Under this name they are separate modules, without the compiled C core (ADR 31).
"""

from __future__ import annotations

import os
from importlib.machinery import PathFinder
from typing import Final

_ODRADEK: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_IN_A_WHEEL: Final = os.path.join(_ODRADEK, "_server", "protocol")
_IN_A_CHECKOUT: Final = os.path.join(os.path.dirname(_ODRADEK), "protocol")

# Ask the import system instead of looking at the directory: a Spark executor may have its packages in a zip file.
__path__ = [_IN_A_WHEEL if PathFinder.find_spec(f"{__name__}.codec", [_IN_A_WHEEL]) else _IN_A_CHECKOUT]
