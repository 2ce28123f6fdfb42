"""Tests of the checks: a correct run is corrupted in one place, and the checks report that place in one sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

from tests.chaos.checks import Moved, complaints
from tests.chaos.history import End, History, Outcome, Place, Seen, Send, Transaction, View

A, B = Place("tx", 0), Place("tx", 1)
IDEMPOTENT = Place("acked", 0)
SOURCE, SINK = Place("source", 0), Place("sink", 0)
JOB = Moved("job", "source", "sink")


def right() -> tuple[History, End]:
    """A correct run: a committed and an aborted transaction, an idempotent producer, an unfinished job, two consumers."""
    committed = Transaction("p", [Send("p", "c0", A, 0), Send("p", "c1", B, 0)], Outcome.COMMITTED)
    aborted = Transaction("p", [Send("p", "a0", A, 2), Send("p", "a1", B, 2)], Outcome.ABORTED)
    unknown = Transaction("p", [Send("p", "u0", A, 4), Send("p", "u1", B, None)], Outcome.UNKNOWN)
    sends = [Send("i", "i0", IDEMPOTENT, 0), Send("i", "i1", IDEMPOTENT, 1), Send("i", "i2", IDEMPOTENT)]
    visible = {
        A: [Seen(0, "c0"), Seen(4, "u0")],
        B: [Seen(0, "c1"), Seen(4, "u1")],
        IDEMPOTENT: [Seen(0, "i0"), Seen(1, "i1")],
        SOURCE: [Seen(0, "s0"), Seen(1, "s1"), Seen(2, "s2")],
        SINK: [Seen(0, "<s0>"), Seen(1, "<s1>")],
    }
    written = visible | {
        A: [Seen(0, "c0"), Seen(2, "a0"), Seen(4, "u0")],
        B: [Seen(0, "c1"), Seen(2, "a1"), Seen(4, "u1")],
    }
    end = End(
        committed=visible,
        everything=written,
        positions={("job", SOURCE): 2},
        stable_and_high={A: (6, 6), B: (6, 6)},
    )
    views = [
        View("careful", True, defaultdict(list, {A: [Seen(0, "c0"), Seen(4, "u0")]})),
        View("quick", False, defaultdict(list, {A: [Seen(0, "c0"), Seen(2, "a0")]})),
    ]
    return History([committed, aborted, unknown], sends, views), end


def test_a_correct_run_has_no_violations() -> None:
    assert complaints(*right(), [JOB]) == []


Spoil = Callable[[History, End], object]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda h, e: e.committed.update({B: [Seen(4, "u1")]}), "was committed; lost: c1 (tx-1)"),
        (lambda h, e: e.committed[B].append(Seen(5, "a1")), "was aborted; visible: a1 (tx-1)"),
        (lambda h, e: e.committed.update({B: [Seen(0, "c1")]}), "u0 (tx-0) are visible, u1 (tx-1) are not"),
        (lambda h, e: e.committed[IDEMPOTENT].pop(), "i1 was acknowledged at acked-0@1; there is nothing"),
        (
            lambda h, e: e.committed.update({IDEMPOTENT: [Seen(0, "i0"), Seen(1, "i2")]}),
            "i1 was acknowledged at acked-0@1; there is i2",
        ),
        (lambda h, e: e.committed[IDEMPOTENT].append(Seen(2, "i0")), "committed more than once: i0"),
        (lambda h, e: e.everything[A].append(Seen(6, "a0")), "written more than once: a0"),
        (lambda h, e: e.everything[IDEMPOTENT].reverse(), "i1 stands before i0, and was sent after it"),
        (lambda h, e: h.views[0].seen[A].append(Seen(0, "c0")), "it read Seen(offset=0"),
        (lambda h, e: h.views[0].seen[A].pop(0), "careful: in tx-0 it read Seen(offset=4"),
        (lambda h, e: h.views[0].seen[A].append(Seen(8, "x")), "which is not there at the end"),
        (lambda h, e: h.views[1].seen[A].append(Seen(3, "x")), "where at the end Seen(offset=4"),
        (lambda h, e: h.views[1].errors.append("out of range"), "quick: out of range"),
        (lambda h, e: e.positions.update({("job", SOURCE): 3}), "results lost: ['<s2>']"),
        (lambda h, e: e.positions.update({("job", SOURCE): 1}), "too many: ['<s1>']"),
        (lambda h, e: e.committed[SINK].reverse(), "the results stand in another order"),
        (lambda h, e: e.stable_and_high.update({A: (4, 6)}), "tx-0: a transaction hangs"),
    ],
)
def test_each_violation_is_reported(spoil: Spoil, said: str) -> None:
    history, end = right()
    spoil(history, end)
    found = complaints(history, end, [JOB])
    assert any(said in each for each in found), found
