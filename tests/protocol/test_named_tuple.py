"""Our NamedTuple behaves like that of ``typing`` with the same fields."""

import copy
import pickle
import typing
from typing import Any, Generic, TypeVar

import pytest

from protocol.core import compiled
from protocol.named_tuple import CALLS_NOT_COMPILED, NamedTuple

T = TypeVar("T")


class Ours(NamedTuple):
    """A named tuple with a docstring of its own."""

    a: int
    b: str = "x"
    c: tuple[int, ...] = ()

    @property
    def doubled(self) -> int:
        return self.a * 2

    @classmethod
    def of(cls, text: str) -> "Ours":
        return cls(int(text))


class Theirs(typing.NamedTuple):
    a: int
    b: str = "x"
    c: tuple[int, ...] = ()


class Empty(NamedTuple):
    pass


class Pair(NamedTuple, Generic[T]):
    left: T
    right: T


class Shown(NamedTuple):
    a: int

    def __repr__(self) -> str:
        return f"shown {self.a}"


class Derived(Ours):
    __slots__ = ()


@pytest.mark.parametrize("values", [(1,), (1, "y"), (1, "y", (2,))])
def test_it_has_the_values_and_the_text_of_its_counterpart(values: tuple[Any, ...]) -> None:
    ours = Ours(*values)
    theirs: Any = Theirs(*values)
    assert ours == theirs
    assert repr(ours).removeprefix("Ours") == repr(theirs).removeprefix("Theirs")
    assert ours._asdict() == theirs._asdict()
    assert (ours.a, ours.b, ours.c) == tuple(ours)
    assert hash(ours) == hash(theirs)


def test_construction_by_place_and_by_name() -> None:
    assert Ours(a=1, c=(3,)) == (1, "x", (3,))
    assert Ours.of("7").doubled == 14
    wrong: list[tuple[Any, ...]] = [(), (1, 2, 3, 4)]
    for values in wrong:
        with pytest.raises(TypeError):
            Ours(*values)
    with pytest.raises(TypeError):
        Ours(1, d=2)  # type: ignore[call-arg]


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, "y", (2,)), {}),
    ((1, "y", (2,), 4), {}),
    ((), {"a": 1, "c": (1,)}),
    ((1,), {"a": 1}),
    ((1,), {"unknown": 1}),
    ((), {"b": "y"}),
]


@pytest.mark.parametrize("calls_before", [0, CALLS_NOT_COMPILED])
@pytest.mark.parametrize(("values", "named"), CALLS)
def test_a_constructor_takes_what_its_counterpart_takes(
    values: tuple[Any, ...], named: dict[str, Any], calls_before: int
) -> None:
    """The constructor accepts and rejects the same arguments as a ``typing.NamedTuple``, both in its first calls, which are
    not compiled, and in later calls."""

    class Fresh(NamedTuple):
        a: int
        b: str = "x"
        c: tuple[int, ...] = ()

    for _ in range(calls_before):
        assert Fresh(1) == (1, "x", ())
    try:
        expected: Any = Theirs(*values, **named)
    except TypeError:
        with pytest.raises(TypeError):
            Fresh(*values, **named)
    else:
        assert Fresh(*values, **named) == expected


def test_what_stands_in_the_class_is_that_of_its_counterpart() -> None:
    for name in ("_fields", "_field_defaults", "__match_args__", "__slots__", "__bases__"):
        assert getattr(Ours, name) == getattr(Theirs, name)
    assert type(Ours) is type
    assert Ours.__doc__ == "A named tuple with a docstring of its own."
    assert not hasattr(Ours(1), "__dict__")


def test_fields_can_only_be_read() -> None:
    ours, theirs = Ours(1), Theirs(1)
    for made in (ours, theirs):
        with pytest.raises(AttributeError):
            made.a = 2  # type: ignore[misc]
    assert Derived(1).a == 1


def test_a_core_takes_fields_of_tuples_only() -> None:
    if compiled is not None:
        with pytest.raises(TypeError):
            compiled.set_fields(dict, ("a",))
        with pytest.raises(TypeError):
            compiled.set_fields(type("Made", (tuple,), {}), (1,))


def test_a_changed_copy() -> None:
    assert Ours(1)._replace(b="y") == (1, "y", ())
    with pytest.raises(ValueError, match="d"):
        Ours(1)._replace(d=1)  # type: ignore[call-arg]
    assert Ours._make([1, "x", ()]) == Ours(1)
    with pytest.raises(TypeError):
        Ours._make([1])
    with pytest.raises(AttributeError):
        Ours(1).a = 2  # type: ignore[misc]


def test_patterns_and_generics() -> None:
    match Ours(1, "y"):
        case Ours(a, b):
            assert (a, b) == (1, "y")
    assert Pair[int](1, 2).right == 2
    assert Empty() == ()


def test_methods_that_a_class_has_are_kept() -> None:
    assert repr(Shown(3)) == "shown 3"


def test_a_subclass_that_is_used_first_is_of_its_own_class() -> None:
    class First(NamedTuple):
        a: int

    class Second(First):
        __slots__ = ()

    assert type(Second(1)) is Second
    assert type(First(1)) is First
    assert type(Derived(1)._replace(a=2)) is Derived


@pytest.mark.parametrize("value", [Ours(1, "y", (2,)), Shown(4), Derived(5)])
def test_copies_are_equal_and_of_the_same_class(value: Any) -> None:
    for copied in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert copied == value
        assert type(copied) is type(value)
