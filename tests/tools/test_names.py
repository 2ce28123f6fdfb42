"""The error for a name that the cluster does not have suggests the nearest name that it has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import odradek as package
from tests.tools.conftest import Run


@pytest.fixture(scope="module")
def known() -> set[str]:
    """The names of the topics, groups and transactional ids that this module's tests have created."""
    return set()


@pytest.fixture
def nearly(run: Run, known: set[str]) -> None:
    """Create a topic, a group and a transactional id whose names are close to the wrong names in the tests' commands."""
    if not known:
        run("topic", "create", "nearly-orders")
        run("produce", "nearly-orders", "-x", "nearly-etl", "one")
        run("consume", "nearly-orders", "-g", "nearly-readers")
        known.add("nearly")


@pytest.mark.usefixtures("nearly")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("topic describe nearly-orderz", "nearly-orders"),
        ("topic delete nearly-orderz", "nearly-orders"),
        ("topic config nearly-orderz", "nearly-orders"),
        ("topic trim nearly-orderz --before 1", "nearly-orders"),
        ("consume nearly-orderz", "nearly-orders"),
        ("txn find-hanging --topic nearly-orderz", "nearly-orders"),
        ("group describe nearly-raeders", "nearly-readers"),
        ("group lag nearly-raeders", "nearly-readers"),
        ("group delete nearly-raeders", "nearly-readers"),
        ("group reset nearly-raeders --to end", "nearly-readers"),
        ("group rebalance nearly-raeders", "nearly-readers"),
        ("txn describe nearly-elt", "nearly-etl"),
        ("txn abort nearly-elt", "nearly-etl"),
        ("txn timeline nearly-elt", "nearly-etl"),
        ("txn wait nearly-elt --timeout 0", "nearly-etl"),
    ],
)
def test_the_nearest_name_is_suggested(
    refused: Callable[..., tuple[int, str]], cluster_of_two: package.Broker, typed: str, meant: str
) -> None:
    code, said = refused(*typed.split(), ODRADEK_CONTROL=cluster_of_two.control_url)
    assert code in (1, 4)
    assert said.strip().replace("'", "").endswith(f"; did you mean {meant}?")
    assert said.count("did you mean") == 1


def test_no_name_is_suggested_that_is_not_near(refused: Callable[..., tuple[int, str]]) -> None:
    assert refused("consume", "xyzzy-quux")[1] == "Error: there is no topic xyzzy-quux\n"


@pytest.mark.usefixtures("nearly")
def test_a_group_without_offsets_is_not_suggested_for_its_own_name(
    run: Run, refused: Callable[..., tuple[int, str]]
) -> None:
    run("topic", "create", "nearly-empty")
    run("consume", "nearly-empty", "-g", "nearly-empty")
    run("topic", "delete", "nearly-empty")
    assert "did you mean nearly-empty" not in refused("group", "lag", "nearly-empty")[1]
