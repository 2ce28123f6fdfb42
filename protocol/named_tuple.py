"""``NamedTuple``: like ``typing.NamedTuple``, but the class's methods are compiled at first use, not at import.

``typing.NamedTuple`` compiles a constructor for each class, and parses each annotation, at each import. A broker has about a
hundred of these classes. For type checkers this is ``typing.NamedTuple``.

With the compiled core a field is read like a slot, which is fast in the interpreter, and a call of the class creates the
tuple in one step. The Python constructor here then handles only invalid calls. Reading a field does not check the tuple's
length. So an instance must always have a value for each field: create it by the class, by ``_make``, or by ``tuple.__new__``
with all values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .core import compiled, construct_in_core

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _MakesTuples(type):
        """Metaclass of ``NamedTuple``. A direct subclass of ``NamedTuple`` becomes a subclass of ``tuple``, and does not
        have this metaclass.
        """

        def __new__(
            cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], root: bool = False
        ) -> type:
            if root:
                return super().__new__(cls, name, bases, namespace)
            bases = tuple(tuple if isinstance(base, _MakesTuples) else base for base in bases)
            made = type.__new__(type, name, bases, _with_fields(name, namespace))
            if compiled is not None:
                compiled.set_fields(made, made._fields)
                construct_in_core(made, made._fields, made._field_defaults, len(made._fields))
            return made

        def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: bool) -> None:
            super().__init__(name, bases, namespace)

    class NamedTuple(metaclass=_MakesTuples, root=True):
        """The base class of named tuples. Its subclasses do not inherit from it, but from ``tuple``."""


try:
    # The field descriptors of `collections.namedtuple`.
    from _collections import _tuplegetter as _field  # type: ignore[import-not-found]
except ImportError:
    from operator import itemgetter

    def _field(index: int, doc: str) -> property:
        return property(itemgetter(index), doc=doc)


CALLS_NOT_COMPILED: Final = 10
"""The constructor of a class is compiled after this number of calls: a start creates one or two tuples of most classes."""


def _with_fields(class_name: str, namespace: dict[str, Any]) -> dict[str, Any]:
    names = tuple(_annotations(namespace))
    defaults = {name: namespace.pop(name) for name in names if name in namespace}
    if compiled is None:
        namespace.update((name, _field(index, "")) for index, name in enumerate(names))
    namespace["__doc__"] = namespace.get("__doc__") or f"{class_name}({', '.join(names)})"
    namespace["__slots__"] = ()
    namespace["__match_args__"] = namespace["_fields"] = names
    namespace["_field_defaults"] = defaults
    namespace["__new__"] = _constructor_at_first_use(names, defaults)
    for name, method in _METHODS.items():
        namespace.setdefault(name, method)
    return namespace


def _annotations(namespace: dict[str, Any]) -> Iterable[str]:
    if "__annotations__" not in namespace and "__annotate_func__" in namespace:  # Python 3.14
        annotationlib: Any = import_module("annotationlib")
        evaluate = annotationlib.get_annotate_from_class_namespace(namespace)
        return tuple(annotationlib.call_annotate_function(evaluate, annotationlib.Format.FORWARDREF))
    found: dict[str, Any] = namespace.get("__annotations__", {})
    return found


def _constructor_at_first_use(names: tuple[str, ...], defaults: dict[str, Any]) -> Callable[..., Any]:
    left = CALLS_NOT_COMPILED

    def first(cls: type[Any], *values: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0 and not named.keys() - names[len(values) :]:
            given = {**defaults, **dict(zip(names, values, strict=False)), **named}
            if len(given) == len(names) >= len(values):
                return tuple.__new__(cls, map(given.__getitem__, names))
        # For an invalid call the compiled constructor raises Python's own error.
        parameters = ", ".join(names)
        values_of = f"({parameters}{',' if names else ''})"
        text = f"lambda cls{', ' if names else ''}{parameters}: new_tuple(cls, {values_of})"
        constructor = eval(text, {"new_tuple": tuple.__new__, "__builtins__": {}})
        constructor.__name__ = "__new__"
        constructor.__defaults__ = tuple(defaults.values())
        owner: Any = next(base for base in cls.__mro__ if vars(base).get("__new__") is method)
        constructor.__qualname__ = f"{owner.__qualname__}.__new__"
        owner.__new__ = staticmethod(constructor)
        return constructor(cls, *values, **named)

    method = staticmethod(first)
    return method


def _make(cls: type[Any], values: Iterable[Any]) -> Any:
    """Create an instance from values in the order of the fields."""
    made = tuple.__new__(cls, values)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _replace(self: Any, /, **changes: Any) -> Any:
    """A copy with other values for some fields."""
    made = self._make(map(changes.pop, self._fields, self))
    if changes:
        raise ValueError(f"Got unexpected field names: {list(changes)!r}")
    return made


def _asdict(self: Any) -> dict[str, Any]:
    """The values by field name."""
    return dict(zip(self._fields, self, strict=True))


def _repr(self: Any) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
    return f"{type(self).__name__}({values})"


def _new_arguments(self: Any) -> tuple[Any, ...]:
    """The constructor's arguments, for copies and pickles."""
    return tuple(self)


_METHODS: dict[str, Any] = {
    "_make": classmethod(_make),
    "_replace": _replace,
    "_asdict": _asdict,
    "__repr__": _repr,
    "__getnewargs__": _new_arguments,
}
