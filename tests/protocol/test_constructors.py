"""An instance that the compiled core makes in one step equals one that the class's own constructor makes."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.messages import Message
from protocol.messages.produce import LeaderIdAndEpoch, PartitionProduceResponse, ProduceResponse

CLASSES = [PartitionProduceResponse, ProduceResponse, LeaderIdAndEpoch]


@pytest.fixture(autouse=True)
def made_by_the_core() -> None:
    """Make one instance of each class: the compiled core makes instances only from the second one on."""
    for cls in CLASSES:
        cls()


def by_python(cls: type[Message], **given: Any) -> Message:
    made = cls.__new__(cls)
    cls.__init__(made, **given)
    return made


@pytest.mark.parametrize("cls", CLASSES)
def test_without_values_all_have_their_defaults(cls: type[Message]) -> None:
    made = cls()
    assert type(made) is cls
    assert made == by_python(cls)


@pytest.mark.parametrize("names", [("index", "base_offset"), ("base_offset", "index"), ("error_message",)])
def test_values_go_to_their_names_in_any_order(names: tuple[str, ...]) -> None:
    given: dict[str, Any] = {name: number for number, name in enumerate(names, 7)}
    made = PartitionProduceResponse(**given)
    assert made == by_python(PartitionProduceResponse, **given)
    assert [getattr(made, name) for name in names] == list(given.values())


def test_names_need_not_be_the_same_objects() -> None:
    name = "".join(["base", "_offset"])
    assert PartitionProduceResponse(**{name: 3}).base_offset == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"nosuch": 1}, {"index": 1, "nosuch": 2}])
def test_a_name_that_there_is_not_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'nosuch'"):
        PartitionProduceResponse(**wrong)


def test_a_value_by_place_is_refused() -> None:
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        PartitionProduceResponse(1)  # type: ignore[call-arg]


def test_each_has_fields_of_its_own() -> None:
    one, other = PartitionProduceResponse(index=1), PartitionProduceResponse(index=2)
    one.base_offset = 5
    assert (one.index, other.index, other.base_offset) == (1, 2, 0)


def test_a_class_that_inherits_is_made_by_its_own_constructor() -> None:
    class Marked(PartitionProduceResponse):
        __slots__ = ("mark",)

        def __init__(self, mark: str) -> None:
            super().__init__(index=4)
            self.mark = mark

    made = Marked("x")
    assert (type(made), made.mark, made.index) == (Marked, "x", 4)
