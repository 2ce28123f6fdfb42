"""The verdict detects each kind of error in an output."""

from __future__ import annotations

from dataclasses import replace

from tests.spark.matrix.verdict import Found, judge

SENT = [(b"%d" % key, b"%d" % value) for value in range(3) for key in range(4)]
RIGHT = Found(tuple(SENT), {}, len(SENT) + 6)


def counts(found: Found, *, in_order: bool = True) -> tuple[int, int, int, int]:
    verdict = judge(SENT, found, in_order=in_order)
    return verdict.lost, verdict.duplicated, verdict.unexpected, verdict.reordered


def test_an_output_that_equals_the_input_is_right():
    assert counts(RIGHT) == (0, 0, 0, 0)
    assert judge(SENT, RIGHT, in_order=True).complaints == ()


def test_a_record_that_is_missing_is_lost():
    assert counts(replace(RIGHT, rows=RIGHT.rows[1:])) == (1, 0, 0, 0)


def test_a_record_that_is_there_again_is_duplicated():
    assert counts(replace(RIGHT, rows=(*RIGHT.rows, RIGHT.rows[-1]))) == (0, 1, 0, 0)


def test_a_lost_and_a_duplicated_record_do_not_cancel_out():
    rows = (*RIGHT.rows[1:], RIGHT.rows[-1])
    assert counts(replace(RIGHT, rows=rows)) == (1, 1, 0, 0)
    assert [each.split(":")[0] for each in judge(SENT, replace(RIGHT, rows=rows)).complaints] == [
        "lost",
        "duplicated",
    ]


def test_a_record_that_was_not_sent_is_unexpected():
    assert counts(replace(RIGHT, rows=(*RIGHT.rows, (b"0", b"17"), (b"17", b"0")))) == (0, 0, 2, 0)


def test_the_order_of_a_key_s_records_is_checked_on_request():
    rows = list(RIGHT.rows)
    rows[0], rows[4] = rows[4], rows[0]
    assert counts(replace(RIGHT, rows=tuple(rows))) == (0, 0, 0, 1)
    assert counts(replace(RIGHT, rows=tuple(rows)), in_order=False) == (0, 0, 0, 0)


def test_an_open_transaction_is_a_complaint():
    (complaint,) = judge(SENT, replace(RIGHT, open={2: (7, 9)})).complaints
    assert complaint == "partition 2: a transaction is open, read_committed ends at 7 of 9"
