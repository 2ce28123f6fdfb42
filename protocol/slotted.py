"""``@slotted``: like ``@dataclass(slots=True)``, but with methods compiled at their first call, not at import.

``@dataclass`` writes ``__init__``, ``__repr__``, ``__eq__`` and more as text and compiles each, for each class, at each
import: half a millisecond per class. A broker imports about two hundred classes at every start and uses few of them. Here a
method is compiled when it is first called, and the fields (``dataclasses.fields``, ``replace``) are created when they are
first needed. The result is the same as with ``@dataclass``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import partial
from typing import Any, Final, TypeVar, dataclass_transform, overload

from .core import construct_in_core

T = TypeVar("T")

_FIELDS: Final = "__dataclass_fields__"
_PARAMS: Final = "__dataclass_params__"
CALLS_NOT_COMPILED: Final = 10


@overload
def slotted(cls: type[T], /) -> type[T]: ...
@overload
def slotted(
    *, frozen: bool = False, kw_only: bool = False, eq: bool = True
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(dataclasses.Field, dataclasses.field))
def slotted(cls: Any = None, /, *, frozen: bool = False, kw_only: bool = False, eq: bool = True) -> Any:
    """Decorator for a dataclass. Of ``dataclasses.field`` it supports ``default``, ``default_factory``, ``init`` and
    ``repr``.

    A base class with fields must also be a class made by this decorator.
    """
    if cls is None:
        return lambda cls: slotted_class(cls, frozen, kw_only, eq)
    return slotted_class(cls, frozen, kw_only, eq)


class _Late:
    """Descriptor for ``__dataclass_fields__``. Calls ``@dataclass`` when the fields are first needed."""

    __slots__ = (
        "_annotations",
        "_defaults",
        "_inherited",
        "_made",
        "_options",
        "_own",
        "_owner",
        "names",
        "positional",
    )

    def __init__(
        self,
        annotations: dict[str, Any],
        defaults: dict[str, Any],
        own: list[str],
        names: tuple[str, ...],
        positional: tuple[str, ...],
        options: dict[str, bool],
        inherited: _Late | None,
    ) -> None:
        self._annotations = annotations
        self._defaults = defaults
        self._own = own
        self._options = options
        self._inherited = inherited
        self._made: Any = None
        self._owner: Any = None
        self.names = names
        """Names of all fields, those of base classes first."""
        self.positional = positional
        """Names of the fields that ``__match_args__`` lists."""

    def belongs_to(self, owner: type[Any]) -> None:
        self._owner = owner

    def specs(self) -> list[Spec]:
        """The specifications of all fields of the class."""
        found = {} if self._inherited is None else {each.name: each for each in self._inherited.specs()}
        for name in self._own:
            found[name] = Spec(name, self._defaults.get(name, MISSING), self._options["kw_only"])
        return list(found.values())

    def __get__(self, _instance: object, _owner: object = None) -> dict[str, Field[Any]]:
        if self._made is None:
            owner = self._owner
            own = {
                **self._defaults,
                "__annotations__": self._annotations,
                "__module__": owner.__module__,
                "__doc__": owner.__doc__,  # without a docstring `@dataclass` would create one from the signature
            }
            made: Any = dataclasses.dataclass(**self._options)(type(owner.__name__, (), own))
            found: dict[str, Field[Any]] = {}
            for base in owner.__mro__[:0:-1]:
                found |= getattr(base, _FIELDS, {})
            self._made = {**found, **getattr(made, _FIELDS)}
        fields: dict[str, Field[Any]] = self._made
        return fields


class Spec:
    """The specification of a field, from which methods are generated. It replaces ``dataclasses.fields``, which is ten times
    slower.
    """

    __slots__ = ("default", "default_factory", "init", "kw_only", "name", "repr")

    def __init__(self, name: str, default: Any, kw_only: bool) -> None:
        self.name = name
        self.default: Any = default
        self.default_factory: Any = MISSING
        self.init = self.repr = True
        self.kw_only = kw_only
        if isinstance(default, Field):
            self.default, self.default_factory = default.default, default.default_factory
            self.init, self.repr = default.init, default.repr
            self.kw_only = kw_only if default.kw_only is MISSING else default.kw_only


class _Params:
    """Value of ``__dataclass_params__``: a subclass that is a dataclass must be frozen if this class is."""

    __slots__ = ("frozen",)

    def __init__(self, frozen: bool) -> None:
        self.frozen = frozen


def slotted_class(cls: type[Any], frozen: bool, kw_only: bool, eq: bool = True) -> type[Any]:
    namespace = dict(vars(cls))
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    annotations = _annotations(cls)
    own = [name for name, annotation in annotations.items() if not _is_class_variable(annotation)]
    defaults = {name: namespace.pop(name) for name in own if name in namespace}
    inherited = _inherited(cls)
    names = tuple(dict.fromkeys([*(inherited.names if inherited else ()), *own]))
    positional = inherited.positional if inherited else ()
    if not kw_only:
        positional = tuple(
            dict.fromkeys([*positional, *(name for name in own if _is_given(defaults.get(name)))])
        )
    options = {"init": False, "repr": False, "eq": False, "kw_only": kw_only, "frozen": False}
    late = _Late(annotations, defaults, own, names, positional, options, inherited)
    taken = {slot for base in cls.__mro__[1:-1] for slot in _slots_of(base)}
    namespace["__slots__"] = tuple(name for name in names if name not in taken)
    namespace.setdefault("__match_args__", positional)
    # Without a docstring `@dataclass` would create one from the signature, which takes longer than everything else here.
    namespace["__doc__"] = cls.__doc__ or cls.__name__
    namespace[_FIELDS] = late
    namespace[_PARAMS] = _Params(frozen)
    has_equality = "__eq__" in namespace
    _add_methods(namespace, frozen, eq)
    if frozen:
        namespace |= {
            "__setattr__": refuse_assignment,
            "__delattr__": refuse_deletion,
            "__setstate__": _set_state,
        }
    elif eq and not has_equality:
        namespace["__hash__"] = None
    metaclass: Any = type(cls)
    made: type[Any] = metaclass(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    late.belongs_to(made)
    return made


def _annotations(cls: type[Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    found: dict[str, Any] = vars(cls).get("__annotations__", {})
    return found


def _is_class_variable(annotation: object) -> bool:
    if not isinstance(annotation, str):
        annotation = repr(annotation)
    return annotation.startswith(("ClassVar", "typing.ClassVar"))


def _is_given(default: object) -> bool:
    """Whether ``__init__`` has a parameter for the field."""
    return not isinstance(default, Field) or (default.init and default.kw_only is not True)


def _inherited(cls: type[Any]) -> _Late | None:
    for base in cls.__mro__[1:]:
        late = vars(base).get(_FIELDS)
        if late is not None:
            assert isinstance(late, _Late), f"{base} is a dataclass, but not by @slotted"
            return late
    return None


def _slots_of(base: type[Any]) -> tuple[str, ...]:
    slots = vars(base).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


Write = Callable[[type[Any], bool, dict[str, Any]], Iterator[str]]


def _add_methods(namespace: dict[str, Any], frozen: bool, eq: bool) -> None:
    """Add the methods that the class does not define."""
    namespace.setdefault("__init__", constructor(_specs, frozen))
    for name, write in METHODS.items():
        if name not in namespace and (eq or name != "__eq__"):
            namespace[name] = _compile_late(name, write, frozen)
    if frozen and eq:
        namespace["__hash__"] = _compile_late("__hash__", _write_hash, frozen)


def _compile_late(name: str, write: Write, frozen: bool) -> Callable[..., Any]:
    def first(self: Any, *values: Any, **named: Any) -> Any:
        # Find the class that has this method. A subclass with fields of its own has its own method.
        cls = next(base for base in type(self).__mro__ if vars(base).get(name) is first)
        method = compiled(cls, name, write, frozen)
        setattr(cls, name, method)
        return method(self, *values, **named)

    return first


def constructor(specs_of: Callable[[type[Any]], list[Spec]], frozen: bool) -> Callable[..., Any]:
    """An ``__init__`` that is compiled after a few calls, because a broker creates only a few instances of many classes."""
    left = CALLS_NOT_COMPILED
    specs: list[Spec] = []
    set_field = object.__setattr__ if frozen else setattr

    def first(self: Any, *values: Any, **named: Any) -> None:
        nonlocal left, specs
        cls: Any = next(base for base in type(self).__mro__ if vars(base).get("__init__") is first)
        if not specs:
            specs = specs_of(cls)
            _construct_from_now_on(cls, specs)
        left -= 1
        found = _bound(specs, values, named) if left >= 0 else None
        if found is None:
            # For an invalid call the compiled constructor raises Python's own error.
            method = compiled(cls, "__init__", partial(_write_init, specs), frozen)
            cls.__init__ = method
            method(self, *values, **named)
            return
        for field, value in found.items():
            set_field(self, field, value)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()

    return first


def _construct_from_now_on(cls: type[Any], specs: list[Spec]) -> None:
    """Make calls of the class create instances in the C core, if its constructor only sets its fields."""
    if hasattr(cls, "__post_init__") or any(
        not spec.init or spec.default_factory is not MISSING for spec in specs
    ):
        return
    ordered = sorted(specs, key=lambda spec: bool(spec.kw_only))
    defaults = {spec.name: spec.default for spec in ordered if spec.default is not MISSING}
    names = tuple([spec.name for spec in ordered])
    construct_in_core(cls, names, defaults, sum(not spec.kw_only for spec in specs))


def _bound(specs: list[Spec], values: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any] | None:
    """A value for each field, by name; None if there are too many or too few arguments."""
    found: dict[str, Any] = {}
    places, taken = iter(values), 0
    for spec in specs:
        name, value = spec.name, MISSING
        if spec.init:
            if not spec.kw_only:
                value = next(places, MISSING)
            if value is MISSING and name in named:
                taken += 1
                value = named[name]
        if value is MISSING:
            value = spec.default if spec.default_factory is MISSING else spec.default_factory()
        if value is not MISSING:
            found[name] = value
        elif spec.init:
            return None
    return found if taken == len(named) and next(places, MISSING) is MISSING else None


def compiled(cls: type[Any], name: str, write: Write, frozen: bool) -> Callable[..., Any]:
    namespace: dict[str, Any] = {"cls": cls, "set_field": object.__setattr__}
    exec("\n".join(write(cls, frozen, namespace)), namespace)
    method: Callable[..., Any] = namespace[name]
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    return method


def _write_init(fields: list[Spec], cls: type[Any], frozen: bool, namespace: dict[str, Any]) -> Iterator[str]:
    positional = [_parameter(field, namespace) for field in fields if field.init and not field.kw_only]
    named = [_parameter(field, namespace) for field in fields if field.init and field.kw_only]
    yield f"def __init__({', '.join(['self', *positional, *(['*', *named] if named else [])])}):"
    for field in fields:
        name = value = field.name
        if field.default_factory is not MISSING:
            namespace[f"factory_{name}"] = field.default_factory
            value = (
                f"factory_{name}() if {name} is MISSING else {name}" if field.init else f"factory_{name}()"
            )
        elif not field.init:
            if field.default is MISSING:
                continue  # set by `__post_init__`
            namespace[value := f"default_{name}"] = field.default
        yield f" set_field(self, {name!r}, {value})" if frozen else f" self.{name} = {value}"
    yield " self.__post_init__()" if hasattr(cls, "__post_init__") else " pass"


def _parameter(field: Spec, namespace: dict[str, Any]) -> str:
    if field.default_factory is not MISSING:
        namespace["MISSING"] = MISSING
        return f"{field.name}=MISSING"
    if field.default is MISSING:
        return field.name
    namespace[f"default_{field.name}"] = field.default
    return f"{field.name}=default_{field.name}"


def _write_repr(cls: type[Any], frozen: bool, namespace: dict[str, Any]) -> Iterator[str]:
    shown = [field.name for field in _specs(cls) if field.repr]
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
    return f"({''.join(f'{owner}.{field.name}, ' for field in _specs(cls))})"


def field_names(cls: type[Any]) -> tuple[str, ...]:
    """The field names of a class made by ``slotted``."""
    late: _Late = vars(cls)[_FIELDS]
    return late.names


def init_names(cls: type[Any]) -> tuple[str, ...]:
    """The names of the constructor's parameters of a class made by ``slotted``."""
    return tuple(each.name for each in _specs(cls) if each.init)


def _specs(cls: type[Any]) -> list[Spec]:
    late: _Late = vars(cls)[_FIELDS]
    return late.specs()


METHODS: dict[str, Write] = {"__repr__": _write_repr, "__eq__": _write_eq}


def refuse_assignment(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def refuse_deletion(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _set_state(self: object, state: tuple[None, dict[str, Any]]) -> None:
    """Set the state of a copy or of an unpickled instance."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)
