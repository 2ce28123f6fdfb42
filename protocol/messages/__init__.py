"""The messages of every API, one module each, one class family for all versions.

The modules beside this one are generated (``python -m protocol.generators.messages``) and checked in.

Their classes behave like dataclasses with keyword-only fields, but are written out: a broker imports a
hundred of them at every start, and ``@dataclass`` would write and compile each of their methods there again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from typing import Any, ClassVar, Final

Chunk = bytes | bytearray | memoryview

# What a ``records`` field of a response may hold: one buffer, or several that follow one another on the
# wire. Neither is copied on its way to the socket.
Records = Chunk | Sequence[Chunk] | None

# A field as it stands in ``__fields__``: its name; its kind, a wire kind or the name of a class beside it, with
# "[]" in front if it is an array; the first and the last version that have it; the first in which it may be
# null; its tag. A plain tuple, because constants cost nothing at import.
Declared = tuple[str, str, int, int, int | None, int | None]

set_field: Final = object.__setattr__


class Message:
    """A message, or a struct within one, over all versions."""

    __slots__ = ()

    __fields__: ClassVar[tuple[Declared, ...]] = ()
    # The class with all fields, also for the classes of one version that are derived from it.
    __union__: ClassVar[type[Message]]

    def __init_subclass__(cls) -> None:
        if "__fields__" in cls.__dict__:
            cls.__union__ = cls

    def __eq__(self, other: object) -> bool:
        """Equal in all fields, of whatever version either was read. A list equals a tuple of the same."""
        if not isinstance(other, Message) or self.__union__ is not other.__union__:
            return NotImplemented
        return all(_same(getattr(self, field[0]), getattr(other, field[0])) for field in self.__fields__)

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = (f"{field[0]}={getattr(self, field[0])!r}" for field in self.__fields__)
        return f"{type(self).__name__}({', '.join(values)})"


class FrozenMessage(Message):
    """A struct of which one instance is the default of a field, and therefore must not change."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
