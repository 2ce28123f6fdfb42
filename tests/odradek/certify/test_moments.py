"""Moments of a run (requests and steps at which the certifier injects a fault), their classes, and name patterns."""

from __future__ import annotations

import pytest

from odradek.certify.plans.moments import Moment, MomentClass, classes, moments, patterns, roles
from tests.odradek.certify.traces import end, entry, fetch, init, offsets, produce, trace, transaction


def test_a_request_is_counted_by_its_api_and_its_transactional_id() -> None:
    found = moments(
        trace(init("a"), init("b"), transaction("a", 5), transaction("b", 5), transaction("a", 9))
    )
    ends = [each for each in found if each.on == "EndTxn"]
    assert ends == [
        Moment("EndTxn", (("transactional_id", "a"),), 1, "commit"),
        Moment("EndTxn", (("transactional_id", "b"),), 1, "commit"),
        Moment("EndTxn", (("transactional_id", "a"),), 2, "commit"),
    ]


def test_the_phase_says_where_in_its_transaction_a_request_is() -> None:
    run = trace(
        init("a"),
        produce("out", tx="a"),
        produce("out", tx="a"),
        offsets("in", 3, tx="a"),
        end("a"),
        init("a"),
    )
    assert [(each.on, each.phase) for each in moments(run) if not each.is_step] == [
        ("InitProducerId", "first"),
        ("Produce", "opens"),
        ("Produce", "again"),
        ("TxnOffsetCommit", "adds"),
        ("EndTxn", "commit"),
        ("InitProducerId", "again"),
    ]


def test_a_commit_is_followed_by_the_brokers_steps() -> None:
    found = moments(trace(transaction("a", 5, committed=False)))
    assert {(each.on, each.phase) for each in found if each.is_step} == {
        ("txn.prepare.append", "abort"),
        ("txn.marker", "abort"),
        ("txn.complete.append", "abort"),
        ("group.append", "adds"),
    }
    group = next(each for each in found if each.on == "group.append")
    assert group.matchers == (("group", "g"),)


def test_a_request_that_failed_has_no_steps() -> None:
    assert not [each for each in moments(trace(end("a", error="PRODUCER_FENCED"))) if each.is_step]


def test_requests_between_nodes_are_no_moments() -> None:
    assert moments(trace(entry("WriteTxnMarkers", from_node=2))) == []


def test_moments_of_one_class_stand_together() -> None:
    members = classes(moments(trace(fetch("in"), fetch("in"), fetch("in", found=False))))
    assert {str(kind): len(each) for kind, each in members.items()} == {
        "Fetch (records)": 2,
        "Fetch (nothing)": 1,
    }
    assert MomentClass("Fetch", "records") in members


@pytest.mark.parametrize(
    ("one", "two", "pattern"),
    [
        ("app-1f2e-0", "app-77ab-0", "app-*-0"),
        ("copier-20304", "copier-20321", "copier-*"),
        ("1f2e", "1a2e", "*"),
        ("a.b-7-x", "a.b-8-x", "a.b-*-x"),
    ],
)
def test_a_pattern_has_whole_words(one: str, two: str, pattern: str) -> None:
    assert patterns(trace(init(one)), trace(init(two)))[one] == pattern


def test_names_that_differ_between_two_runs_become_patterns() -> None:
    one, two = trace(init("app-1f2e-0"), init("same")), trace(init("app-77ab-0"), init("same"))
    found = patterns(one, two)
    assert found["app-1f2e-0"] == "app-*-0"
    assert "same" not in found
    assert moments(one, found)[0].matchers == (("transactional_id", "app-*-0"),)


def test_ids_that_differ_in_a_number_are_one_role() -> None:
    """Transactional ids that differ in a number share one pattern.

    Which of two instances commits first differs from run to run.
    """
    run = trace(init("copier-1"), init("copier-2"), init("other"), init("7"), init("8"))
    assert roles(run) == {"copier-1": "copier-*", "copier-2": "copier-*"}
