"""Imports the modules of `odradek serve` in the fork server of `tests.support.forked`."""

from __future__ import annotations

import sys
from importlib import import_module

from odradek._server.__main__ import LastResort, packages

sys.path.insert(0, packages())
sys.meta_path.append(LastResort)
for name in (
    "server.__main__",
    "server.options",
    "uvloop",
    "broker.cluster",
    "broker.cluster.announcing",
    "lab.control.opening",
):
    import_module(name)
