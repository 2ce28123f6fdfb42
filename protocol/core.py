"""Which core runs: the compiled one, or the Python that it mirrors.

The functions on the path of every request have a twin in C (``protocol/c``, ADR 22). ``compiled`` is that module, or None
where it was not built and where the variable ``ODRADEK_PURE`` is 1. Only the package with the name ``protocol`` has it: the
module in C keeps one set of classes, and a process may import the package by another name too (ADR 31).
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
"""The Python of each function that has a twin, by the twin's name. The core leaves to it what is out of the ordinary."""

if compiled is not None:
    compiled.set_up_twins(TWINS)


_MISSING: Final = object()


def construct_in_core(
    cls: type[Any], names: tuple[str, ...], defaults: Mapping[str, object], positional: int
) -> None:
    """From now on a call of ``cls`` makes the instance in one step: its constructor must only set the fields ``names``.

    The first ``positional`` of them are also taken by place. Without a compiled core nothing changes.
    """
    if compiled is not None:
        values = tuple([defaults.get(name, _MISSING) for name in names])
        compiled.set_constructor(cls, names, values, positional, _MISSING)


def mirrored(name: str) -> Callable[[F], F]:
    """In place of the function stands its twin of this name, where there is a compiled core."""

    def choose(function: F) -> F:
        TWINS[name] = function
        twin: F = function if compiled is None else getattr(compiled, name)
        return twin

    return choose
