"""The verdict on a run, with the evidence for it."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.certify.judging.comparison import Compare
from odradek.certify.judging.findings import Ending, Finding, Kind, Outputs, Reference, failed, judge, stuck
from tests.odradek.certify.test_comparison import record


def outputs(*records: object, written: tuple[object, ...] = (), **more: Any) -> Outputs:
    return Outputs(records, written or records, **more)  # type: ignore[arg-type]


def reference(*records: object) -> Reference:
    return Reference(records, Compare.ROWS)  # type: ignore[arg-type]


def test_the_same_outputs_are_right() -> None:
    assert judge(reference(record("a"), record("b")), outputs(record("b"), record("a"))) == []


def test_a_lost_record_is_shown_with_what_became_of_it() -> None:
    aborted = record("b", producer_id=4, producer_epoch=2, is_transactional=True, outcome="aborted", offset=9)
    (finding,) = judge(
        reference(record("a"), record("b")), outputs(record("a"), written=(record("a"), aborted))
    )
    assert finding.kind is Kind.LOST
    assert finding.evidence == ("out: b (out-0 @9, producer 4 epoch 2, aborted)",)


def test_a_duplicated_record_is_shown_with_both_places() -> None:
    (finding,) = judge(reference(record("a")), outputs(record("a", offset=1), record("a", offset=5)))
    assert finding.kind is Kind.DUPLICATED
    assert finding.evidence == ("out: a (out-0 @1, no transaction; out-0 @5, no transaction)",)


def test_what_is_missing_in_one_topic_while_another_has_the_key_is_torn() -> None:
    whole = [record("1", "k"), record("j1", "k", topic="journal")]
    (finding,) = judge(reference(*whole), outputs(whole[0]))
    assert finding.kind is Kind.TORN
    assert judge(reference(*whole), outputs())[0].kind is Kind.LOST


def test_a_run_without_an_end_is_stuck_and_so_are_its_consumers() -> None:
    found = judge(
        reference(),
        outputs(ending=Ending.OVERDUE, why_not="no end", open_transactions=("out-0: readers stop",)),
    )
    assert [each.kind for each in found] == [Kind.STUCK, Kind.STUCK]
    assert found[0].sentence == "no end"
    assert found[1].evidence == ("out-0: readers stop",)


LOST = [record("a"), record("b")], [record("a")]
REFUSED = Finding(Kind.REFUSED, "check ended with exit code 1", ("58 rows",))


@pytest.mark.parametrize(
    ("ending", "kinds"),
    [
        (Ending.FINISHED, [Kind.LOST]),
        (Ending.IDLE, [Kind.STUCK, Kind.LOST]),
        (Ending.OVERDUE, [Kind.STUCK]),
        (Ending.UNFINISHED, [Kind.UNFINISHED]),
    ],
)
def test_what_is_missing_is_lost_only_where_it_cannot_come_any_more(
    ending: Ending, kinds: list[Kind]
) -> None:
    expected, found = LOST
    findings = judge(reference(*expected), outputs(*found, ending=ending))
    assert [each.kind for each in findings] == kinds
    assert failed(findings) == (ending is not Ending.UNFINISHED)
    if Kind.LOST not in kinds:
        assert findings[0].evidence == ("1 record not written yet",)


@pytest.mark.parametrize("ending", list(Ending))
def test_what_is_there_too_often_is_a_failure_whatever_the_end(ending: Ending) -> None:
    expected, _ = LOST
    findings = judge(reference(*expected), outputs(record("a"), record("a"), ending=ending))
    assert Kind.DUPLICATED in [each.kind for each in findings]
    assert failed(findings)


@pytest.mark.parametrize("ending", list(Ending))
def test_the_users_check_may_refuse_what_is_not_there_yet(ending: Ending) -> None:
    duplicated = Finding(Kind.DUPLICATED, "check says", ("row 7",))
    findings = judge(None, outputs(ending=ending, said=(REFUSED, duplicated)))
    assert duplicated in findings
    is_word = ending in (Ending.FINISHED, Ending.IDLE)
    assert (REFUSED in findings) == is_word
    if not is_word:
        assert findings[0].evidence == ("check ended with exit code 1: 58 rows",)


def test_the_check_and_the_comparison_judge_both() -> None:
    expected, found = LOST
    findings = judge(reference(*expected), outputs(*found, said=(REFUSED,)))
    assert [each.kind for each in findings] == [Kind.LOST, Kind.REFUSED]


def test_an_unfinished_run_says_what_a_supervisor_would_do() -> None:
    (finding,) = judge(
        None, outputs(ending=Ending.UNFINISHED, why_not="all instances ended with code 0 before lag=0")
    )
    assert finding.sentence.startswith(
        "all instances ended with code 0 before lag=0. A supervisor that always restarts"
    )
    assert stuck(outputs(ending=Ending.UNFINISHED)) == []


def test_a_changed_record_is_shown_with_what_changed_and_where_it_is() -> None:
    one, two = record("v", "k", headers=(("trace", "3"),)), record("v", "k", offset=4)
    (finding,) = judge(reference(one), outputs(two))
    assert finding.kind is Kind.CHANGED
    assert finding.evidence == (
        "out: key k, v: header trace missing, without faults 3 (out-0 @4, no transaction)",
    )


def test_repeats_that_the_comparison_allows_are_counted_and_no_failure() -> None:
    keyed = Reference([record("1", "k")], Compare.KEYED)
    (finding,) = judge(keyed, outputs(record("1", "k"), record("1", "k", offset=1)))
    assert (finding.kind, finding.sentence) == (
        Kind.REDELIVERED,
        "1 record more than once, which the comparison allows",
    )
    assert not failed([finding])


def test_the_last_value_of_a_key_is_not_judged_before_the_end() -> None:
    keyed = Reference([record("10", "k")], Compare.KEYED)
    still = outputs(record("7", "k"), ending=Ending.UNFINISHED)
    assert [each.kind for each in judge(keyed, still)] == [Kind.UNFINISHED]
    assert [each.kind for each in judge(keyed, outputs(record("7", "k")))] == [Kind.CHANGED]
