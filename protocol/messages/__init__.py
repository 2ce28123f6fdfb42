"""The messages of every API, one module each, one class family for all versions.

The modules beside this one are generated (``python -m protocol.generators.messages``) and checked in. They say each
field once: its type for the reader and the type checker, and its declaration for the codecs.

To a type checker the classes are dataclasses with keyword-only fields. ``@dataclass`` would write and compile each of
their methods at each import, and a broker imports a hundred of them at every start: a constructor is compiled after its
first calls (``protocol.slotted``), or not at all where the compiled core makes the instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar, dataclass_transform

from ..slotted import Spec, constructor, refuse_assignment, refuse_deletion

T = TypeVar("T")

Chunk = bytes | bytearray | memoryview

# What a ``records`` field of a response may hold: one buffer, or several that follow one another on the
# wire. Neither is copied on its way to the socket.
Records = Chunk | Sequence[Chunk] | None

# A field as it stands in ``__fields__``: its name; its kind, a wire kind or the name of a class beside it, with
# "[]" in front if it is an array; the first and the last version that have it; the first in which it may be
# null; its tag; its default.
Declared = tuple[str, str, int, int, int | None, int | None, Any]


def field(
    kind: str, first: int, last: int, *, nullable_since: int | None = None, tag: int | None = None, default: T
) -> T:
    """Declare a field of a message (``Declared`` has what the values are). A version without it shows the default."""
    declaration: Any = (kind, first, last, nullable_since, tag, default)
    return declaration  # type: ignore[no-any-return]


class _AnyMessage:
    """The base class of all message classes."""

    __slots__ = ()

    __fields__: ClassVar[tuple[Declared, ...]] = ()
    # The class with all fields, also for the classes of one version that are derived from it.
    __union__: ClassVar[type[Message]]

    def __init__(self, *values: Any, **named: Any) -> None:
        """Give the class a constructor of its own, at its first call."""
        union: Any = self.__union__
        union.__init__ = constructor(_specs_of, "__setattr__" in vars(union))
        union.__init__(self, *values, **named)

    def __eq__(self, other: object) -> bool:
        """Equal in all fields, of whatever version either was read. A list equals a tuple of the same."""
        if not isinstance(other, _AnyMessage) or self.__union__ is not other.__union__:
            return NotImplemented
        return all(_same(getattr(self, field[0]), getattr(other, field[0])) for field in self.__fields__)

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = (f"{field[0]}={getattr(self, field[0])!r}" for field in self.__fields__)
        return f"{type(self).__name__}({', '.join(values)})"


class _MakesMessages(type):
    """Build a message class from the declarations in its body.

    The class that is made is an instance of ``type``, not of this one: calls of other classes take no vectorcall in
    Python 3.11, which is how the compiled core makes an instance in one step.
    """

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], frozen: bool = False
    ) -> type:
        if bases == (_AnyMessage,):
            return super().__new__(cls, name, bases, namespace)
        # A body has declarations and what Python writes there itself: __module__, __qualname__, and annotations,
        # which are for readers and type checkers alone.
        declared = [(key, value) for key, value in namespace.items() if key[0] != "_"]
        namespace = {
            "__module__": namespace["__module__"],
            "__qualname__": name,
            "__slots__": tuple([key for key, _ in declared]),
            "__fields__": tuple([(key, *value) for key, value in declared]),
        }
        if frozen:
            namespace |= {"__setattr__": refuse_assignment, "__delattr__": refuse_deletion}
        made: Any = type.__new__(type, name, (_AnyMessage,), namespace)
        made.__union__ = made
        return made  # type: ignore[no-any-return]

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: bool) -> None:
        super().__init__(name, bases, namespace)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _AnyMessage)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Message(_AnyMessage, metaclass=_MakesMessages):
    """A message, or a struct within one, over all versions.

    A class is ``frozen`` if one instance of it is the default of a field, and therefore must not change.
    """

    __slots__ = ()


def _specs_of(cls: type[Any]) -> list[Spec]:
    return [Spec(name, default, kw_only=True) for name, *_, default in cls.__fields__]


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
