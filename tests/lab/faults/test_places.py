"""Rules for unknown nodes, links and listeners are rejected. Rules for unknown topics and clients are accepted, as these may
come later."""

from __future__ import annotations

import pytest

from broker.cluster.in_words import nodes_in_words
from lab.faults import FaultError, parse_rule
from lab.faults.places import check_exists
from tests.lab.faults.stage import Stage

NODES = {1: ["INSIDE", "OUTSIDE"], 2: ["INSIDE"]}


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("Produce node=7 -> drop", "there is no node 7: this cluster has the nodes 1 and 2"),
        ("txn.marker node=0 -> hold", "there is no node 0: this cluster has the nodes 1 and 2"),
        ("cut 1 3", "there is no node 3: this cluster has the nodes 1 and 2"),
        ("slow-link 9 1 10ms one-way", "there is no node 9: this cluster has the nodes 1 and 2"),
        ("pause node=3", "there is no node 3: this cluster has the nodes 1 and 2"),
        ("full-disk node=3", "there is no node 3: this cluster has the nodes 1 and 2"),
        (
            "Produce listener=PLAINTEXT -> drop",
            "there is no listener 'PLAINTEXT'; listeners: INSIDE, OUTSIDE",
        ),
        ("Produce listener=OUT* node=2 -> drop", r"there is no listener 'OUT\*'; listeners: INSIDE"),
    ],
)
def test_what_does_not_exist_is_refused(rule: str, says: str) -> None:
    with pytest.raises(FaultError, match=f"^{says}$"):
        check_exists(parse_rule(rule), NODES)


@pytest.mark.parametrize(
    "rule",
    [
        "Produce node=2 topic=later -> drop",
        "cut 1 2",
        "Produce listener=OUT* -> drop",
        "Produce listener=INSIDE node=2 -> drop",
        "Produce connection=99 peer=10.0.0.1 -> drop",
    ],
)
def test_what_exists_or_may_come_is_not(rule: str) -> None:
    check_exists(parse_rule(rule), NODES)


async def test_a_rule_that_is_refused_leaves_nothing_behind() -> None:
    stage = Stage(nodes=lambda: NODES)
    with pytest.raises(FaultError, match="no node 3"):
        stage.add("cut 1 3")
    assert stage.faults.list() == ()
    assert stage.injection.links.all_up
    assert stage.add("cut 1 2").id == 1


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([1], "this cluster has node 1 only"),
        ([2, 1], "this cluster has the nodes 1 and 2"),
        ([1, 2, 3], "this cluster has the nodes 1 to 3"),
        ([1, 3, 7], "this cluster has the nodes 1, 3 and 7"),
    ],
)
def test_the_nodes_that_exist_are_named_in_words(nodes: list[int], says: str) -> None:
    assert nodes_in_words(nodes) == says
