"""Warnings that show the line of the user's program."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from odradek.asynchronous import CURRENT_CALL
from odradek.errors import HIDDEN_IN_TRACEBACKS

__tracebackhide__ = HIDDEN_IN_TRACEBACKS

_PACKAGE = __name__.partition(".")[0]


def warn(text: str, category: type[Warning]) -> None:
    """Issue a warning that shows the innermost line outside this package; for a coroutine, the line that awaits the call."""
    frame = _outside(sys._getframe(1))
    pending_call = CURRENT_CALL.get()
    if pending_call is not None:
        frame = _outside(pending_call.caller)
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
