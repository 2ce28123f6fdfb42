"""A class of `protocol.slotted` behaves like the dataclass with the same fields."""

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from protocol.slotted import CALLS_NOT_COMPILED, slotted


class Base:
    __slots__ = ()


class Fields(Base):
    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list)


@slotted
class Plain(Base):
    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list)


@slotted(frozen=True, kw_only=True)
class Frozen:
    """A frozen class with a docstring of its own."""

    a: int = 1
    b: tuple[int, ...] = ()


@slotted
class Checked:
    a: int

    def __post_init__(self):
        if self.a < 0:
            raise ValueError(self.a)

    def __repr__(self):
        return "mine"

    @slotted
    class Hidden:
        a: int
        b: int = field(repr=False)


@slotted
class Longer(Plain):
    d: int = 4


@slotted(eq=False)
class Unique:
    a: int
    b: int = field(init=False)
    c: list[int] = field(init=False, default_factory=list)

    def __post_init__(self):
        self.b = self.a + 1


def test_a_field_that_is_not_of_the_constructor():
    assert (Unique(1).b, Unique(1).c) == (2, [])
    with pytest.raises(TypeError):
        Unique(1, 2)  # type: ignore[call-arg]
    match Unique(3):
        case Unique(a):
            assert a == 3


def test_without_equality_each_is_only_itself():
    one = Unique(1)
    assert one != Unique(1)
    assert {one: 1}[one] == 1


def test_fields_of_a_class_that_was_never_used_are_those_of_its_bases_too():
    @slotted(frozen=True)
    class Late(Longer):  # type: ignore[misc]  # a frozen dataclass may not derive from Longer
        e: int = 5

    assert [each.name for each in dataclasses.fields(Late)] == ["a", "b", "c", "d", "e"]
    assert tuple(Late.__slots__) == ("e",)
    assert dataclasses.is_dataclass(Late)


def test_construction_by_place_and_by_name():
    assert Plain(1) == Plain(a=1, b="x", c=[])
    assert Plain(1, "y", [2]) != Plain(1, "y", [3])
    assert Plain(1).c is not Plain(1).c
    for wrong in ((), (1, 2, 3, 4)):
        with pytest.raises(TypeError):
            Plain(*wrong)
    with pytest.raises(TypeError):
        Frozen(1)  # type: ignore[call-arg]


def made(cls, values, named):
    """The repr of the new instance, "TypeError" if the constructor raises it."""
    try:
        return repr(cls(*values, **named)).rpartition(".")[2]
    except TypeError:
        return "TypeError"


CALLS = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, [3]), {}),
    ((1, 2, 3, 4), {}),
    ((1, 2, 3, 4, 5), {}),
    ((), {"a": 1}),
    ((1,), {"a": 1}),
    ((1,), {"c": [], "b": 2}),
    ((1,), {"e": 5}),
    ((1,), {"d": 5, "e": 6}),
    ((1,), {"unknown": 1}),
]


@pytest.mark.parametrize("calls_before", [0, CALLS_NOT_COMPILED])
@pytest.mark.parametrize("options", [{}, {"frozen": True}, {"kw_only": True}])
def test_a_constructor_takes_what_that_of_the_dataclass_takes(options, calls_before):
    """The constructor accepts and rejects the same arguments as a dataclass, both in its first calls, which are not
    compiled, and in later calls."""
    for values, named in CALLS:
        body = {
            "__annotations__": {"a": int, "b": int, "c": list, "d": int, "e": int},
            "b": 0,
            "c": field(default_factory=list),
            "d": field(default=3, init=False),
            "e": field(default=4, kw_only=True),
        }
        theirs: Any = dataclass(slots=True, **options)(type("Some", (), dict(body)))
        ours: Any = slotted(**options)(type("Some", (), dict(body)))
        for _ in range(calls_before):
            ours(a=1)
        assert made(ours, values, named) == made(theirs, values, named)


def test_fields_are_real_and_there_is_no_dictionary():
    assert [each.name for each in dataclasses.fields(Plain)] == ["a", "b", "c"]
    assert dataclasses.replace(Plain(1), a=2) == Plain(2)
    assert dataclasses.asdict(Frozen(b=(1,))) == {"a": 1, "b": (1,)}
    assert not hasattr(Plain(1), "__dict__")
    match Plain(1, "y"):
        case Plain(a, b):
            assert (a, b) == (1, "y")


@pytest.mark.parametrize("values", [(1,), (2, "y", [3])])
def test_it_looks_as_the_dataclass_does(values):
    reference: Any = dataclass(slots=True)(type("Plain", (Base,), dict(vars(Fields))))
    assert repr(Plain(*values)).rpartition(".")[2] == repr(reference(*values)).rpartition(".")[2]


def test_a_field_may_be_left_out_of_the_text():
    assert repr(Checked.Hidden(1, 2)) == "Checked.Hidden(a=1)"


def test_equality_is_of_one_class_only():
    assert Plain(1) != Longer(1)
    values: object = (1, "x", [])
    assert Plain(1) != values
    assert Longer(1, d=5) == Longer(1, "x", [], 5)


def test_a_subclass_has_methods_of_its_own_whichever_is_used_first():
    assert Longer(1).d == 4
    assert "d=4" in repr(Longer(1))
    assert "d=4" not in repr(Plain(1))


def test_what_is_frozen_cannot_change_and_is_a_key():
    frozen = Frozen(a=2)
    with pytest.raises(FrozenInstanceError):
        frozen.a = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del frozen.a
    assert {frozen: 1}[Frozen(a=2)] == 1
    assert hash(frozen) != hash(Frozen(a=3))
    with pytest.raises(TypeError):
        hash(Plain(1))


def test_methods_that_a_class_has_are_kept():
    assert repr(Checked(1)) == "mine"
    with pytest.raises(ValueError):
        Checked(-1)


@pytest.mark.parametrize("value", [Plain(1, "y", [2]), Checked(3), Frozen(a=4)])
def test_copies_are_equal(value):
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value
