"""The messages of every API: one module for each API, in which each class has the fields of all versions.

The modules of this package are generated (``python -m protocol.generators.messages``) and checked in. Each field is
declared once, with its type for readers and the type checker, and with its versions and wire type for the codecs.

To a type checker the classes are dataclasses with keyword-only fields. ``@dataclass`` would generate and compile all
methods at each import, and a broker imports a hundred of these classes at every start. Here a constructor is compiled
after a few calls (``protocol.slotted``), or not at all if the compiled core creates the instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar, dataclass_transform

from ..slotted import Spec, constructor, refuse_assignment, refuse_deletion

T = TypeVar("T")

Chunk = bytes | bytearray | memoryview

# The value of a ``records`` field of a response: one buffer, or several that are sent one after another. Buffers are
# not copied on their way to the socket.
Records = Chunk | Sequence[Chunk] | None

# The declaration of a field in ``__fields__``: its name; its kind (a wire kind or the name of a class in the same
# module), with "[]" in front if it is an array; the first and the last version that have the field; the first version
# in which it may be null; its tag; its default.
Declared = tuple[str, str, int, int, int | None, int | None, Any]


def field(
    kind: str, first: int, last: int, *, nullable_since: int | None = None, tag: int | None = None, default: T
) -> T:
    """Declare a field of a message (see ``Declared``). In a version without the field it has the default."""
    declaration: Any = (kind, first, last, nullable_since, tag, default)
    return declaration  # type: ignore[no-any-return]


class _AnyMessage:
    """The base class of all message classes."""

    __slots__ = ()

    __fields__: ClassVar[tuple[Declared, ...]] = ()
    # The class with all fields, also for the classes of one version that are derived from it.
    __union__: ClassVar[type[Message]]

    def __init__(self, *values: Any, **named: Any) -> None:
        """Constructor for the first call only: replace it by the constructor of this class, and call that one."""
        union: Any = self.__union__
        union.__init__ = constructor(_specs_of, "__setattr__" in vars(union))
        union.__init__(self, *values, **named)

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal, even if the messages are of different versions. A list equals a tuple."""
        if not isinstance(other, _AnyMessage) or self.__union__ is not other.__union__:
            return NotImplemented
        return all(_same(getattr(self, field[0]), getattr(other, field[0])) for field in self.__fields__)

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = (f"{field[0]}={getattr(self, field[0])!r}" for field in self.__fields__)
        return f"{type(self).__name__}({', '.join(values)})"


class _MakesMessages(type):
    """Metaclass that builds a message class from the declarations in the class's body.

    The new class is an instance of ``type``, not of this metaclass: in Python 3.11 only such classes support
    vectorcall, with which the compiled core creates an instance in one step.
    """

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], frozen: bool = False
    ) -> type:
        if bases == (_AnyMessage,):
            return super().__new__(cls, name, bases, namespace)
        # The body contains the declarations and what Python adds itself: __module__, __qualname__, and annotations,
        # which only readers and type checkers need.
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
    """Base class of messages and of the structs inside messages. A class has the fields of all versions.

    A class is ``frozen`` if an instance of the class is the default of a field: the shared default must not change.
    """

    __slots__ = ()


def _specs_of(cls: type[Any]) -> list[Spec]:
    return [Spec(name, default, kw_only=True) for name, *_, default in cls.__fields__]


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
