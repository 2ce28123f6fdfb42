"""Which core runs: the compiled one, or the Python that it mirrors.

The functions on the path of every request have a twin in C (``protocol/c``, ADR 22). ``compiled`` is that module, or None
where it was not built and where the variable ``ODRADEK_PURE`` is 1.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

compiled: ModuleType | None
try:
    from protocol import compiled
except ImportError:
    compiled = None

CORE: Final = "pure Python" if compiled is None else "compiled core"

TWINS: Final[dict[str, Callable[..., Any]]] = {}
"""The Python of each function that has a twin, by the twin's name. The core leaves to it what is out of the ordinary."""

if compiled is not None:
    compiled.set_up_twins(TWINS)


def mirrored(name: str) -> Callable[[F], F]:
    """In place of the function stands its twin of this name, where there is a compiled core."""

    def choose(function: F) -> F:
        TWINS[name] = function
        twin: F = function if compiled is None else getattr(compiled, name)
        return twin

    return choose
