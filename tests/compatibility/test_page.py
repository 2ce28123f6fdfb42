"""Tests of the numbers and outcomes on the compatibility page."""

from __future__ import annotations

import re
from typing import Any

from tests.compatibility import page, shown
from tests.compatibility.exchanges import Exchanges, exchanges_of, sum_of, to_json
from tests.compatibility.shown import Shown, parse, shown_by
from tests.compatibility.verdicts import LEFT_OUT
from tests.differential import runner
from tests.differential.listed import Row
from tests.differential.runner import ABSENT, Difference
from tests.differential.stories import client_metrics

KAFKA: list[dict[str, Any]] = [
    {"ask": "fetch v4 (first)", "answer": {"error_code": 0}},
    {"ask": "fetch v4", "answer": {"error_code": 0}},
    {"ask": "fetch v12", "answer": {"error_code": 0}},
    {"ask": "a note", "answer": 1},
]
ROW = Row("why", ("fetch.*",), ("size",), ("1",), ("2",))


def difference(number: int, field: str, kafka: Any = 1, ours: Any = 2) -> Difference:
    return Difference("fetch.story", number, KAFKA[number]["ask"], field, kafka, ours)


def test_an_exchange_that_differs_in_a_field_is_not_as_kafka_s():
    found = exchanges_of(KAFKA, [difference(0, "size"), difference(0, "name")], [ROW])
    assert found == {("fetch", 4): Exchanges(2, 1, 0, {"why"}), ("fetch", 12): Exchanges(1, 0, 0, set())}


def test_different_error_codes_are_counted_separately():
    found = exchanges_of(
        KAFKA, [difference(1, "topics.0.error_code"), difference(2, "answer", {}, "silence")]
    )
    assert found == {("fetch", 4): Exchanges(2, 1, 1), ("fetch", 12): Exchanges(1, 1, 1)}


def test_exchanges_after_the_end_of_a_story_count_as_different():
    found = exchanges_of(KAFKA, [difference(1, "ask", KAFKA[1], {"ask": ABSENT})])
    assert found == {("fetch", 4): Exchanges(2, 1, 1), ("fetch", 12): Exchanges(1, 1, 1)}


def test_numbers_of_stories_are_added():
    one = to_json(exchanges_of(KAFKA, [difference(0, "size")], [ROW]))
    assert sum_of([one, one]) == {
        ("fetch", 4): Exchanges(4, 2, 0, {"why"}),
        ("fetch", 12): Exchanges(2, 0, 0),
    }


BEFORE = Shown({}, {"kcat": {"fencing": "passed"}}, {"kafka-topics": {"passed": 3, "failed": 0}})


def test_a_feature_is_shown_by_all_of_its_tests():
    lines = [
        {"client": "franz-go", "feature": "transactions", "outcome": "passed"},
        {"client": "franz-go", "feature": "fencing", "outcome": "passed"},
        {"client": "franz-go", "feature": "fencing", "outcome": "failed"},
        {"client": "Java", "feature": "fencing", "outcome": "passed"},
    ]
    found = shown_by(lines, BEFORE).clients
    assert found == {
        "Java": {"fencing": "passed"},
        "franz-go": {"fencing": "failed", "transactions": "passed"},
    }
    rows = [line.split(" | ") for line in page.clients(found).splitlines()][-2:]
    assert [[cell.strip("| ") for cell in row] for row in rows] == [
        ["transactions", "✓", ""],
        ["fencing", "", "✓"],
    ]


def test_a_test_that_was_left_out_keeps_its_stored_result():
    lines = [
        {"client": "kcat", "feature": "fencing", "outcome": LEFT_OUT},
        {"client": "Java", "feature": "fencing", "outcome": LEFT_OUT},
        {"tool": "kafka-topics", "outcome": LEFT_OUT},
    ]
    assert shown_by(lines, BEFORE) == Shown({}, BEFORE.clients | {"Java": {}}, BEFORE.tools)


def test_removed_tests_have_no_result():
    assert shown_by([{"tool": "kafka-acls", "outcome": "failed"}], BEFORE) == Shown(
        {}, {}, {"kafka-acls": {"passed": 0, "failed": 1}}
    )


def test_stored_results_are_read_as_they_were_written():
    kept = shown.kept()
    assert parse(kept.text) == kept


def test_the_page_names_each_api_that_kafka_announces():
    lists = runner.load("api-versions")["every_version"]
    announced = {int(key) for exchange in lists for key in exchange["answer"]["api_keys"]}
    in_the_table = {int(key) for key in re.findall(r"^\| (\d+) \|", page.PAGE.read_text(), re.MULTILINE)}
    left_out = {int(key) for key in re.findall(r"\((\d+)\)", page.not_announced())}
    metrics = runner.load("client-metrics")
    without_a_reporter, with_one = (
        {key for key, name in client_metrics.API_KEYS.items() if name in metrics[story][0]["answer"]}
        for story in ("without_an_exporter", "a_client_pushes")
    )
    assert announced & {*client_metrics.API_KEYS} == without_a_reporter
    assert in_the_table | left_out == announced | with_one
    assert not in_the_table & left_out


def test_the_page_shows_the_stored_results():
    assert page.PAGE.read_text() == page.page(shown.kept()), "python -m tests.compatibility.shown --page"
