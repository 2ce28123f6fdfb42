"""``@slotted``: ``@dataclass(slots=True)`` whose methods are compiled when they are first called.

``@dataclass`` writes ``__init__``, ``__repr__``, ``__eq__`` and more as text and compiles each, for each class, at
each import: half a millisecond for a class, of which a broker imports some two hundred at every start and uses
few. The fields are real (``dataclasses.fields``, ``replace`` and ``match`` work), and a class that is used has
the methods that ``@dataclass`` would have given it.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, FrozenInstanceError
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def slotted(cls: type[T], /) -> type[T]: ...
@overload
def slotted(*, frozen: bool = False, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform()
def slotted(cls: Any = None, /, *, frozen: bool = False, kw_only: bool = False) -> Any:
    """Of what ``dataclasses.field`` can say, ``default``, ``default_factory`` and ``repr`` count."""
    if cls is None:
        return lambda cls: slotted_class(cls, frozen, kw_only)
    return slotted_class(cls, frozen, kw_only)


def slotted_class(cls: type[Any], frozen: bool, kw_only: bool) -> type[Any]:
    # Without a docstring the signature would become one, which takes longer than all that is left.
    cls.__doc__ = cls.__doc__ or cls.__name__
    own = vars(cls).keys()
    methods = {name: write for name, write in METHODS.items() if name not in own}
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
    for name, write in methods.items():
        _compile_late(made, name, write, frozen)
    if frozen:
        made.__setattr__ = _refuse_assignment  # type: ignore[assignment]
        made.__delattr__ = _refuse_deletion  # type: ignore[assignment]
        made.__setstate__ = _set_state
        _compile_late(made, "__hash__", _write_hash, frozen)
    elif "__eq__" in methods:
        made.__hash__ = None  # type: ignore[assignment]
    return made


Write = Callable[[type[Any], bool, dict[str, Any]], Iterator[str]]


def _compile_late(cls: type[Any], name: str, write: Write, frozen: bool) -> None:
    def first(self: Any, *values: Any, **named: Any) -> Any:
        namespace: dict[str, Any] = {"cls": cls, "set_field": object.__setattr__}
        exec("\n".join(write(cls, frozen, namespace)), namespace)
        method = namespace[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(self, *values, **named)

    setattr(cls, name, first)


def _write_init(cls: type[Any], frozen: bool, namespace: dict[str, Any]) -> Iterator[str]:
    fields = dataclasses.fields(cls)
    positional = [_parameter(field, namespace) for field in fields if not field.kw_only]
    named = [_parameter(field, namespace) for field in fields if field.kw_only]
    yield f"def __init__({', '.join(['self', *positional, *(['*', *named] if named else [])])}):"
    for field in fields:
        name = value = field.name
        if field.default_factory is not MISSING:
            value = f"factory_{name}() if {name} is MISSING else {name}"
        yield f" set_field(self, {name!r}, {value})" if frozen else f" self.{name} = {value}"
    yield " self.__post_init__()" if hasattr(cls, "__post_init__") else " pass"


def _parameter(field: "Field[Any]", namespace: dict[str, Any]) -> str:
    if field.default_factory is not MISSING:
        namespace |= {"MISSING": MISSING, f"factory_{field.name}": field.default_factory}
        return f"{field.name}=MISSING"
    if field.default is MISSING:
        return field.name
    namespace[f"default_{field.name}"] = field.default
    return f"{field.name}=default_{field.name}"


def _write_repr(cls: type[Any], frozen: bool, namespace: dict[str, Any]) -> Iterator[str]:
    shown = [field.name for field in dataclasses.fields(cls) if field.repr]
    values = ", ".join(f"{name}={{self.{name}!r}}" for name in shown)
    yield "def __repr__(self):"
    yield f" return self.__class__.__qualname__ + f'({values})'"


def _write_eq(cls: type[Any], frozen: bool, namespace: dict[str, Any]) -> Iterator[str]:
    yield "def __eq__(self, other):"
    yield " if other.__class__ is not self.__class__: return NotImplemented"
    yield f" return {_values(cls, 'self')} == {_values(cls, 'other')}"


def _write_hash(cls: type[Any], frozen: bool, namespace: dict[str, Any]) -> Iterator[str]:
    yield "def __hash__(self):"
    yield f" return hash({_values(cls, 'self')})"


def _values(cls: type[Any], owner: str) -> str:
    return f"({''.join(f'{owner}.{field.name}, ' for field in dataclasses.fields(cls))})"


METHODS: dict[str, Write] = {"__init__": _write_init, "__repr__": _write_repr, "__eq__": _write_eq}


def _refuse_assignment(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _set_state(self: object, state: tuple[None, dict[str, Any]]) -> None:
    """Fill a copy."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)
