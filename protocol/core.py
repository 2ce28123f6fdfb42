"""Selects the implementation of the functions that every request needs: compiled (C), or the equivalent Python.

These functions have a twin in C (``protocol/c``, ADR 22). ``compiled`` is the C module, or None if it was not built, or if
the environment variable ``ODRADEK_PURE`` is 1. Only the package named ``protocol`` uses the C module, which has one set of
classes: a process may import a second copy of this package under another name (ADR 31), which uses only Python.
"""

import contextlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

compiled: ModuleType | None = None
if __name__ == "protocol.core":
    with contextlib.suppress(ImportError):
        from . import compiled

CORE: Final = "pure Python" if compiled is None else "compiled core"

TWINS: Final[dict[str, Callable[..., Any]]] = {}
"""The Python functions that have a twin (an equivalent function in C), by the twin's name. The C core calls the Python
function for unusual cases."""

if compiled is not None:
    compiled.set_up_twins(TWINS)


_MISSING: Final = object()


def construct_in_core(
    cls: type[Any], names: tuple[str, ...], defaults: Mapping[str, object], positional: int
) -> None:
    """Make calls of ``cls`` create the instance in C, in one step. Does nothing if the C module was not built.

    The constructor of ``cls`` must do no more than set the fields ``names``, of which the first ``positional`` may also be
    positional arguments.
    """
    if compiled is not None:
        values = tuple([defaults.get(name, _MISSING) for name in names])
        compiled.set_constructor(cls, names, values, positional, _MISSING)


def mirrored(name: str) -> Callable[[F], F]:
    """Decorator: replace the function by the C function ``name``, if the C module was built."""

    def choose(function: F) -> F:
        TWINS[name] = function
        twin: F = function if compiled is None else getattr(compiled, name)
        return twin

    return choose
