"""Warnings that name the line of the user's program."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from odradek.asynchronous import UNDER_WAY
from odradek.errors import HIDDEN_IN_TRACEBACKS

__tracebackhide__ = HIDDEN_IN_TRACEBACKS

_PACKAGE = __name__.partition(".")[0]


def warn(text: str, category: type[Warning]) -> None:
    """Warn of the line outside this package that has made the call; for a coroutine, of the line that awaits it."""
    frame = _outside(sys._getframe(1))
    under_way = UNDER_WAY.get()
    if under_way is not None:
        frame = _outside(under_way.caller)
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
        return
    module = frame.f_globals.get("__name__")
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


def _outside(frame: FrameType | None) -> FrameType | None:
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    return frame
